"""Every command as a script uses it: JSON with all keys of the contract, exit codes, the next step."""

import os
import signal

import pytest

from tests.support.process import end, running_memline
from tests.support.workspace import paths, remote, until

pytestmark = pytest.mark.place(
    files={"MEMORY.md": "# Long term\n\nThe team chose Redis for the queue.\n"}, notes=2
)


def test_a_failed_index_is_a_report_too(place, server):
    server.control({"fault": "refuse:Redis"})
    place.configure(**remote(server.url))
    place.write("memory/program.md", b"\0\1\2")

    ran = place.call("index", "--json")

    assert ran.status == 1
    (report,) = ran.json
    assert report["files"]["failed"] == 1
    assert report["vectors"]["failed"] == 1
    assert all(failure["reason"] and ("path" in failure) for failure in report["failures"])
    assert any(len(failure.get("textHash", "")) == 64 for failure in report["failures"])


def test_get_says_why_a_note_of_the_memory_cannot_be_read(place):
    place.write("memory/latin.md", "äöü".encode("latin-1"))
    closed = place.write("memory/closed.md", "xyzzy")
    closed.chmod(0)

    latin = place.call("get", "memory/latin.md")
    shut = place.run_without_rights("get", "memory/closed.md")

    assert (latin.status, latin.stdout) == (1, "")
    assert latin.stderr.startswith(
        "Error: memory/latin.md could not be read: 3 of 3 characters are not text\n"
        "Try: make memory/latin.md UTF-8 of at most 16 MB, or leave it out"
    )
    assert "memory/closed.md could not be read: not readable (EACCES)" in shut.stderr


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("nope", "no note is named 'nope'"),
        ("nope:7", "no note is named 'nope:7'"),
        ("nope#L7", "no note is named 'nope'"),
        ("C# notes", "no note is named 'C# notes'"),
        ("memory/notes.md#some-heading", "'some-heading' names no lines of memory/notes.md"),
        ("memory/none.md#some-heading", "'some-heading' names no lines of memory/none.md"),
        ("other.md#some-heading", "path is not an allowed Markdown memory file"),
        ("other.md", "path is not an allowed Markdown memory file"),
        ("../nope", "path is not an allowed Markdown memory file"),
        ("/etc/passwd#x", "path is not an allowed Markdown memory file"),
    ],
)
def test_get_says_that_a_name_has_no_note_and_a_heading_no_lines(place, path, words):
    place.index()
    for _ in range(2):
        ran = place.call("get", path)

        assert (ran.status, ran.stdout) == (1, "")
        assert ran.stderr.splitlines()[0] == f"Error: {words}"
        # The same words where there is such a file and it is no memory.
        for name in ("nope", "other.md", "other.md#some-heading", "C# notes"):
            place.write(name, "xyzzy")


def test_a_search_of_a_workspace_that_was_never_indexed_answers(place):
    found = place.call("search", "redis queue", "--json")
    place.configure(sync={"onSearch": False})
    other = place.call("--home", str(place.folder / "other"), "search", "redis queue")

    assert found.status == 0
    assert found.json["results"][0]["path"] == "MEMORY.md"
    assert " index\n" in other.stderr
    assert "Traceback" not in other.stderr


def test_a_change_of_the_model_never_blinds_search(place, server):
    place.configure(**remote(server.url, model="model-a"))
    place.index()
    before = place.search("word1x1x7 redis")
    place.configure(**remote(server.url, model="model-b", maxRows=1))
    server.control({"latency_ms": 200, "clear_log": True})

    with running_memline(*place.arguments("index")) as process:
        until(lambda: bool(server.requests), "the first request of the new model")
        end(process, signal.SIGKILL)
    server.control({"latency_ms": 0, "clear_log": True})
    during = place.search("word1x1x7 redis")
    # What the killed process had sent may be read only now.
    questions = [request.body for request in server.requests if "word1x1x7 redis" in request.body["input"]]
    asked = [body["model"] for body in questions]
    building = place.status()["identity"]
    report = place.index()
    after = place.search("word1x1x7 redis")

    assert (during.mode, during.model, during.stale) == ("hybrid", "model-a", True)
    assert paths(during) == paths(before)
    assert asked == ["model-a"], "the question is embedded with the model of the vectors that are searched"
    assert building["building"] is True
    assert not report.failed
    assert (after.mode, after.model, after.stale) == ("hybrid", "model-b", False)
    assert paths(after) == paths(before)


def test_another_chunk_size_cuts_every_file_again_and_pays_for_new_texts_only(place, server):
    place.configure(**remote(server.url))
    place.index()
    before = place.contents()
    place.configure(chunking={"tokens": 100, "overlap": 0})

    behind = place.status()["behind"]["files"]
    report = place.index()
    after = place.contents()

    assert behind == 3
    assert len(after.chunks) > len(before.chunks)
    assert max(len(text) for *_, text in after.chunks) <= 400
    assert report.vectors["embedded"] == len(after.vectors.keys() - before.vectors.keys())


def test_an_edit_that_keeps_size_and_time_is_seen_and_other_files_are_not_paid_again(place, server):
    place.configure(**remote(server.url))
    file = place.write("memory/door.md", "The code of the door is 1234.\n")
    place.index()
    before = file.stat()
    server.control({"clear_log": True})

    # As `rsync --times --inplace`, `touch -r` or a restored backup leave it.
    file.write_text("The code of the door is 9876.\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    # And one of which only the inode changed: the same text is not paid for twice.
    (place.workspace / "MEMORY.md").chmod(0o600)
    report, again = place.index(), place.index()

    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert (report.files["changed"], report.vectors["embedded"]) == (2, 1)
    assert (again.files["changed"], again.files["unchanged"]) == (0, 4)
    assert [hit.path for hit in place.search("9876").hits][:1] == ["memory/door.md"]


@pytest.mark.parametrize(
    ("line", "status", "words"),
    [
        ("worker embed", 1, "Error: it works with a queue, and no queue.url is set\n"),
        (
            "--config {fleet} up",
            1,
            "Error: up works without a queue, and queue.url is redis://***@127.0.0.1\n",
        ),
        ("queue --watch", 1, "Error: there is no queue: "),
        ("search plughxyz", 0, "nothing in the notes matches\n"),
        ("index", 0, "keyword search only: "),
        ("backup restore {copy}", 0, "Try: memline {options} index\n"),
        ("init {workspace} --yes", 0, "by words"),
    ],
)
def test_a_command_says_once_what_is_and_what_to_type(place, line, status, words):
    place.index()
    copy = place.folder / "copy.sqlite"
    place.call("backup", str(copy))
    options = " ".join(place.arguments())
    fleet = place.folder / "fleet.json"
    fleet.write_text('{"queue": {"url": "redis://:secret@127.0.0.1"}}')
    known = {"copy": copy, "fleet": fleet, "workspace": place.workspace, "options": options}

    ran = place.call(*line.format(**known).split())

    assert (ran.status, (ran.stdout + ran.stderr).count(words.format(**known))) == (status, 1)


@pytest.mark.place(files={}, notes=30)
def test_an_interrupted_index_stores_what_was_paid_for(place, server):
    place.configure(**remote(server.url, maxRows=1))
    server.control({"latency_ms": 300})

    with running_memline(*place.arguments("index")) as process:
        until(lambda: len(server.requests) > 3, "a few requests")
        end(process, signal.SIGINT)
    stored = len(place.contents().vectors)

    assert len(server.requests) < 90
    assert stored == len(server.texts)
    server.control({"latency_ms": 0})
    place.index()
    assert set(server.texts.values()) == {1}
