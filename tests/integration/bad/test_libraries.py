import pytest

from tests.support.process import ROOT
from tests.support.workspace import note, remote

#: Runs in the process before the command: these modules cannot be imported.
BLOCKED = """
import sys
class _Without:
    def __init__(self, finder):
        self._finder = finder
    def find_spec(self, name, *rest):
        return None if name.split(".")[0] in {names!r} else self._finder.find_spec(name, *rest)
sys.meta_path[:] = [_Without(finder) for finder in sys.meta_path]
"""


@pytest.mark.parametrize("missing", [("sqlite_vec",), ("numpy",), ("sqlean",)], ids=" and ".join)
def test_without_an_extra_library_the_same_is_found_and_status_names_what_is_gone(place, server, missing):
    place.configure(**remote(server.url))
    for number in range(5):
        place.write(f"memory/note-{number}.md", note(number))
    blocked = BLOCKED.format(names=set(missing))
    question = ("search", "word3x1x7 lighthouse", "--json")

    ran = place.run("index", "--json", before=blocked)
    without = place.run(*question, before=blocked)
    status = place.run("status", "--json", before=blocked).json[0]["status"]
    doctor = place.run("doctor", before=blocked)
    whole = place.run(*question)
    place.write("memory/later.md", "# Later\n\nplugh\n")
    again = place.run("index", "--json")

    assert ran.status == 0, ran.stderr
    assert without.json["mode"] == "hybrid"
    assert _hits(without.json) == _hits(whole.json)
    assert status["vector"]["available"] == ("numpy" in missing and len(missing) == 1)
    assert bool(status["vector"]["loadError"]) != status["vector"]["available"]
    assert status["vector"]["numpy"] == ("numpy" not in missing)
    assert "Traceback" not in doctor.stderr
    assert again.status == 0
    assert place.contents().vectors


def test_without_sqlite_vec_and_numpy_keywords_go_on_and_the_answer_names_what_is_gone(place, server):
    place.configure(**remote(server.url))
    place.write("memory/note.md", note(3))
    blocked = BLOCKED.format(names={"sqlite_vec", "numpy"})
    question = ("search", "word3x1x7 lighthouse", "--json")

    ran = place.run("index", "--json", before=blocked)
    without = place.run(*question, before=blocked)
    whole = place.run(*question)
    doctor = place.run("doctor", before=blocked)

    assert ran.status == 0, ran.stderr
    assert "only keywords are searched: numpy is missing, and sqlite-vec" in doctor.stdout
    assert "vectors are searched without it" not in doctor.stdout
    assert "search vectors slowly" not in doctor.stdout
    assert (without.json["mode"], whole.json["mode"]) == ("keyword", "hybrid")
    assert "memory/note.md" in paths_of(without.json)
    assert "memory/note.md" in paths_of(whole.json)
    assert "numpy is missing, and sqlite-vec" in without.json["warning"]
    assert without.json["action"].endswith(" numpy")


@pytest.mark.parametrize("error", ["ImportError", "RuntimeError"])
def test_a_numpy_that_cannot_be_imported_is_not_there(place, server, tmp_path, error):
    """A wheel of another Python raises the one, one for another processor the other."""
    place.configure(**remote(server.url))
    place.write("memory/note.md", note(3))
    package = tmp_path / "site" / "numpy"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"raise {error}('read this') from ImportError('no _core here')")
    env = {"PYTHONPATH": f"{package.parent}:{ROOT}"}

    ran = place.run("index", env=env)
    answer = place.run("search", "word3x1x7", "--json", env=env)
    doctor = place.run("doctor", env=env)

    assert (ran.status, ran.stderr) == (0, "")
    assert answer.json["mode"] == "hybrid"
    # Only an import finds it, which other commands do not pay.
    assert "note numpy cannot be imported (no _core here); long-lived" in doctor.stdout
    assert " --force-reinstall numpy" in doctor.stdout


#: Runs in the process before the command: no wheel of sqlean, and a standard library without FTS5.
WITHOUT_FTS5 = """
import sqlite3, sys
sys.modules["sqlean"] = None
class Without(sqlite3.Connection):
    def execute(self, sql, *values):
        return super().execute(sql.replace("'fts5'", "'fts0'"), *values)
connect = sqlite3.connect
sqlite3.connect = lambda *args, **options: connect(*args, factory=Without, **options)
"""


@pytest.mark.parametrize("command", [("index",), ("search", "word3x1x7"), ("doctor",)], ids=" ".join)
def test_without_full_text_search_there_is_one_clear_error(place, command):
    place.index()

    ran = place.run(*command, before=WITHOUT_FTS5)

    assert ran.status == 1
    assert "has no full-text search (FTS5)" in ran.stdout + ran.stderr
    assert "install sqlean.py" in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr


def paths_of(answer):
    return [hit["path"] for hit in answer["results"]]


def _hits(answer):
    return [(hit["citation"], round(float(str(hit["score"])), 4)) for hit in answer["results"]]
