"""kill -9 at any moment: nothing is lost, nothing is half-written, and no vector is paid for twice."""

import random
import signal
import time
from collections import defaultdict
from itertools import pairwise

import pytest

from tests.support.embedding_faults import digest_of
from tests.support.embedding_server import EmbeddingServer
from tests.support.process import end, running_memline
from tests.support.undisturbed import assert_as_undisturbed
from tests.support.workspace import note, paths, until

#: Twenty at random moments are those of a fleet (test_fleet_recovery).
KILLS = 8

#: Texts in a request, and requests in flight at most (`workers.context`): what a kill may cost.
ROWS = 2
IN_FLIGHT = 8

#: Notes that come between two kills, each with three texts: a run of half a second at this latency.
NOTES_A_ROUND = 12
LATENCY_MS = 60

#: Seconds a killed process lives at most: one in four from its start, the others from its first request.
EARLY_S = 0.6
WORKING_S = 0.4

pytestmark = pytest.mark.place(folders=["memory"], server={"maxRows": ROWS}, sync={"watchDebounceMs": 20})


@pytest.fixture
def server():
    with EmbeddingServer(dims=16, latency_ms=LATENCY_MS) as running:
        yield running


def test_an_index_run_that_is_killed_again_and_again_ends_as_if_it_had_not_been(place, server, tmp_path):
    dice = random.Random(20)
    kills = []

    for number in range(KILLS):
        _change(place, dice, number)
        with running_memline(*place.arguments("index")) as process:
            _let_live(server, dice)
            kills.append(_kill(process, server))
    server.control({"latency_ms": 0})
    last = place.run("index", "--json")

    assert last.status == 0, last.stderr
    assert_as_undisturbed(place, tmp_path)
    _assert_paid_once(server, kills)


def test_up_that_is_killed_again_and_again_ends_as_if_it_had_not_been(place, server, tmp_path):
    dice = random.Random(21)
    kills = []

    for number in range(KILLS):
        if number % 2:
            _change(place, dice, number)
        with running_memline(*place.arguments("up")) as process:
            if not number % 2:
                time.sleep(dice.uniform(0, EARLY_S))
                _change(place, dice, number)
            _let_live(server, dice)
            kills.append(_kill(process, server))
    server.control({"latency_ms": 0})
    with running_memline(*place.arguments("up")) as process:
        until(lambda: not place.status()["dirty"], "the end of the work")
        assert "Traceback" not in end(process)

    assert_as_undisturbed(place, tmp_path)
    _assert_paid_once(server, kills)


def test_up_follows_edits_deletions_and_new_names_and_other_processes_search_them(place, server, tmp_path):
    server.control({"latency_ms": 0})
    place.configure(sync={"watchDebounceMs": 20, "onSearch": False})
    for number in range(4):
        place.write(f"memory/note-{number}.md", note(number))

    with running_memline(*place.arguments("up"), env={"MEMLINE_LOG_LEVEL": "DEBUG"}) as process:
        until(lambda: _is_settled(place, 4), "the first look")
        place.write("memory/note-0.md", "# Edited\n\nplugh\n")
        (place.workspace / "memory/note-1.md").unlink()
        (place.workspace / "memory/note-2.md").rename(place.workspace / "memory/renamed.md")
        place.write("memory/deep/er/new.md", "# New\n\nxyzzy\n")
        until(lambda: _found(place, "plugh") == ["memory/note-0.md"], "the edited note")
        until(lambda: _found(place, "xyzzy") == ["memory/deep/er/new.md"], "the new note")
        until(lambda: _found(place, "word2x1x7") == ["memory/renamed.md"], "the renamed note")
        until(lambda: not _found(place, "word0x1x7 word1x1x7"), "the end of what is gone")
        until(lambda: _is_settled(place, 4), "the vectors")
        assert place.search("xyzzy").mode == "hybrid"
        stderr = end(process)

    assert process.returncode == 0
    assert "Traceback" not in stderr
    assert "DEBUG" in stderr
    assert "word0x1x7" not in stderr, "notes have no place in logs"
    assert "sk-test" not in stderr
    # A question that found nothing yet was asked again.
    questions = map(digest_of, ("plugh", "xyzzy", "word2x1x7", "word0x1x7 word1x1x7"))
    assert not server.repeated().keys() - {*questions}
    assert_as_undisturbed(place, tmp_path)


def test_what_a_killed_run_held_is_sent_by_the_process_that_lives(place, server):
    server.control({"fault": "hang"})
    place.configure(sync={"watchDebounceMs": 20, "onSearch": False})
    for number in range(10):
        place.write(f"memory/note-{number}.md", note(number))

    with running_memline(*place.arguments("index")) as process:
        until(lambda: len(server.requests) >= 4, "the first requests")
        with running_memline(*place.arguments("up")) as up:
            place.write("memory/new.md", "# New\n\nxyzzy\n")
            until(lambda: _found(place, "xyzzy") == ["memory/new.md"], "the other process")
            end(process, signal.SIGKILL)
            server.control({"fault": ""})
            until(lambda: _is_settled(place, 11), "what the killed run held")
            assert "Traceback" not in end(up)

    assert len(place.contents().vectors) == 31


def _change(place, dice, number):
    """What a user does between two looks: new notes, an edit, a deletion, a new name."""
    folder = place.workspace / "memory"
    old = sorted(path.name for path in folder.iterdir())
    for count in range(NOTES_A_ROUND):
        place.write(f"memory/note-{number}-{count}.md", note(100 * number + count))
    if len(old) >= 3:
        edited, deleted, renamed = dice.sample(old, 3)
        place.write(f"memory/{edited}", note(100 * number + 50) + "\nand a line more\n")
        (folder / deleted).unlink()
        (folder / renamed).rename(folder / f"renamed-{number}-{renamed[-12:]}")


def _let_live(server, dice):
    """Wait for the moment of a kill; the same dice give the same moments in the life of a process."""
    before = len(server.requests)
    if dice.random() < 0.25:
        time.sleep(dice.uniform(0, EARLY_S))
    else:
        until(lambda: len(server.requests) > before, "a request")
        time.sleep(dice.uniform(0, WORKING_S))


def _kill(process, server):
    """kill -9; the number of requests that had come until then."""
    end(process, signal.SIGKILL)
    server.until_unconnected()
    return len(server.requests)


def _found(place, query):
    return sorted({*paths(place.search(query, min_score=1))})


def _is_settled(place, files):
    status = place.status()
    return status["files"] == files and not status["dirty"]


def _assert_paid_once(server, kills):
    """A text came again only when its request was among the last ones before a kill."""
    received = defaultdict(list)
    for position, request in enumerate(server.requests):
        for text in request.body["input"]:
            received[digest_of(text)].append(position)
    lost = defaultdict(int)
    for positions in received.values():
        for before, after in pairwise(positions):
            kill = next((kill for kill in kills if before < kill <= after), None)
            assert kill is not None, "a text was sent twice without a kill in between"
            assert kill - before <= 2 * IN_FLIGHT, (
                "a text was sent twice that was answered long before the kill"
            )
            lost[kill] += 1
    assert all(count <= IN_FLIGHT * ROWS for count in lost.values())
