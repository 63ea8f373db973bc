"""Files over HTTP: redirects without the key, answers of any length, and calls that are made once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from shared.clock import ManualClock
from shared.embedders.connection import Upload
from shared.embedders.endpoint import Endpoint
from shared.embedders.http import HttpClient
from shared.embedders.tries import USUAL
from shared.errors import ProviderError, ProviderLater, ProviderStop
from tests.support.embedding_server import EmbeddingServer
from tests.support.voyage_server import VoyageServer
from tests.unit.embedders.batches import PROVIDERS, TAG, TEXTS, Open, row
from tests.unit.embedders.conftest import KEY

Ask = Callable[[str], HttpClient]


@pytest.fixture
def ask(clock: ManualClock) -> Iterator[Ask]:
    made: list[HttpClient] = []

    def make(url: str) -> HttpClient:
        endpoint = Endpoint(
            provider="openai", base_url=url, public=False, key=KEY, headers={"x-team": "notes"}
        )
        made.append(HttpClient(endpoint, timeout_s=10, clock=clock))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.mark.parametrize("provider", PROVIDERS)
def test_results_that_lie_elsewhere_are_fetched_there_without_the_key(
    provider: str, open_batches: Open
) -> None:
    place = open_batches(provider)
    file_id = place.api.upload(map(row, TEXTS), tag=TAG)
    look = place.api.look(place.api.create(file_id, tag=TAG, agent="main").id)
    seen: list[dict[str, str]] = []
    with VoyageServer() as storage:
        content = place.server.batches.jobs.files[look.output.removeprefix("files/")]
        storage.batches.jobs.files["file-x"] = content
        storage.admits = lambda headers: seen.append(dict(headers)) or True  # type: ignore[func-returns-value,method-assign]
        target = f"{storage.url}/files/file-x/content"
        place.control(faults={"output": f"redirect:{target}"})

        results = list(place.api.results(look))

    assert len([result for result in results if result.vector]) == len(TEXTS)
    (headers,) = seen
    assert not {"authorization", "x-goog-api-key", "x-team"} & headers.keys()
    assert KEY not in str(headers)


def test_a_redirect_at_the_same_place_keeps_the_key(ask: Ask) -> None:
    with EmbeddingServer(key=KEY) as server:
        file = server.batches.jobs._store("x", "output", 0, lambda: iter([b"one\n", b"two\n"]))
        server.batches.control({"faults": {"output": [f"redirect:/v1/files/{file.id}/content"]}})

        got = b"".join(ask(server.url).download(f"/files/{file.id}/content", what="content"))

    assert got == b"one\ntwo\n"


def test_a_circle_of_redirects_ends(ask: Ask) -> None:
    with EmbeddingServer() as server:
        file = server.batches.jobs._store("x", "output", 0, lambda: iter([b"one\n"]))
        server.batches.control({"faults": {"output": f"redirect:/v1/files/{file.id}/content"}})

        with pytest.raises(ProviderStop):
            list(ask(server.url).download(f"/files/{file.id}/content", what="content"))

        assert server.batches.calls["output"] <= 5


@pytest.mark.parametrize("target", ["ftp://example.com/x", "http://", "http://[", "//", "file:///etc/passwd"])
def test_a_redirect_to_nowhere_is_an_error(ask: Ask, target: str) -> None:
    with EmbeddingServer() as server:
        file = server.batches.jobs._store("x", "output", 0, lambda: iter([b"one\n"]))
        server.batches.control({"faults": {"output": f"redirect:{target}"}})

        with pytest.raises(ProviderError) as caught:
            list(ask(server.url).download(f"/files/{file.id}/content", what="content"))

    assert caught.value.kind in ("stop", "later")


def test_no_other_call_follows_a_redirect(ask: Ask) -> None:
    with EmbeddingServer() as server, EmbeddingServer() as other:
        server.batches.control({"faults": {"list": f"redirect:{other.url}/batches"}})
        client = ask(server.url)

        reply = client.get("/batches", what="list")

        assert client.error(reply).kind == "stop"
        assert not other.batches.calls


def test_a_call_that_makes_something_is_sent_once_and_others_are_repeated(ask: Ask) -> None:
    with EmbeddingServer() as server:
        server.batches.control({"faults": {"create": "500", "look": "500", "delete": "reset"}})
        client = ask(server.url)

        with pytest.raises(ProviderLater):
            client.post("/batches", {}, what="create", once=True)
        with pytest.raises(ProviderLater):
            client.get("/batches/x", what="look")
        with pytest.raises(ProviderLater):
            client.delete("/files/x", what="delete")

        assert server.batches.calls == {"create": 1, "look": USUAL, "delete": USUAL}


def test_a_body_is_sent_piece_by_piece_with_its_size(ask: Ask) -> None:
    sent = [b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n', b"--b\r\n"]
    sent += [b'Content-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n']
    sent += [b"x" * 999 + b"\n"] * 3000 + [b"\r\n--b--\r\n"]
    with EmbeddingServer() as server:
        content = Upload(
            content_type="multipart/form-data; boundary=b",
            size=sum(map(len, sent)),
            pieces=lambda: iter(sent),
        )

        client = ask(server.url)
        file = client.json(client.upload("/files", content, what="upload"))

    assert file["bytes"] == 3_000_000


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        ("http://127.0.0.1/v1beta", "http://127.0.0.1/upload/v1beta/files"),
        ("http://127.0.0.1/proxy/v1beta", "http://127.0.0.1/proxy/upload/v1beta/files"),
        ("http://127.0.0.1", "http://127.0.0.1/upload/files"),
        ("http://127.0.0.1/v1beta?a=1", "http://127.0.0.1/upload/v1beta/files?a=1&b=2"),
    ],
)
def test_the_word_of_a_service_stands_before_the_version(ask: Ask, base: str, expected: str) -> None:
    query = {"b": 2} if "?" in expected else None

    assert str(ask(base)._connection.url("/files", query, "upload")) == expected
