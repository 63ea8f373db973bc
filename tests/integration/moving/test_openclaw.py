"""OpenClaw's index of the same notes is taken over: no request now, and none by the next `index`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from memline.producers.bridges.import_openclaw import estimate, find, take_over
from memline.shared.errors import ConfigError, IndexFault
from memline.shared.index import driver
from tests.support.embedding_server import EmbeddingServer
from tests.support.openclaw_index import early, newest
from tests.support.transcripts import opening, said, sessions_folder
from tests.support.workspace import Place, note, paths, remote

NOTES = 3

Make = Callable[..., Path]

pytestmark = pytest.mark.place(
    server={}, notes=NOTES, files={"MEMORY.md": "# Long term\n\nWe chose redis.\r\nUmlauts: äöü.\n"}
)


@pytest.fixture(params=[early, newest], ids=["early", "newest"])
def make(request: pytest.FixtureRequest) -> Make:
    """Makes an index of OpenClaw, of either format."""
    made: Make = request.param
    return made


def files_below(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_chunks_and_vectors_of_unchanged_notes_come_without_a_request(
    place: Place, server: EmbeddingServer, tmp_path: Path, make: Make
) -> None:
    index = make(tmp_path / "state", place.workspace)
    before = files_below(tmp_path / "state")

    taken = take_over(place.agent, index)
    again = take_over(place.agent, index)
    report = place.index()

    assert (taken.files, taken.known_files, taken.odd_vectors) == (NOTES + 1, 0, 0)
    assert (again.files, again.known_files, again.vectors) == (0, NOTES + 1, 0)
    assert taken.vectors == taken.chunks == report.chunks
    assert (report.files["unchanged"], report.vectors["embedded"], report.vectors["pending"]) == (
        NOTES + 1,
        0,
        0,
    )
    assert server.requests == []
    assert files_below(tmp_path / "state") == before
    assert {text[-1] for (text,) in place.rows("SELECT text FROM chunks WHERE text LIKE '%redis%'")} == {"\n"}
    place.contents()


def test_what_was_taken_over_is_found_by_words_and_by_meaning(
    place: Place, tmp_path: Path, make: Make
) -> None:
    take_over(place.agent, make(tmp_path / "state", place.workspace))

    answer = place.search("word1x1x5")

    assert answer.mode == "hybrid"
    assert paths(answer)[0] == "memory/note-1.md"
    hit = answer.hits[0]
    query = "SELECT DISTINCT heading FROM chunks WHERE text LIKE '%word1x1x5 %'"
    assert place.rows(query) == [("Note 1 > Section 0 of 1",), ("Note 1 > Section 1 of 1",)]
    lines = (place.workspace / hit.path).read_text().split("\n")
    assert hit.start_line >= 1
    assert "word1x1x5" in "\n".join(lines[hit.start_line - 1 : hit.end_line])


def test_a_note_that_changed_is_left_to_index_and_a_later_change_is_cut_anew(
    place: Place, server: EmbeddingServer, tmp_path: Path, make: Make
) -> None:
    index = make(tmp_path / "state", place.workspace)
    place.write("memory/note-0.md", note(0) + "\nMore.\n")

    taken = take_over(place.agent, index)
    first = place.index()
    place.write("memory/note-1.md", note(1) + "\nMore.\n")
    second = place.index()

    assert taken.changed == ("memory/note-0.md",)
    assert first.vectors["embedded"] == 3
    assert second.vectors["embedded"] == 3
    assert not server.repeated()


def test_another_models_vectors_never_serve(place: Place, tmp_path: Path, make: Make) -> None:
    index = make(tmp_path / "state", place.workspace, model="dearer")

    taken = take_over(place.agent, index)

    assert "dearer" in taken.reason
    assert not place.index_path.exists()


@pytest.fixture
def sessions(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of transcripts, which are searched too."""
    monkeypatch.setenv("OPENCLAW_STATE_DIR", str(tmp_path / "state"))
    place.configure(**place.memory, sources=["memory", "sessions"], experimental={"sessionMemory": True})
    return sessions_folder(tmp_path / "state")


def turns(first: int, count: int) -> list[tuple[str, str]]:
    return [
        ("assistant" if number % 2 else "user", f"Turn {number} is about kiwi{number} and nothing else.")
        for number in range(first, first + count)
    ]


def theirs(turns: list[tuple[str, str]]) -> str:
    """What OpenClaw makes of messages: a line each."""
    return "\n".join(f"{role.capitalize()}: {text}" for role, text in turns)


def transcript(turns: list[tuple[str, str]]) -> str:
    return opening() + "".join(said(role, text) for role, text in turns)


def test_transcripts_come_without_a_request_and_grow_behind_what_came(
    place: Place, server: EmbeddingServer, sessions: Path, tmp_path: Path, make: Make
) -> None:
    file = sessions / "abc.jsonl"
    file.write_text(transcript(turns(0, 20)))
    name = "sessions/abc.jsonl" if make is early else "sessions/main/abc.jsonl"
    index = make(tmp_path / "state", place.workspace, sessions={name: theirs(turns(0, 20))})

    taken = take_over(place.agent, index)
    again = take_over(place.agent, index)
    report = place.index()
    assert (taken.sessions_taken, taken.sessions, again.sessions_taken, again.sessions) == (1, 0, 0, 0)
    assert (report.vectors["embedded"], server.requests) == (0, [])
    query = (
        "SELECT start_line, end_line, text, heading FROM chunks WHERE text LIKE '%kiwi%' ORDER BY start_line"
    )
    before = place.rows(query)
    assert before[0] == (
        2,
        7,
        theirs(turns(0, 6)),
        "2026-02-10 10 February 2026 > Turn 0 is about kiwi0 and nothing else.",
    )
    assert paths(place.search("kiwi13"))[0] == "sessions/abc.jsonl"

    with file.open("a") as end:
        end.write(said("user", "And then something about quinces."))
    grown = place.index()

    assert grown.vectors["embedded"] == 1
    assert place.rows(query) == before
    assert place.rows("SELECT start_line, text FROM chunks WHERE text LIKE '%quinces%'") == [
        (22, "User: And then something about quinces.")
    ]


@pytest.mark.parametrize(
    ("ours", "their"),
    [
        (turns(0, 20), turns(0, 19)),
        (turns(0, 20), turns(1, 19)),
        (turns(0, 20), turns(0, 6) + turns(7, 13)),
        # A secret that OpenClaw kept and we mask.
        ([*turns(0, 5), ("user", "API_KEY=abcdefghijklmnopqrstuvwxyz0123456789")],) * 2,
    ],
    ids=["grown", "its beginning", "its middle", "secret"],
)
def test_a_transcript_of_which_it_says_something_else_is_left_to_index(
    place: Place,
    sessions: Path,
    tmp_path: Path,
    make: Make,
    ours: list[tuple[str, str]],
    their: list[tuple[str, str]],
) -> None:
    (sessions / "abc.jsonl").write_text(transcript(ours))
    index = make(tmp_path / "state", place.workspace, sessions={"sessions/abc.jsonl": theirs(their)})

    taken = take_over(place.agent, index)

    assert (taken.sessions_taken, taken.sessions, taken.files) == (0, 1, NOTES + 1)
    assert place.rows("SELECT text FROM chunks WHERE text LIKE '%kiwi%' OR text LIKE '%abcdefgh%'") == []


def key_of(url: str, headers: str) -> str:
    """The key of a release: the hash of what JSON.stringify makes of it."""
    written = f'{{"provider":"openai","baseUrl":"{url}","model":"stub","headers":[{headers}]}}'
    return hashlib.sha256(written.encode()).hexdigest()


JSON_TYPE = '["Content-Type","application/json"]'


@pytest.mark.parametrize("end", ["", "/"])
@pytest.mark.parametrize(
    ("headers", "recorded"),
    [
        ({}, JSON_TYPE),
        ({}, f'{JSON_TYPE},["originator","openclaw"]'),
        ({"X-Team": "ä", "X-Api-Key": "sk-more"}, f'{JSON_TYPE},["X-Team","ä"]'),
        ({"accept": "a"}, f'["accept","a"],{JSON_TYPE}'),
    ],
)
def test_an_index_of_the_configured_address_serves(
    place: Place,
    server: EmbeddingServer,
    tmp_path: Path,
    make: Make,
    headers: dict[str, str],
    recorded: str,
    end: str,
) -> None:
    settings = remote(server.url)
    place.configure(
        **{**settings, "remote": {**settings["remote"], "baseUrl": server.url + end, "headers": headers}}
    )
    index = make(tmp_path / "state", place.workspace, key=key_of(server.url + end, recorded))

    taken = take_over(place.agent, index)

    assert (taken.reason, taken.files) == ("", NOTES + 1)


@pytest.mark.parametrize("other", ["https://api.openai.com/v1", "http://127.0.0.1:9/v1"])
def test_another_addresses_vectors_never_serve(place: Place, tmp_path: Path, make: Make, other: str) -> None:
    """Also not those of an address that `models.providers` names and `remote` overrides."""
    index = make(tmp_path / "state", place.workspace, key=key_of(other, JSON_TYPE))
    config = json.loads(place.config.read_text())
    config["models"] = {"providers": {"openai": {"baseUrl": other}}}
    place.config.write_text(json.dumps(config))

    taken = take_over(place.agent, index)

    assert "another address" in taken.reason
    assert not place.index_path.exists()


def test_cached_vectors_of_another_address_never_serve(
    place: Place, server: EmbeddingServer, tmp_path: Path
) -> None:
    index = early(tmp_path / "state", place.workspace, key=key_of(server.url, JSON_TYPE))
    change(index, "UPDATE embedding_cache SET provider_key = ?", key_of("http://127.0.0.1:9/v1", JSON_TYPE))
    change(index, "DELETE FROM files")

    taken = take_over(place.agent, index)

    assert (taken.reason, taken.cached) == ("", 0)


def test_vectors_of_other_dimensions_than_the_index_has_are_left_out(
    place: Place, tmp_path: Path, make: Make
) -> None:
    place.index()
    place.write("memory/new.md", note(9))
    index = make(tmp_path / "state", place.workspace, dims=8)

    taken = take_over(place.agent, index)

    assert taken.vectors == 0
    assert taken.odd_vectors > 0
    assert place.index().vectors["pending"] == 0


def change(path: Path, statement: str, *values: object) -> None:
    with closing(driver.library().connect(str(path), isolation_level=None)) as connection:
        connection.execute(statement, values)


ODD: dict[str, str] = {
    "text that is not in the note": "UPDATE {chunks} SET text = 'rm -rf' WHERE path = 'memory/note-0.md'",
    "lines that are not there": "UPDATE {chunks} SET start_line = 900 WHERE path = 'memory/note-0.md'",
    "a chunk is missing": "DELETE FROM {chunks} WHERE path = 'memory/note-0.md' AND start_line = 1",
    "no chunk at all": "DELETE FROM {chunks} WHERE path = 'memory/note-0.md'",
}


@pytest.mark.parametrize("odd", ODD)
def test_a_file_whose_rows_contradict_it_is_left_to_index(
    place: Place, tmp_path: Path, make: Make, odd: str
) -> None:
    index = make(tmp_path / "state", place.workspace)
    change(index, ODD[odd].format(chunks="chunks" if make is early else "memory_index_chunks"))

    taken = take_over(place.agent, index)

    assert taken.odd_files == ("memory/note-0.md",)
    assert taken.files == NOTES
    assert place.index().files["added"] == 1


@pytest.mark.parametrize("stored", ["[]", "nonsense", '["1"]', "[0.0]", "[1e999]", b"\0" * 7, b"\0" * 128])
def test_a_vector_that_is_odd_is_counted_and_its_text_embedded(
    place: Place, tmp_path: Path, stored: str | bytes
) -> None:
    make, table = (early, "chunks") if isinstance(stored, str) else (newest, "memory_index_chunks")
    index = make(tmp_path / "state", place.workspace)
    change(index, f"UPDATE {table} SET embedding = ? WHERE path = 'MEMORY.md'", stored)
    change(index, f"DELETE FROM {'embedding_cache' if make is early else 'memory_embedding_cache'}")

    taken = take_over(place.agent, index)
    report = place.index()

    assert (taken.files, taken.odd_vectors) == (NOTES + 1, 1)
    assert (report.vectors["embedded"], report.vectors["pending"]) == (1, 0)


@pytest.mark.parametrize("path", ["../secret.md", "/etc/hosts.md", "memory/../../x.md"])
def test_a_file_outside_of_the_workspace_is_not_read(place: Place, tmp_path: Path, path: str) -> None:
    index = early(tmp_path / "state", place.workspace)
    change(index, "UPDATE files SET path = ? WHERE path = 'MEMORY.md'", path)

    taken = take_over(place.agent, index)

    assert taken.changed == (path,)


@pytest.mark.parametrize("harm", ["text", "cut", "other"])
def test_a_file_that_is_not_its_index_changes_nothing(place: Place, tmp_path: Path, harm: str) -> None:
    index = newest(tmp_path / "state", place.workspace)
    if harm == "text":
        index.write_text("hello" * 1000)
    elif harm == "cut":
        index.write_bytes(index.read_bytes()[:10_000])
    else:
        change(index, "ALTER TABLE memory_index_chunks RENAME TO something")

    with pytest.raises(IndexFault):
        take_over(place.agent, index)

    assert not place.index_path.exists()
    assert not list(place.home.rglob("*.openclaw"))


def test_what_openclaw_has_not_taken_in_from_its_wal_comes_too(place: Place, tmp_path: Path) -> None:
    index = newest(tmp_path / "state", place.workspace)
    with closing(driver.library().connect(str(index), isolation_level=None)) as running:
        running.execute("PRAGMA wal_autocheckpoint = 0")
        running.execute("UPDATE memory_index_chunks SET text = 'x' WHERE path = 'MEMORY.md'")
        before = files_below(tmp_path / "state")

        taken = take_over(place.agent, index)

        assert files_below(tmp_path / "state") == before
    assert taken.odd_files == ("MEMORY.md",)


def test_the_newest_format_is_found_first(place: Place, tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert find(place.agent, state) is None
    old = early(state, place.workspace)
    assert find(place.agent, state) == old
    new = newest(state, place.workspace)

    assert find(place.agent, state) == new


def test_without_a_provider_the_import_says_what_to_set(place: Place, tmp_path: Path) -> None:
    place.memory = {"provider": "openai"}
    place.save()

    with pytest.raises(ConfigError, match="no provider") as raised:
        take_over(place.agent, early(tmp_path / "state", place.workspace))

    assert "OPENAI_API_KEY" in raised.value.hint


def test_the_command_says_what_it_took_and_saved(
    place: Place, server: EmbeddingServer, tmp_path: Path
) -> None:
    early(tmp_path / "state", place.workspace)
    config: dict[str, Any] = {
        "agents": {"defaults": {"workspace": str(place.workspace), "memorySearch": place.memory}},
        "prices": {"stub": {"perMillion": 1000.0}},
    }
    place.config.write_text(json.dumps(config))

    shown = place.call("import", "openclaw", str(tmp_path / "state"))
    again = place.call("import", "openclaw", str(tmp_path / "state"), "--json")
    nothing = place.call("import", "openclaw", str(tmp_path))

    assert shown.status == 0, shown.stderr
    assert f"{NOTES + 1} notes taken over" in shown.stdout
    assert "saved: about" in shown.stdout
    assert again.json[0]["knownFiles"] == NOTES + 1
    assert nothing.status == 1
    assert "no memory index" in nothing.stderr
    assert server.requests == []


def test_init_takes_it_over_and_says_what_it_saves(
    place: Place, server: EmbeddingServer, tmp_path: Path
) -> None:
    index = early(tmp_path / "state", place.workspace)
    place.write("memory/new.md", "# New\n\nOne text that is paid for.\n")
    config: dict[str, Any] = {
        "agents": {"defaults": {"workspace": str(place.workspace), "memorySearch": place.memory}},
        "prices": {"stub": {"perMillion": 1000.0}},
    }
    place.config.write_text(json.dumps(config))
    offer = estimate(place.agent, index, prices=place.settings.prices)
    assert not place.home.exists() or not list(place.home.rglob("*.sqlite*"))

    shown = place.call(
        "init", str(place.workspace), "--yes", env={"OPENCLAW_STATE_DIR": str(tmp_path / "state")}
    )

    assert shown.status == 0, shown.stderr
    assert f"OpenClaw has indexed {NOTES + 1} of these notes" in shown.stdout
    assert f"save about {offer.cost:.4f} USD and the time, for {offer.tokens:,} tokens" in shown.stdout
    assert f"{NOTES + 1} notes taken over" in shown.stdout
    # The new note, and the question that init asks.
    assert sum(each.rows for each in server.requests) == 2


def test_init_goes_on_when_openclaws_index_is_of_no_use(place: Place, tmp_path: Path) -> None:
    index = early(tmp_path / "state", place.workspace, model="dearer")
    place.config.write_text(json.dumps({"agents": {"defaults": {"memorySearch": place.memory}}}))
    state = {"OPENCLAW_STATE_DIR": str(tmp_path / "state")}

    other = place.call("init", str(place.workspace), "--yes", env=state)
    index.write_text("no database" * 1000)
    damaged = place.call("init", str(place.workspace), "--yes", env=state)

    assert (other.status, damaged.status) == (0, 0)
    assert "is of no use here: its vectors are of openai dearer" in other.stderr
    assert "OpenClaw's index is left alone" in damaged.stderr
    assert "Indexed 4 files" in other.stdout
