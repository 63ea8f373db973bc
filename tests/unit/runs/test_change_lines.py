"""`memline up` says what it did with a changed file, in one line."""

import re
import threading
from collections.abc import Iterator

import pytest

from memline.producers.actions import provider_pauses
from memline.producers.runs import following
from memline.producers.runs.following import ChangeLines
from memline.shared.clock import SystemClock
from tests.support.embedding_server import EmbeddingServer
from tests.support.process import TIMEOUT_S
from tests.support.workspace import Place, remote

pytestmark = pytest.mark.place(files={"MEMORY.md": "# Notes\n\nThe queue is Redis.\n"})


@pytest.fixture
def embeddings() -> Iterator[EmbeddingServer]:
    with EmbeddingServer() as running:
        yield running


def test_up_says_one_line_a_change(place: Place, embeddings: EmbeddingServer) -> None:
    place.configure(**remote(embeddings.url), sync={"watchDebounceMs": 50})
    place.index()
    stop, ready = threading.Event(), threading.Event()
    notes: list[str] = []

    def note(text: str) -> None:
        notes.append(text)
        (ready if "follows" in text else stop if "new.md: " in text else threading.Event()).set()

    def save() -> None:
        ready.wait(TIMEOUT_S)
        place.write("memory/new.md", "The umbrella is in the cellar.\n")
        stop.wait(TIMEOUT_S)
        stop.set()

    saving = threading.Thread(target=save)
    saving.start()
    following.run(place.settings, [place.agent], stop=stop, on_note=note)
    saving.join()

    lines = [text for text in notes if "new.md" in text]
    assert len(lines) == 1
    assert re.fullmatch(r"memline: memory/new\.md: 1 chunk, 1 embedded, \d+ ms", lines[0])


def told(place: Place, lines: list[str]) -> ChangeLines:
    place.index()
    return ChangeLines(place.agent, lines.append, clock=SystemClock())


def test_files_that_are_removed_and_read_again_are_told_once(place: Place) -> None:
    place.write("memory/a.md", "One.\n")
    lines: list[str] = []
    changes = told(place, lines)

    changes.tick()
    assert lines == []
    (place.workspace / "memory" / "a.md").unlink()
    place.write("memory/b.md", "Two.\n")
    place.index()
    for _ in range(3):
        changes.tick()

    assert sorted(re.sub(r"\d+ ms", "0 ms", line) for line in lines) == [
        "memline: memory/a.md: removed, 0 ms",
        "memline: memory/b.md: 1 chunk, 0 ms",
    ]


def test_of_very_many_files_one_line_tells(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "QUIET_S", 0.0)
    lines: list[str] = []
    changes = told(place, lines)
    for number in range(following.MOST_LINES + 5):
        place.write(f"memory/{number}.md", f"Note {number}.\n")
    place.index()

    for _ in range(3):
        changes.tick()

    assert lines == ["memline: 15 files read in 0 s; 16 chunks in all"]


def test_a_file_that_is_stored_after_one_that_was_read_later_is_told_of(place: Place) -> None:
    lines: list[str] = []
    changes = told(place, lines)
    for name in ("a", "b"):
        place.write(f"memory/{name}.md", f"Note {name}.\n")
        place.index()
    (observed_ns,) = place.rows("SELECT observed_ns FROM files WHERE path = 'memory/a.md'")[0]
    place.execute("UPDATE files SET observed_ns = 0 WHERE path = 'memory/a.md'")
    changes.tick()
    place.execute(f"UPDATE files SET observed_ns = {observed_ns} WHERE path = 'memory/a.md'")

    changes.tick()

    assert [line.split(": ")[1] for line in lines] == ["memory/b.md", "memory/a.md"]


def test_an_index_that_is_gone_or_damaged_is_not_told_of_here(place: Place) -> None:
    lines: list[str] = []
    changes = told(place, lines)
    place.index_path.write_bytes(b"no database " * 1000)

    changes.tick()

    assert lines == []


def test_what_is_wrong_is_told_once_in_the_words_of_its_finding(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "TROUBLE_EVERY_S", 0.0)
    place.configure(**remote("http://127.0.0.1:9/v1"))
    provider_pauses.pause(place.agent)
    lines: list[str] = []
    changes = told(place, lines)

    changes.tick()
    changes.tick()

    said = [line for line in lines if "paused" in line]
    assert said == [
        "memline: agent main: embedding is paused; 1 vector is pending (try: memline queue resume)"
    ]
