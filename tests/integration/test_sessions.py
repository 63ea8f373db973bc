"""Session transcripts end to end: from an agent's folder to hits, and nothing where it must not be."""

import json
import re
import threading
from contextlib import contextmanager

import pytest

from memline.producers.actions.forget import targets_of_session
from memline.producers.runs import following as runs_following
from memline.producers.watching import follow
from tests.support.transcripts import opening, said, sessions_folder, talk, tool_result
from tests.support.workspace import paths, remote, until

BODY = "aB3dE5gH7jK9mN1pQ3sT5vW7"
SECRETS = [f"sk-proj-{BODY}", f"hunter{BODY}", f"eyJhbGciOiJIUzI1NiJ9.{BODY}.{BODY}", f"cookie{BODY}"]

pytestmark = [
    pytest.mark.usefixtures("folder"),
    pytest.mark.place(
        files={"MEMORY.md": "# Notes\n\nWe chose Redis.\n"},
        provider="none",
        sources=["memory", "sessions"],
        experimental={"sessionMemory": True},
    ),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The sessions folder of the agent `main`."""
    monkeypatch.setenv("OPENCLAW_STATE_DIR", str(tmp_path / "state"))
    return sessions_folder(tmp_path / "state")


def append(file, text):
    with file.open("a") as handle:
        handle.write(text)


@contextmanager
def following(place):
    """`memline up` in a thread of this process."""
    stop = threading.Event()
    failed = []

    def run():
        try:
            runs_following.up(place.settings, [place.agent], stop=stop, on_note=lambda _: None)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not failed


def citations(place, query, **options):
    return [hit.citation for hit in place.search(query, **options).hits]


def test_what_was_said_is_found_with_the_lines_of_its_transcript(place, folder):
    file = folder / "abc.jsonl"
    file.write_text(opening() + said("user", "Where do pelicans sleep?") + tool_result("pelican pelican"))
    append(file, said("assistant", "On the quay."))

    report = place.index()

    assert report.files["added"] == 2 and not report.failed
    hit = place.search("pelicans").hits[0]
    assert (hit.citation, hit.source) == ("sessions/abc.jsonl#L2-L4", "sessions")
    assert hit.snippet == "User: Where do pelicans sleep?\nAssistant: On the quay."
    assert citations(place, "pelicans", source="memory") == []
    assert paths(place.search("Redis", source="sessions")) == []
    assert place.status()["sourceCounts"] == [
        {"source": "memory", "files": 1, "chunks": 1},
        {"source": "sessions", "files": 1, "chunks": 1},
    ]


def test_a_session_is_found_by_its_day_and_its_first_words(place, folder):
    file = folder / "abc.jsonl"
    file.write_text(opening() + said("user", "Plan the regatta", at="2026-02-08T09:00:00Z") + talk(30))
    (folder / "other.jsonl").write_text(opening() + talk(30, first=100))
    place.index()

    assert {hit.path for hit in place.search("regatta").hits} == {"sessions/abc.jsonl"}
    assert len(place.search("regatta").hits) > 2
    assert citations(place, "what was it on 8 February 2026?")[0].startswith("sessions/abc.jsonl#L2")
    assert paths(place.search("regatta", since="2026-02-10"))
    assert not paths(place.search("regatta", since="2026-02-11"))
    assert not paths(place.search("regatta", until="2026-02-07"))


def test_growth_is_found_by_the_next_search_without_being_called_stale(place, folder):
    file = folder / "abc.jsonl"
    file.write_text(opening() + talk(20))
    place.index()

    append(file, said("user", "a walrus came by") + '{"type":"message","mess')
    answer = place.search("walrus")

    assert answer.hits[0].end_line == 22 and not answer.stale
    append(file, 'age":{"role":"assistant","content":"an otter as well"}}\n')
    place.configure(sync={"onSearch": False})
    answer = place.search("otter")
    assert answer.hits == () and not answer.stale
    append(file, tool_result("x" * 100_000))
    assert place.search("otter").stale


def test_a_transcript_becomes_an_archive_and_stays_until_it_is_forgotten(place, folder):
    file = folder / "abc.jsonl"
    file.write_text(opening() + said("user", "Where do pelicans sleep?"))
    (folder / "abc.jsonl.bak").write_text(opening() + said("user", "pelicans in a backup"))
    place.index()

    archive = file.rename(f"{file}.reset.2026-02-11T00-00-00.000Z")
    assert citations(place, "pelicans") == [f"sessions/{archive.name}#L2"]

    archive.unlink()
    place.index()
    assert citations(place, "pelicans") == [f"sessions/{archive.name}#L2"]
    assert place.call("forget", f"sessions/{archive.name}", "--yes").status == 0
    assert citations(place, "pelicans") == []


def test_once_switched_off_nothing_of_them_is_found_and_the_rows_go(place, folder):
    (folder / "abc.jsonl").write_text(opening() + said("user", "Where do pelicans sleep?"))
    place.index()
    place.configure(sources=["memory"], sync={"onSearch": False})

    assert citations(place, "pelicans") == []
    assert "switched off" in place.search("pelicans", source="sessions").notice

    report = place.index()
    assert report.files["removed"] == 1
    assert place.rows("SELECT count(*) FROM chunks WHERE text LIKE '%pelican%'") == [(0,)]


def test_an_agent_never_sees_the_sessions_of_another(place, folder, tmp_path):
    (folder / "abc.jsonl").write_text(opening() + said("user", "Where do pelicans sleep?"))
    theirs = sessions_folder(tmp_path / "state", "other") / "abc.jsonl"
    theirs.write_text(opening() + said("user", "Where do otters sleep?"))
    (folder / "link.jsonl").symlink_to(theirs)
    place.index()

    assert citations(place, "otters") == []
    place.agent_name = "other"
    other = place.call("--agent", "other", "index", "--json")
    assert other.json[0]["files"]["added"] == 1
    found = place.call("--agent", "other", "search", "sleep", "--json").json["results"]
    assert [hit["snippet"] for hit in found] == ["User: Where do otters sleep?"]


def test_a_missing_folder_is_told_in_status_and_index(place, folder):
    folder.rmdir()

    report = place.index()

    assert place.status()["sourceCounts"][1] == {"source": "sessions", "files": 0, "chunks": 0}

    (finding,) = (each for each in report.findings if "sessions of OpenClaw" in each.what)
    assert str(folder) in finding.what
    assert not report.failed


def test_while_the_folder_cannot_be_listed_nothing_is_taken_for_gone(place, folder):
    (folder / "abc.jsonl").write_text(opening() + said("user", "Where do pelicans sleep?"))
    (folder / "shut.jsonl").write_text(opening() + said("user", "Where do otters sleep?"))
    (folder / "shut.jsonl").chmod(0)
    shut = place.run_without_rights("index", "--json")
    assert shut.status == 1
    assert shut.json[0]["failures"] == [{"path": "sessions/shut.jsonl", "reason": "not readable (EACCES)"}]

    folder.chmod(0)
    try:
        status = place.run_without_rights("status", "--json").json[0]
        found = place.run_without_rights("search", "pelicans", "--json").json
    finally:
        folder.chmod(0o700)

    assert status["scan"]["issues"][-1] == f"sessions of OpenClaw not readable ({folder}): EACCES"
    assert [hit["path"] for hit in found["results"]] == ["sessions/abc.jsonl"]


def test_no_secret_leaves_the_process_or_reaches_the_index(place, folder, server):
    place.configure(**remote(server.url))
    key, password, token, cookie = SECRETS
    inner = json.dumps({"body": json.dumps({"password": password})})
    (folder / "abc.jsonl").write_text(
        opening()
        + said("user", f"use {key} as the key")
        + said("assistant", f"I call it with Authorization: Bearer {token}\nand Cookie: sid={cookie}; a=b")
        + json.dumps({"type": "session_info", "name": f"the key {key}"})
        + "\n"
        + said("user", f"the answer was ```{inner}``` I think")
        + said("user", "long " * 300 + f"password={password} " + "long " * 300)
    )

    place.index()
    found = [place.search(query) for query in ("key", "password", "answer", "Cookie")]

    sent = json.dumps([request.body for request in server.requests])
    rows = json.dumps(place.rows("SELECT text, heading FROM chunks"))
    rows += json.dumps(place.rows("SELECT path, reason, first_day FROM files"))
    rows += json.dumps([answer.to_json() for answer in found])
    file = place.index_path.read_bytes()
    assert all(answer.hits for answer in found)
    for secret in SECRETS:
        assert secret not in sent and secret not in rows
        assert secret.encode() not in file
    assert BODY[:12] not in sent and BODY[:12] not in rows and BODY[:12].encode() not in file


def test_growth_is_followed_across_restarts_and_embeds_only_its_tail(place, folder, server, monkeypatch):
    monkeypatch.setattr(follow, "TRANSCRIPT_S", 0.05)
    place.configure(**remote(server.url), sync={"sessions": {"deltaMessages": 5}})
    file = folder / "abc.jsonl"
    file.write_text(opening() + talk(60))
    with following(place):
        until(lambda: place.index_path.exists() and not place.status()["dirty"], "the first reading")
        chunks = place.status()["chunks"]
        append(file, talk(5, first=60))
        until(lambda: bool(place.rows("SELECT 1 FROM chunks WHERE text LIKE '%word64x%'")), "the growth")
    append(file, talk(2, first=65))
    append(folder / "new.jsonl", opening() + said("user", "good morning"))
    with following(place):
        until(lambda: bool(place.rows("SELECT 1 FROM chunks WHERE text LIKE '%word66x%'")), "the rest")
        until(lambda: not place.status()["dirty"], "all vectors")

    assert not server.repeated()
    # The chunks there are, and the two that were open when they were read.
    assert len(server.texts) <= place.status()["chunks"] + 2
    assert place.status()["chunks"] >= chunks + 2


def test_the_start_of_a_session_brings_in_the_end_of_the_last(place, folder, monkeypatch):
    monkeypatch.setattr(follow, "TRANSCRIPT_S", 0.05)
    file = folder / "abc.jsonl"
    file.write_text(opening() + talk(6))
    with following(place):
        until(lambda: place.index_path.exists() and not place.status()["dirty"], "the first reading")
        append(file, said("user", "a walrus came by"))
        append(folder / "new.jsonl", opening())
        until(lambda: bool(place.rows("SELECT 1 FROM chunks WHERE text LIKE '%walrus%'")), "the end")


def test_sessions_of_claude_code_are_found_grow_and_are_forgotten(place, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    (folder / "abc.jsonl").write_text(opening() + said("user", "Where do pelicans sleep?"))
    project = tmp_path / "claude/projects" / re.sub("[^A-Za-z0-9]", "-", str(place.workspace))
    project.mkdir(parents=True)
    file = project / "0b1c.jsonl"

    def line(role, text):
        message = {"role": role, "content": text}
        return json.dumps({"type": role, "cwd": str(place.workspace), "message": message}) + "\n"

    file.write_text(line("user", f"Where do walruses sleep? My key is {SECRETS[0]}"))
    place.index()
    assert citations(place, "walruses") == []

    place.configure(transcripts=["claude-code"])
    place.index()
    assert citations(place, "walruses") == ["sessions/claude-code/0b1c.jsonl#L1"]
    assert citations(place, "pelicans") == []
    append(file, line("assistant", "On the ice."))
    (hit,) = place.search("ice").hits
    assert hit.snippet.endswith("\nAssistant: On the ice.") and SECRETS[0] not in hit.snippet

    place.configure(transcripts=["openclaw", "claude-code"])
    place.index()
    assert citations(place, "pelicans") == ["sessions/abc.jsonl#L2"]
    assert [str(each) for each in targets_of_session(place.agent, "0b1c")] == [hit.path]
