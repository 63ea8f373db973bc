"""The client of a command's one question says the same of a server as the one of httpx."""

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from memline.shared.clock import ManualClock
from memline.shared.embedders.endpoint import Endpoint
from memline.shared.embedders.http import HttpClient
from memline.shared.embedders.plain_http import PlainClient
from memline.shared.embedders.protocol import limit_attempts
from memline.shared.embedders.provider_client import ProviderClient
from memline.shared.embedders.remote_embedder import client_of
from memline.shared.errors import ProviderError, ProviderLater, ProviderStop
from tests.support.embedding_server import EmbeddingServer

BODY = {"input": ["alpha notes"], "model": "m"}


def endpoint_of(url: str, **fields: Any) -> Endpoint:
    return Endpoint(provider="openai", base_url=url, public=False, **fields)


def both(url: str, clock: ManualClock, **fields: Any) -> Iterator[ProviderClient]:
    for kind in (HttpClient, PlainClient):
        client = kind(endpoint_of(url, **fields), timeout_s=30, clock=clock)
        yield client
        client.close()


def outcome(client: ProviderClient) -> tuple[object, ...]:
    """What a caller sees of one call."""
    try:
        reply = client.post("/embeddings", BODY)
        return reply.status, reply.body, reply.sent_bytes, client.json(reply)["data"][0]["index"]
    except ProviderError as error:
        seen = type(error), error.message, error.hint, error.status, error.retry_after_s
        return *seen, error.maybe_paid, error.has_waited


FAULTS = [
    "",
    "429:60",
    "429",
    "500",
    "503:30",
    "504",
    "401",
    "refuse:alpha",
    "html",
    "error-in-200",
    "no-base64",
]


@pytest.mark.parametrize("fault", FAULTS)
def test_both_clients_say_the_same_of_an_answer(
    server: EmbeddingServer, clock: ManualClock, fault: str
) -> None:
    seen = []
    for client in both(server.url, clock, key="sk-a-key", headers={"x-team": "notes"}):
        server.control({"fault": fault, "clear_log": True})
        seen.append((outcome(client), len(server.requests)))

    assert seen[0] == seen[1]


def test_both_send_the_same_request(server: EmbeddingServer, clock: ManualClock) -> None:
    server.control({"clear_log": True})

    for client in both(f"{server.url}/", clock, key="sk-a-key", headers={"x-team": "notes"}):
        client.post("/embeddings", BODY)

    first, second = server.requests
    # What belongs to a connection, not to a request.
    own = {"accept-encoding", "connection"}
    assert first.body == second.body
    assert {name: each for name, each in first.headers.items() if name.lower() not in own} == {
        name: each for name, each in second.headers.items() if name.lower() not in own
    }


def test_no_server_at_all_is_later_and_names_the_address(clock: ManualClock) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        url = f"http://127.0.0.1:{gone.getsockname()[1]}/v1"

    with pytest.raises(ProviderLater) as caught:
        PlainClient(endpoint_of(url), timeout_s=30, clock=clock).post("/embeddings", BODY)

    assert url.removesuffix("/v1") in caught.value.hint
    assert not caught.value.maybe_paid


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 90\r\n\r\n{", b"no protocol at all\r\n\r\n"]
)
def test_an_answer_that_breaks_off_is_tried_again_and_may_be_paid(clock: ManualClock, answer: bytes) -> None:
    connections = 0

    def serve() -> None:
        nonlocal connections
        while connections < 2:
            connection, _ = listening.accept()
            connections += 1
            with connection:
                connection.recv(65_536)
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = threading.Thread(target=serve)
        serving.start()
        client = PlainClient(
            endpoint_of(f"http://127.0.0.1:{listening.getsockname()[1]}"), timeout_s=30, clock=clock
        )
        with pytest.raises(ProviderLater) as caught, limit_attempts(2):
            client.post("/embeddings", BODY)
        serving.join()

    assert (connections, caught.value.maybe_paid, caught.value.has_waited) == (2, True, False)


def test_a_server_that_says_nothing_is_left_when_the_time_is_over(clock: ManualClock) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ProviderLater, match=r"no answer within 0\.05 s") as caught:
            PlainClient(endpoint_of(url), timeout_s=30, clock=clock).post("/embeddings", BODY, timeout_s=0.05)

    assert caught.value.has_waited


def test_an_answer_above_the_limit_is_refused(
    server: EmbeddingServer, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memline.shared.embedders.plain_http.MAX_ANSWER_BYTES", 10)

    with pytest.raises(ProviderError, match="the response exceeds"):
        PlainClient(endpoint_of(server.url), timeout_s=30, clock=clock).post("/embeddings", BODY)


def test_a_key_that_cannot_be_sent_is_told_and_not_shown(server: EmbeddingServer, clock: ManualClock) -> None:
    for key in ("sk-\u00e9\u4e2d", "sk-a\nb"):
        with pytest.raises(ProviderStop) as caught:
            PlainClient(endpoint_of(server.url, key=key), timeout_s=30, clock=clock).post("/embeddings", BODY)

        assert "cannot be sent" in caught.value.message
        assert key not in str(caught.value) and caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("url", "is_plain"),
    [
        ("http://127.0.0.1:11434/v1", True),
        ("http://localhost:1234", True),
        ("http://[::1]:1234/v1", True),
        ("https://127.0.0.1:11434/v1", False),
        ("http://models.example/v1", False),
        ("http://ann:secret@127.0.0.1/v1", False),
    ],
)
def test_only_a_plain_address_of_this_machine_is_asked_without_httpx(
    url: str, is_plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "httpx")

    for is_one_shot in (True, False):
        client = client_of(endpoint_of(url), timeout_s=1, is_one_shot=is_one_shot)
        client.close()

        assert isinstance(client, PlainClient) is (is_plain and is_one_shot)


def test_a_question_of_a_command_loads_no_httpx(server: EmbeddingServer) -> None:
    program = (
        "import sys\n"
        "from memline.shared.embedders.endpoint import Endpoint\n"
        "from memline.shared.embedders.openai import OpenAIEmbedder\n"
        "from memline.shared.embedders.protocol import Identity\n"
        f"endpoint = Endpoint(provider='openai', base_url={server.url!r}, public=False)\n"
        "identity = Identity(provider='openai', model='m')\n"
        "embedder = OpenAIEmbedder(identity=identity, endpoint=endpoint, is_one_shot=True)\n"
        "print(len(embedder.embed_query('alpha', timeout_s=60)) > 0, 'httpx' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["True", "False"]
