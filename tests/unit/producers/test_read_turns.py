"""What was said around a hit, joined from chunks that overlap."""

import pytest

from memline.producers.read_turns import read_turns
from memline.shared.index import driver
from memline.shared.sources.excerpt import Part
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


def turns_in(excerpt):
    """The turns of an excerpt, in its order."""
    marks = (word.split("x")[0] for word in excerpt.text.split() if word.startswith("w"))
    return list(dict.fromkeys(int(mark[1:]) for mark in marks))


def test_turns_around_a_line_are_whole_and_in_their_order(place):
    # Turn 4 is on line 6: the opening is the first.
    alone, wide = read(place, first=6, lines=1), read(place, first=6, lines=1, around=1)

    assert set(turns_in(alone)) < set(turns_in(wide)) and turns_in(wide) == sorted(turns_in(wide))
    assert alone.text.count("w4x9") == 1
    assert [word for word in wide.text.split() if word.startswith("w5x")] == [f"w5x{n}" for n in range(900)]


@pytest.mark.parametrize("part", [{}, {"lines": 1}, {"lines": 1, "around": 1}, {"lines": 1, "around": 3}])
def test_reading_on_leaves_out_nothing_but_the_rest_of_a_turn_that_is_too_long(place, part):
    seen = set()
    at = 1
    starts, is_cut = [], False
    while at is not None:
        starts.append(at)
        excerpt = read(place, first=at, max_chars=12_000, **part)
        assert len(excerpt.text) <= 12_000
        seen.update(excerpt.text.split())
        is_cut |= excerpt.cut
        at = excerpt.next_from

    assert starts == sorted(set(starts))
    for turn, count in enumerate(WORDS):
        if count < 1000:
            assert {f"w{turn}x{word}" for word in range(count)} <= seen
    assert is_cut is not ({f"w8x{word}" for word in range(WORDS[8])} <= seen)


@pytest.mark.parametrize(("first", "lines"), [(10**6, 1), (10**30, 10**30)])
def test_lines_behind_the_end_are_empty(place, first, lines):
    excerpt = read(place, first=first, lines=lines, around=200)

    assert (excerpt.text, excerpt.lines, excerpt.next_from, excerpt.truncated) == ("", 0, None, False)


def test_a_conversation_that_is_not_in_the_index_is_none(place):
    place.write("memory/note.md", "A note.\n")
    place.index()
    with driver.reading(place.index_path) as reader:
        assert read_turns(reader, "sessions/none.jsonl", Part()) is None
        # A note is read by other rules.
        assert read_turns(reader, "memory/note.md", Part()) is None
