"""What was said on some lines of a conversation, joined from chunks that overlap."""

import pytest

from memline.producers.read_note import read_turns
from memline.shared.index import driver
from memline.shared.sources.reading import Part
from tests.support.transcripts import opening, said, sessions_folder
from tests.support.workspace import Place

#: Words of each turn: some fit ten times into a chunk, one needs five chunks, one twenty.
WORDS = (5, 30, 3, 200, 10, 900, 4, 60, 3600, 7)


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENCLAW_STATE_DIR", str(tmp_path / "state"))
    place = Place(folder=tmp_path / "place")
    place.configure(sources=["memory", "sessions"], experimental={"sessionMemory": True})
    spoken = (
        said("user" if turn % 2 == 0 else "assistant", " ".join(f"w{turn}x{word}" for word in range(count)))
        for turn, count in enumerate(WORDS)
    )
    (sessions_folder(tmp_path / "state") / "s.jsonl").write_text(opening() + "".join(spoken))
    place.index()
    yield place


def read(place, **part):
    with driver.reading(place.index_path) as reader:
        excerpt = read_turns(reader, "sessions/s.jsonl", Part(**part))
    assert excerpt is not None
    return excerpt


@pytest.mark.parametrize("part", [{}, {"lines": 1}, {"lines": 3}])
def test_reading_on_leaves_out_nothing_but_the_rest_of_a_turn_that_is_too_long(place, part):
    seen, starts, at, rest = set(), [], 1, ""
    while at is not None:
        starts.append(at)
        excerpt = read(place, first=at, max_chars=12_000, **part)
        assert len(excerpt.text) <= 12_000
        seen.update(excerpt.text.split())
        at, rest = excerpt.next_from, rest or excerpt.rest

    assert starts == sorted(set(starts))
    spoken = {f"w{turn}x{word}" for turn, count in enumerate(WORDS) for word in range(count)}
    assert spoken - seen and all(word.startswith("w8x") for word in spoken - seen)
    # The citation that reads on in that turn.
    line, column = map(int, rest.partition("#L")[2].split("C"))
    while len(text := read(place, first=line, lines=1, column=column, max_chars=12_000).text) == 12_000:
        seen.update(text.split())
        column += 12_000
    # Two words may be cut in halves.
    assert len(spoken - seen - set(text.split())) <= 2


@pytest.mark.parametrize(("first", "lines"), [(10**6, 1), (10**30, 10**30)])
def test_lines_behind_the_end_are_empty(place, first, lines):
    excerpt = read(place, first=first, lines=lines)

    assert (excerpt.text, excerpt.lines, excerpt.next_from, excerpt.truncated) == ("", 0, None, False)


def test_a_conversation_that_is_not_in_the_index_is_none(place):
    place.write("memory/note.md", "A note.\n")
    place.index()
    with driver.reading(place.index_path) as reader:
        assert read_turns(reader, "sessions/none.jsonl", Part()) is None
        # A note is read by other rules.
        assert read_turns(reader, "memory/note.md", Part()) is None
