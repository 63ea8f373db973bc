"""A fleet as an operator runs it: the lines of the Procfile on a Redis of their own."""

import json
import re
import signal

import pytest

from tests.acceptance.conftest import ROWS, write_notes
from tests.support.fleet import LINES, Fleet
from tests.support.process import python
from tests.support.undisturbed import assert_as_undisturbed, assert_paid_once
from tests.support.workspace import note

#: One line of the log, of any process.
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR|CRITICAL) [\w.()]+ .+")

#: Asks questions one after the other, each of an idle fleet.
_ASK = """
import time
from memline.shared.config.load import Options, load
from memline.shared.queue.replies import QueryClient
from memline.shared.search.request import SearchRequest

url = load(Options()).queue
client = QueryClient(url)
for number in range(25):
    answer = client.ask("main", SearchRequest(query="word7x1x7", min_score=1), timeout_s=120)
    assert answer["results"][0]["path"] == "memory/note-7.md"
    time.sleep(0.05)
"""


def found(fleet, query):
    """The paths that a search of a user of the fleet finds by their words."""
    ran = fleet.run("search", query, "--min-score", "1", "--json")
    assert ran.status == 0, ran.stderr
    return [hit["path"] for hit in ran.json["results"]]


def test_a_fleet_indexes_a_folder_as_one_process_does_and_pays_for_each_text_once(
    fleet, notes, provider, tmp_path
):
    texts = write_notes(notes, 0, 150)

    fleet.up("embed-2")
    fleet.until(lambda: fleet.vectors() == {"ready": texts}, "all vectors")

    assert_as_undisturbed(notes, tmp_path)
    assert_paid_once(provider)
    assert {request.rows for request in provider.requests} <= set(range(1, ROWS + 1))
    assert fleet.dead() == []


def test_index_hands_its_work_to_the_fleet_and_waits_for_it(fleet, notes, provider):
    texts = write_notes(notes, 0, 40)
    fleet.start("chunk", "embed", "store")

    ran = fleet.run("index", "--json")

    assert ran.status == 0, ran.stderr
    (report,) = ran.json
    assert report["files"]["added"] == 40
    assert report["vectors"] == {"embedded": texts, "cached": 0, "pending": 0, "failed": 0}
    assert_paid_once(provider)


def test_a_search_is_answered_by_the_query_worker_at_once_and_without_one_from_the_file(fleet, notes):
    texts = write_notes(notes, 0, 40)
    fleet.up_together("query")
    fleet.until(lambda: fleet.vectors() == {"ready": texts}, "all vectors")

    took = python(_ASK, env=fleet.environment)
    through_the_queue = fleet.run("search", "word7x1x7", "--json").json
    fleet.terminate("query")
    fleet.ended("query")
    direct = fleet.run("search", "word7x1x7", "--json").json

    assert took.status == 0, took.stderr
    assert [hit["citation"] for hit in through_the_queue["results"]] == [
        hit["citation"] for hit in direct["results"]
    ]
    assert through_the_queue["mode"] == "hybrid"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_search_does_not_wait_for_a_query_worker_that_was_killed_or_hangs(fleet, notes, number):
    texts = write_notes(notes, 0, 10)
    fleet.up_together("query")
    fleet.until(lambda: fleet.vectors() == {"ready": texts}, "all vectors")

    fleet.signal("query", number)
    # It still counts as alive for some seconds.
    fleet.until(lambda: found(fleet, "word7x1x7") == ["memory/note-7.md"], "the answer")


def test_a_second_store_process_takes_over_when_the_first_dies(fleet, notes, provider, tmp_path):
    texts = write_notes(notes, 0, 20)
    fleet.up()
    fleet.until(lambda: fleet.vectors() == {"ready": texts}, "all vectors")

    fleet.start("store-2")
    fleet.until(lambda: fleet.roles().count("store") == 2, "a second one")
    fleet.kill("store")
    write_notes(notes, 20, 20)
    fleet.until(lambda: fleet.vectors() == {"ready": 2 * texts}, "the work of the second")

    assert_as_undisturbed(notes, tmp_path)
    assert_paid_once(provider)


def test_sigterm_ends_every_process_within_seconds_and_loses_nothing(fleet, notes, provider, tmp_path):
    texts = write_notes(notes, 0, 100)
    fleet.up()
    fleet.until(lambda: len(provider.requests) > 5, "the backfill")

    fleet.terminate(*LINES)
    statuses = {label: fleet.ended(label) for label in LINES}
    fleet.up()
    fleet.until(lambda: fleet.vectors() == {"ready": texts}, "the rest")

    assert set(statuses.values()) == {0}
    assert "Traceback" not in "".join(fleet.logs())
    assert_as_undisturbed(notes, tmp_path)
    assert_paid_once(provider)
    assert fleet.dead() == []


def test_sigterm_that_reaches_a_group_twice_lets_running_requests_end_and_nothing_is_paid_twice(
    fleet, notes, provider
):
    texts = write_notes(notes, 0, 60)
    provider.control({"latency_ms": 2_000})
    fleet.up_together("embed")
    fleet.until(lambda: len(provider.requests) > 3, "requests that are out")

    for _ in range(2):
        fleet.signal("embed", signal.SIGTERM)
    status = fleet.ended("embed")
    provider.control({"latency_ms": 40})
    fleet.start("embed")
    fleet.until(lambda: fleet.vectors() == {"ready": texts}, "the rest")

    assert status == 0
    assert_paid_once(provider)


def test_a_third_signal_ends_a_worker_at_once(fleet, notes, provider):
    write_notes(notes, 0, 4)
    provider.control({"latency_ms": 30_000})
    fleet.up_together("embed")
    fleet.until(lambda: len(provider.requests) > 0, "a request that is out")

    def is_over():
        # Those that come while one is still to be handled count as one.
        fleet.signal("embed", signal.SIGTERM)
        return not fleet.is_running("embed")

    fleet.until(is_over, "the end")

    assert fleet.ended("embed") == -signal.SIGTERM


def test_all_processes_write_lines_of_one_format_that_name_message_queue_agent_and_path(notes, redis_server):
    texts = write_notes(notes, 0, 5)
    with Fleet(notes, redis_server.url, MEMLINE_LOG_LEVEL="DEBUG") as fleet:
        fleet.up()
        fleet.until(lambda: fleet.vectors() == {"ready": texts}, "all vectors")
        found(fleet, "word3x1x7")
        fleet.terminate(*LINES)
        for label in LINES:
            fleet.ended(label)
        lines = list(fleet.logs())

    stored = [line for line in lines if "file.stored" in line and "path=memory/note-3.md" in line]

    assert [line for line in lines if not LINE.fullmatch(line)] == []
    assert len(stored) == 1
    assert re.search(r" queue=store message_id=[\w-]+ actor=store_files agent=main ", stored[0])


def test_notes_are_never_part_of_the_log(fleet, notes):
    notes.write("memory/secret.md", note(1) + "\nxyzzy\n")
    fleet.up_together()
    fleet.until(lambda: "ready" in fleet.vectors(), "the vectors")

    # Nor is there a line for each file or request, unless it is asked for.
    assert not [line for line in fleet.logs() if "memory/" in line or "HTTP Request" in line]
    assert not [line for line in fleet.logs() if "xyzzy" in line or "word1x" in line]


def test_a_worker_set_up_for_another_address_gives_its_requests_back_and_says_what_differs(
    fleet, notes, provider
):
    texts = write_notes(notes, 0, 40)
    memory = {"provider": "openai", "model": "stub", "remote": {"baseUrl": "http://127.0.0.1:9/v1"}}
    config = notes.folder / "other.json5"
    config.write_text(json.dumps({"agents": {"defaults": {"memorySearch": memory}}}))

    fleet.start("chunk", "store")
    fleet.start("embed", env={"MEMLINE_CONFIG": str(config), "OPENAI_API_KEY": "sk-test"})
    assert fleet.run("reindex").status == 0
    fleet.until(lambda: "give workers and index the same" in fleet.log("embed"), "the reason")
    fleet.start("embed-2")
    beside = fleet.run("index", "--json")

    assert beside.status == 0
    assert fleet.vectors() == {"ready": texts}
    assert_paid_once(provider)
    assert fleet.dead() == []
