from __future__ import annotations

import pytest

from tests.support.embedding_server import EmbeddingServer
from tests.support.workspace import Place, note, paths, remote

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


@pytest.mark.parametrize(
    "missing",
    [("sqlite_vec",), ("numpy",), ("sqlean", "pysqlite3")],
    ids=" and ".join,
)
def test_without_an_extra_library_the_same_is_found_and_status_names_what_is_gone(
    place: Place, server: EmbeddingServer, missing: tuple[str, ...]
) -> None:
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


def test_without_sqlite_vec_and_numpy_keywords_go_on_and_the_answer_names_what_is_gone(
    place: Place, server: EmbeddingServer
) -> None:
    place.configure(**remote(server.url))
    place.write("memory/note.md", note(3))
    blocked = BLOCKED.format(names={"sqlite_vec", "numpy"})
    question = ("search", "word3x1x7 lighthouse", "--json")

    ran = place.run("index", "--json", before=blocked)
    without = place.run(*question, before=blocked)
    whole = place.run(*question)

    assert ran.status == 0, ran.stderr
    assert (without.json["mode"], whole.json["mode"]) == ("keyword", "hybrid")
    assert "memory/note.md" in paths_of(without.json)
    assert "memory/note.md" in paths_of(whole.json)
    assert "numpy is missing, and sqlite-vec" in without.json["warning"]
    assert without.json["action"].startswith("memline ") and without.json["action"].endswith(" doctor")


def test_without_full_text_search_the_vectors_go_on_and_status_names_what_is_gone(
    place: Place, server: EmbeddingServer
) -> None:
    place.configure(**remote(server.url))
    for number in range(5):
        place.write(f"memory/note-{number}.md", note(number))
    text = place.workspace.joinpath("memory/note-3.md").read_text().split("\n\n")[2].strip()
    env = {"MEMLINE_SQLITE": "tests.support.sqlite_without_fts5"}

    ran = place.run("index", "--json", env=env)
    without = place.run("search", text, "--json", env=env)
    status = place.run("status", "--json", env=env).json[0]["status"]
    doctor = place.run("doctor", env=env)
    place.write("memory/note-3.md", note(3).replace("word3x1x7", "plugh"))
    changed = place.run("index", "--json", env=env)
    whole = place.run("index", "--json")

    assert ran.status == 0, ran.stderr
    assert ran.json[0]["vectors"]["embedded"] == 16
    assert without.status == 0, without.stderr
    assert without.json["mode"] == "vector"
    assert without.json["results"][0]["path"] == "memory/note-3.md"
    assert "keywords were not searched" in without.json["warning"]
    assert status["fts"] == {"enabled": True, "available": False, "error": "no such module: fts5"}
    assert doctor.status == 1
    assert "no FTS5" in doctor.stdout
    assert changed.status == 0, changed.stderr
    # A library that has it makes the full-text index of what the other one wrote.
    assert whole.status == 0, whole.stderr
    assert place.contents().chunks
    assert paths(place.search("plugh", min_score=1))[0] == "memory/note-3.md"


def test_an_index_that_was_kept_in_step_without_full_text_search_is_mended_by_one_with_it(
    place: Place,
) -> None:
    place.index()
    place.write("memory/good.md", "# Good\n\nThe lighthouse is plugh.\n")
    place.write("memory/new.md", "# New\n\nxyzzy\n")
    env = {"MEMLINE_SQLITE": "tests.support.sqlite_without_fts5"}

    without = place.run("index", "--json", env=env)
    asked = place.run("search", "xyzzy", "--json", env=env)
    stale = place.search("lighthouse")
    place.index()

    assert without.status == 0, without.stderr
    assert asked.status == 0
    assert "keywords were not searched" in asked.json["warning"]
    assert asked.json["action"]
    assert stale.warning.startswith("keywords were not searched")
    assert place.contents()
    assert paths(place.search("plugh")) == ["memory/good.md"]
    assert paths(place.search("xyzzy")) == ["memory/new.md"]
    assert paths(place.search("green")) == []


def paths_of(answer: dict[str, list[dict[str, object]]]) -> list[object]:
    return [hit["path"] for hit in answer["results"]]


def _hits(answer: dict[str, list[dict[str, object]]]) -> list[tuple[object, object]]:
    return [(hit["citation"], round(float(str(hit["score"])), 4)) for hit in answer["results"]]
