"""Growing transcripts are read on after enough of them, or when they come to rest."""

import os

import pytest

from memline.producers.watching.follow import QUIET_S, TranscriptGrowth
from memline.shared.clock import ManualClock, SystemClock
from memline.shared.sessions.programs import transcripts_of
from tests.support.transcripts import opening, said, sessions_folder, talk

PATH = "sessions/a.jsonl"


pytestmark = pytest.mark.place(
    sources=["memory", "sessions"], experimental={"sessionMemory": True}, provider="none"
)


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENCLAW_STATE_DIR", str(tmp_path / "state"))
    file = sessions_folder(tmp_path / "state") / "a.jsonl"
    file.write_text(opening() + talk(4))
    return file


def growth(place, clock=None):
    transcripts = transcripts_of(place.agent)
    assert transcripts is not None
    return TranscriptGrowth(place.agent, transcripts, clock=clock or SystemClock())


def append(file, text):
    with file.open("a") as handle:
        handle.write(text)


def test_a_transcript_the_index_does_not_know_is_due_and_begins_a_session(place, file):
    assert growth(place).check([PATH]) == ([PATH], True)

    place.index()
    archive = file.rename(f"{file}.reset.2026-02-11T00-00-00.000Z")

    grown = growth(place).check([PATH, f"sessions/{archive.name}"])
    assert grown == ([PATH, f"sessions/{archive.name}"], False)


def test_growth_below_both_thresholds_waits(place, file):
    place.index()
    measured = growth(place)
    assert measured.check([PATH]) == ([], False)

    append(file, talk(5))

    assert measured.check([PATH]) == ([], False)


def test_fifty_lines_are_enough_also_when_they_come_one_by_one(place, file):
    place.index()
    measured = growth(place)
    for number in range(49):
        append(file, said("user", "a"))
        assert measured.check([PATH])[0] == [], number

    append(file, said("user", "a"))

    assert measured.check([PATH])[0] == [PATH]
    place.index()
    assert measured.check([PATH])[0] == []
    append(file, said("user", "a"))
    assert measured.check([PATH])[0] == []


def test_a_hundred_thousand_bytes_are_enough_also_without_a_line_end(place, file):
    place.index()
    append(file, "x" * 99_999)
    assert growth(place).check([PATH])[0] == []

    append(file, "x")

    assert growth(place).check([PATH])[0] == [PATH]


@pytest.mark.parametrize(
    ("limits", "is_due", "behind"),
    [
        ({"deltaBytes": 0}, True, 1),
        ({"deltaMessages": 0}, True, 1),
        ({"deltaBytes": 40}, True, 1),
        # Lines are counted only by who follows the files: a search opens none.
        ({"deltaMessages": 2}, True, 0),
        ({"deltaMessages": 3, "deltaBytes": 5_000}, False, 0),
    ],
)
def test_the_thresholds_are_those_of_the_configuration(place, file, limits, is_due, behind):
    place.configure(sync={"sessions": limits})
    place.index()

    append(file, said("user", "a") * 2)

    assert bool(growth(place).check([PATH])[0]) is is_due
    assert place.status()["behind"]["files"] == behind


def test_a_transcript_that_came_to_rest_is_read_however_little_it_grew(place, file):
    place.index()
    append(file, said("user", "good night"))
    clock = ManualClock(file.stat().st_mtime)
    measured = growth(place, clock)
    assert measured.check([PATH])[0] == []

    clock.advance(QUIET_S + 1)

    assert measured.check([PATH])[0] == [PATH]


def test_one_that_was_cut_short_written_anew_or_removed_is_due(place, file):
    place.index()
    data = file.read_bytes()
    file.write_bytes(data[:100])
    assert growth(place).check([PATH])[0] == [PATH]

    file.write_bytes(data.swapcase())
    os.utime(file, ns=(1, 1))
    assert growth(place).check([PATH])[0] == [PATH]

    place.index()
    before = file.stat()
    file.write_bytes(file.read_bytes().swapcase())
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert growth(place).check([PATH])[0] == [PATH]

    file.unlink()
    assert growth(place).check([PATH])[0] == [PATH]
