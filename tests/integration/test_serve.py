"""`memline serve` and `memline context` as processes: where they listen, when they refuse, how they end."""

import re
import signal
import socket

import httpx

from tests.support.process import end, running_memline
from tests.support.workspace import until


def test_the_server_says_where_it_is_answers_and_ends_well(place):
    place.write("MEMORY.md", "Invoices are whole cents.\n")

    with running_memline(*place.arguments("serve", "--port", "0")) as process:
        assert process.stderr
        line = process.stderr.readline()
        url = re.findall(r"http://\S+", line)[0]
        found = httpx.get(f"{url}/search", params={"query": "cents"}, timeout=120).json()
        said = end(process, signal.SIGTERM)

    assert [hit["path"] for hit in found["results"]] == ["MEMORY.md"]
    assert (process.returncode, said) == (0, "")


def test_with_a_token_any_address_is_served_and_asks_for_it(place):
    env = {"MEMLINE_SERVE_TOKEN": "a-token-of-tests"}

    with running_memline(*place.arguments("serve", "--host", "0.0.0.0", "--port", "0"), env=env) as process:
        assert process.stderr
        port = re.findall(r":(\d+)", process.stderr.readline())[-1]
        url = f"http://127.0.0.1:{port}/status"
        assert httpx.get(url, timeout=120).status_code == 401
        assert (
            httpx.get(url, headers={"authorization": "Bearer a-token-of-tests"}, timeout=120).status_code
            == 200
        )
        assert httpx.get(url, headers={"host": "evil.example"}, timeout=120).status_code == 421
        end(process)


def test_a_port_in_use_is_an_error_with_a_hint(place):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = place.run("serve", "--port", str(port))

    assert ran.status == 1
    assert f"cannot listen on 127.0.0.1:{port}" in ran.stderr
    assert f" serve --port {port + 1}" in ran.stderr


def test_up_serves_too_and_goes_on_while_its_port_is_taken(place):
    place.write("MEMORY.md", "Invoices are whole cents.\n")
    place.index()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        url = f"http://127.0.0.1:{port}/search?query=cents"
        with running_memline(*place.arguments("up", "--serve", "--port", str(port))) as process:
            until(lambda: "port_taken" in codes(place), "the finding")
            taken.close()
            until(lambda: is_answered(url), "an answer")
            until(lambda: "port_taken" not in codes(place), "its end")
            place.write("memory/new.md", "A xyzzy.\n")
            until(lambda: place.rows("SELECT 1 FROM files WHERE path = 'memory/new.md'") == [(1,)], "a note")
            end(process, signal.SIGTERM)

    assert process.returncode == 0


def codes(place):
    return [each["code"] for each in place.report()["findings"]]


def is_answered(url):
    try:
        return httpx.get(url, timeout=120).status_code == 200
    except httpx.TransportError:
        return False


def test_the_context_of_a_session_is_printed(place):
    place.write("MEMORY.md", "Invoices are whole cents.\n")

    shared, private = place.run("context"), place.run("context", "--private", "--json")

    assert (shared.status, shared.stdout) == (0, "")
    assert "There is no log" in shared.stderr
    assert private.json["parts"][0]["path"] == "MEMORY.md"
