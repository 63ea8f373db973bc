"""A fleet forgets: with all its processes at work the text is in no file of the home."""

from tests.acceptance.conftest import write_notes
from tests.support.fleet import Fleet
from tests.support.workspace import Place, outside_reader

SECRET = "The quixotzalp door code is 8841-frobnitz-vexahedral."


def test_what_a_fleet_forgets_is_in_no_file_while_its_processes_run(fleet: Fleet, notes: Place) -> None:
    texts = write_notes(notes, 0, 4)
    notes.write("memory/doors.md", f"# Doors\n\nThe gate is green.\n\n{SECRET}\n")
    fleet.up()
    fleet.until(lambda: fleet.vectors().get("ready", 0) == texts + 1, "all vectors")
    asked = fleet.run("search", "quixotzalp", "--json")

    done = fleet.run("forget", "memory/doors.md#L5", "--yes", "--json")
    found = outside_reader(notes.home, "quixotzalp|frobnitz|vexahedr")
    again = fleet.run("search", "quixotzalp", "--json")
    write_notes(notes, 4, 1)
    fleet.until(lambda: fleet.vectors().get("ready", 0) == texts + 3 + 1, "the vectors of a note after it")

    assert asked.json["results"][0]["path"] == "memory/doors.md"
    assert done.status == 0, done.stderr
    assert done.json["vectors"] == 1
    assert found == ""
    assert not any("quixotzalp" in hit["snippet"] for hit in again.json["results"])
    assert outside_reader(notes.home, "quixotzalp|frobnitz|vexahedr") == ""
