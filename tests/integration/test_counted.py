"""What clients ask is counted by every process that answers, and each request of a server is one line."""

import json
import re

import httpx

from memline import Memory
from memline.producers.reports.metrics import FleetCollector, page
from tests.support.fleet import Fleet
from tests.support.process import end, running_memline

SECRET = "the vault behind the painting"


def samples(place):
    text = page(FleetCollector(place.settings, [place.agent]))
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("memline_")]
    return {name.removeprefix("memline_"): float(value) for name, value in lines}


def call(name, **arguments):
    return {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": name, "arguments": arguments},
    }


def test_a_server_counts_and_logs_what_it_was_asked(place):
    place.write("MEMORY.md", "Invoices are whole cents.\n")
    place.index()
    env = {"MEMLINE_SERVE_TOKEN": "a-token-of-tests"}
    headers = {"authorization": "Bearer a-token-of-tests", "accept": "application/json, text/event-stream"}

    with running_memline(*place.arguments("serve", "--port", "0"), env=env) as process:
        assert process.stderr
        url = re.findall(r"http://\S+", process.stderr.readline())[0]
        with httpx.Client(base_url=url, headers=headers, timeout=120) as client:
            client.get("/search", params={"query": "cents"})
            client.get("/search", params={"query": SECRET})
            client.post("/mcp", json=call("memory_search", query="cents"))
            client.post("/mcp", json=call("memory_search"))
            client.get("/search", params={"query": "x"}, headers={"authorization": "Bearer wrong"})
            client.get("/no/such/page")
            client.get("/ui/jobs")
            client.get("/ui/no/such/page")
        said = end(process)

    found = samples(place)
    of_main = 'agent="main",face="{}",mode="keyword",outcome="{}"'
    assert found[f"searches_total{{{of_main.format('http', 'hits')}}}"] == 1
    assert found[f"searches_total{{{of_main.format('http', 'none')}}}"] == 1
    assert found[f"searches_total{{{of_main.format('mcp', 'hits')}}}"] == 1
    assert found['search_seconds_bucket{agent="main",le="+Inf"}'] == 3
    assert found['search_seconds_count{agent="main"}'] == 3
    assert found['search_seconds_sum{agent="main"}'] > 0
    requests = {name: count for name, count in found.items() if name.startswith("http_requests_total")}
    assert requests == {
        'http_requests_total{route="/search",status="200"}': 2,
        'http_requests_total{route="/search",status="401"}': 1,
        'http_requests_total{route="/mcp",status="200"}': 2,
        'http_requests_total{route="other",status="404"}': 1,
        'http_requests_total{route="/ui/",status="303"}': 1,
        'http_requests_total{route="/ui/",status="404"}': 1,
    }
    lines = [json.loads(line) for line in said.splitlines()]
    assert [(each["route"], each["status"], each["agent"], each["client"]) for each in lines] == [
        ("/search", 200, "main", "token"),
        ("/search", 200, "main", "token"),
        ("/mcp", 200, "main", "token"),
        ("/mcp", 200, "main", "token"),
        ("/search", 401, "", "127.0.0.1"),
        ("other", 404, "", "token"),
        ("/ui/", 303, "", "127.0.0.1"),
        ("/ui/", 404, "", "127.0.0.1"),
    ]
    assert all(each["ms"] > 0 and each["time"] for each in lines)
    assert SECRET.split()[1] not in said


def test_a_program_counts_its_questions_and_a_command_does_not(place):
    place.write("MEMORY.md", "Invoices are whole cents.\n")

    with Memory(place.workspace, config=place.config, home=place.home) as memory:
        memory.search("cents")
    assert place.run("search", "cents").status == 0

    found = samples(place)
    counted = {name: count for name, count in found.items() if name.startswith("searches_total")}
    assert counted == {'searches_total{agent="main",face="python",mode="keyword",outcome="hits"}': 1}


def test_a_command_that_a_query_worker_answers_is_counted_by_it(place, redis):
    place.write("MEMORY.md", "Invoices are whole cents.\n")
    place.index()
    env = {"MEMLINE_QUEUE_URL": redis.url}

    labels = 'agent="main",face="cli",mode="keyword",outcome="hits"'

    def is_counted():
        """Ask, and look: a busy worker may be too slow, and counts some seconds later."""
        assert place.run("search", "cents", env=env).status == 0
        return f"searches_total{{{labels}}}" in samples(place)

    with Fleet(place, redis.url) as fleet:
        fleet.start("query")
        fleet.until_alive("query")
        fleet.until(is_counted, "a question of a command among the counts of its home")

    found = samples(place)
    assert {name for name in found if name.startswith("searches_total")} == {f"searches_total{{{labels}}}"}
