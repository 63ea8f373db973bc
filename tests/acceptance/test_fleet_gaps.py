"""What a fleet lacks is told, and ends a command that waits for it; each agent stands for itself."""

import json
import sqlite3
import stat
import time

import pytest

from tests.acceptance.conftest import write_notes
from tests.support.workspace import until

#: Seconds that the command of a test waits for a worker that embeds: half a minute otherwise.
MISSING_S = 4.0
_SOON = f"from memline.shared.queue import fleet_workers; fleet_workers.MISSING_S = {MISSING_S}"


def test_index_ends_with_1_when_no_worker_embeds(fleet, notes):
    write_notes(notes, 0, 2)
    fleet.start("watch")
    fleet.start_work("chunk", "store", "query")
    fleet.until_alive("chunk+store+query")

    began = time.monotonic()
    ran = fleet.run("index", before=_SOON)

    # How soon it is named, and after how many seconds it ends, a clock of a test says (unit/queue).
    assert time.monotonic() - began >= MISSING_S
    assert ran.status == 1
    assert "no worker takes messages from embed" in ran.stderr
    # Nothing is leased, and counted, before somebody can send it.
    assert fleet.queue("embed").waiting == 0


def test_a_watch_that_was_killed_is_named_at_the_next_look(fleet, notes):
    fleet.start("watch")
    fleet.start_work("chunk", "store", "query")
    fleet.until_alive("chunk+store+query")

    def codes():
        return {each["code"] for each in fleet.run("queue", "--json").json["findings"]}

    fleet.until(lambda: "no_watcher" not in codes(), "the watch")
    fleet.kill("watch")

    assert "no_watcher" in codes()


def test_a_search_of_a_fleet_whose_watch_is_gone_says_what_it_lacks_and_the_loss_is_told(fleet, notes):
    texts = write_notes(notes, 0, 1)
    fleet.up_together()
    fleet.until(lambda: fleet.vectors() == {"ready": texts}, "the first note")
    fleet.kill("watch")
    notes.write("memory/late.md", "# Late\n\nzebras cross here\n")

    fleet.until(lambda: fleet.run("search", "zebras", "--json").json["behind"]["files"] == 1, "the note")
    findings = fleet.run("queue", "--json").json["findings"]
    (told,) = (each for each in findings if each["code"] == "no_watcher")
    assert told["level"] == "note" and told["action"].endswith(" watch")


def test_a_fleet_that_never_had_a_watch_has_a_note_and_no_trouble(fleet):
    fleet.start_work("chunk", "store", "query", "embed")
    fleet.until_alive("chunk+store+query+embed")

    findings = fleet.run("queue", "--json").json["findings"]

    assert [each["level"] for each in findings if each["code"] == "no_watcher"] == ["note"]


def test_an_unusable_index_ends_the_run_of_its_agent_alone(place):
    agents = [{"id": "ann"}, {"id": "bob"}]
    defaults = {"workspace": str(place.workspace), "memorySearch": {"provider": "none"}}
    place.write("ann/memory/a.md", "# A\n\napples\n")
    place.write("bob/memory/b.md", "# B\n\nbananas\n")
    for agent in agents:
        agent["workspace"] = str(place.workspace / agent["id"])
    place.config.write_text(json.dumps({"agents": {"defaults": defaults, "list": agents}}))
    (place.home / "memory").mkdir(parents=True)
    with sqlite3.connect(place.home / "memory" / "ann.sqlite") as other:
        other.execute("PRAGMA application_id = 77")
        other.execute("CREATE TABLE mine (x)")

    ran = place.run("index")

    assert ran.status == 1
    assert "agent ann" in ran.stderr
    assert "Memory index updated (bob): 1 added" in ran.stdout


def test_what_a_fleet_leaves_in_its_home_is_for_its_owner_alone(fleet, notes):
    write_notes(notes, 0, 1)
    names = ("fleet.id", "memory/main.sqlite.lock", "memory/main.sqlite")
    fleet.start("chunk", "store", "watch")
    until(lambda: all((notes.home / name).exists() for name in names))

    modes = {name: stat.S_IMODE((notes.home / name).stat().st_mode) for name in names}

    assert modes == dict.fromkeys(names, 0o600)


@pytest.mark.parametrize("command", [("index",), ("search", "apples")])
def test_no_bare_event_stands_on_stderr(notes, command):
    write_notes(notes, 0, 1)
    unreachable = {"MEMLINE_QUEUE_URL": "redis://127.0.0.1:9/0"} if command[0] == "search" else {}

    ran = notes.run(*command, env=unreachable)

    assert not [line for line in ran.stderr.splitlines() if line.replace(".", "").replace("_", "").isalpha()]
