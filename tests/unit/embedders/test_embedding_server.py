"""The stub server keeps its log whatever becomes of its clients."""

import hashlib
import json
import subprocess
import sys
import urllib.request

import pytest

from tests.support.embedding_faults import parsed
from tests.support.embedding_server import EmbeddingServer


def ask(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(url, data=data, timeout=120) as answer:
        return json.load(answer)


def test_it_runs_as_a_program_and_counts_texts_of_a_client_that_was_killed():
    command = [sys.executable, "-m", "tests.support.embedding_server", "--port", "0", "--fault", "hang"]
    client = (
        "import sys, urllib.request\n"
        "urllib.request.urlopen(sys.argv[1] + '/embeddings', data=b'{\"input\": [\"a\"]}')"
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        url = server.stdout.readline().strip()
        killed = subprocess.Popen([sys.executable, "-c", client, url])
        while not ask(f"{url}/log")["requests"]:
            assert killed.poll() is None
        killed.kill()
        killed.wait()

        ask(f"{url}/control", {"fault": "", "latency_ms": 1})
        ask(f"{url}/embeddings", {"input": ["a", "b"]})
        log = ask(f"{url}/log")
        server.terminate()

    assert [request["rows"] for request in log["requests"]] == [1, 2]
    assert log["texts"][hashlib.sha256(b"a").hexdigest()] == 2


def test_repeated_texts_are_named(server, connect):
    embedder = connect(server.url)

    embedder.embed_documents(["a", "b"])
    embedder.embed_documents(["b"])

    assert server.repeated() == {hashlib.sha256(b"b").hexdigest(): 2}


def test_a_fault_with_a_comma_in_its_argument_is_one_fault():
    assert parsed("429:Wed, 21 Oct 2026 07:28:00 GMT") == {"429": "Wed, 21 Oct 2026 07:28:00 GMT"}
    assert parsed("max-rows:8,refuse:X") == {"max-rows": "8", "refuse": "X"}


def test_an_unknown_fault_is_refused():
    with pytest.raises(ValueError, match="unknown fault 'fire'"):
        EmbeddingServer(fault="fire")
