"""Session transcripts on a fleet: read in parts by one process, stored by another, followed as they grow."""

import pytest

from memline.shared.errors import IndexMissing
from tests.support.transcripts import opening, said, sessions_folder, talk
from tests.support.undisturbed import assert_paid_once

#: More than a slice of a transcript.
TURNS = 4_500


@pytest.fixture
def transcript(notes):
    """A long transcript of the agent, which may search its sessions."""
    notes.configure(
        sources=["memory", "sessions"],
        experimental={"sessionMemory": True},
        sync={"sessions": {"deltaMessages": 5}},
    )
    file = sessions_folder(notes.folder / ".openclaw") / "long.jsonl"
    file.write_text(opening() + talk(TURNS))
    return file


def test_a_transcript_is_indexed_in_parts_and_followed_while_workers_are_killed(
    fleet, notes, provider, transcript
):
    fleet.up()
    fleet.until(lambda: bool(read_lines(notes)), "the first part")
    fleet.kill("chunk")
    fleet.start("chunk")
    fleet.until(lambda: read_lines(notes) == TURNS + 1, "all parts")

    with transcript.open("a") as file:
        file.write(talk(10, first=TURNS) + said("assistant", "a walrus came by"))
    fleet.until(lambda: read_lines(notes) == TURNS + 12, "the growth")
    fleet.until(lambda: set(fleet.vectors()) == {"ready"}, "all vectors")

    hits = fleet.run("search", "walrus", "--json").json["results"]
    assert hits[0]["citation"].startswith("sessions/long.jsonl#L")
    assert hits[0]["endLine"] == TURNS + 12
    assert_paid_once(provider)
    assert fleet.dead() == []
    at_once = notes.rows("SELECT count(*), count(DISTINCT ordinal), max(ordinal) + 1 FROM chunks")[0]
    assert len(set(at_once)) == 1


def read_lines(place):
    """Lines of the transcript that are in the index."""
    try:
        return int(place.rows("SELECT coalesce(max(lines), 0) FROM files")[0][0])
    except IndexMissing:
        return 0
