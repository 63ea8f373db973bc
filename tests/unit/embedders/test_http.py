"""HTTP to a provider: attempts and time limits, certificates, and files of any length without the key."""

from collections.abc import Callable
from urllib.parse import urlsplit

import pytest

from memline.shared.embedders.endpoint import Endpoint
from memline.shared.embedders.http import HttpClient
from memline.shared.embedders.protocol import CALL_ATTEMPTS, Identity, counted_call
from memline.shared.embedders.remote import OpenAIEmbedder
from memline.shared.errors import ProviderError, ProviderLater, ProviderStop
from tests.support.clock import ManualClock
from tests.support.embedding_server import EmbeddingServer
from tests.support.tls_proxy import CERTIFICATE, TlsProxy
from tests.unit.embedders.conftest import KEY

#: What is asked for.
TEXTS = ("alpha notes", "beta plan", "gamma list", "delta word")

Ask = Callable[[str], HttpClient]


@pytest.fixture
def ask(clock):
    made = []

    def make(url, provider="openai"):
        endpoint = Endpoint(
            provider=provider, base_url=url, public=False, key=KEY, headers={"x-team": "notes"}
        )
        made.append(HttpClient(endpoint, timeout_s=60, clock=clock))
        return made[-1]

    yield make
    for client in made:
        client.close()


def test_a_redirect_to_another_place_is_followed_without_the_key(ask):
    with EmbeddingServer(key=KEY) as server, EmbeddingServer(key=KEY) as other:
        file = other.batches.add_file(b"one\n")
        server.batches.control({"faults": {"output": f"redirect:{other.url}/files/{file}/content"}})

        with pytest.raises(ProviderStop) as caught:
            list(ask(server.url).lines(f"/files/{file}/content", what="content"))

    assert (caught.value.status, other.batches.calls["output"]) == (401, 1)


@pytest.mark.parametrize(
    "target",
    ["/v1/files/x/content", "ftp://example.com/x", "http://", "http://[", "//", "file:///etc/passwd"],
)
def test_a_redirect_in_a_circle_or_to_nowhere_is_an_error(ask, target):
    with EmbeddingServer() as server:
        server.batches.control({"faults": {"output": f"redirect:{target}"}})

        with pytest.raises(ProviderError) as caught:
            list(ask(server.url).lines("/files/x/content", what="content"))

        assert caught.value.kind in ("stop", "later")
        assert server.batches.calls["output"] <= 7


def test_no_other_call_follows_a_redirect(ask):
    with EmbeddingServer() as server, EmbeddingServer() as other:
        server.batches.control({"faults": {"list": f"redirect:{other.url}/batches"}})
        client = ask(server.url)

        reply = client.call("GET", "/batches", what="list")

        assert client.error(reply).kind == "stop"
        assert not other.batches.calls


def test_a_call_that_makes_something_is_sent_once_and_others_are_repeated(ask):
    with EmbeddingServer() as server:
        server.batches.control({"faults": {"create": "500", "look": "500", "delete": "reset"}})
        client = ask(server.url)

        with pytest.raises(ProviderLater), counted_call(1):
            client.call("POST", "/batches", body={}, what="create")
        with pytest.raises(ProviderLater):
            client.call("GET", "/batches/x", what="look")
        with pytest.raises(ProviderLater):
            client.call("DELETE", "/files/x", what="delete")

        assert server.batches.calls == {"create": 1, "look": CALL_ATTEMPTS, "delete": CALL_ATTEMPTS}


@pytest.mark.parametrize(("fault", "limit", "calls"), [("500", 3, 3), ("close", 3, 3), ("500", 1, 1)])
def test_a_lasting_trouble_is_left_to_the_caller_after_three_attempts_or_as_many_as_it_allows(
    server, connect, fault, limit, calls
):
    server.control({"fault": fault})

    with pytest.raises(ProviderLater), counted_call(limit):
        connect(server.url).embed_documents(TEXTS)

    assert len(server.requests) == calls


def test_a_client_that_is_closed_under_a_call_is_no_fault_of_the_provider(server, ask):
    client = ask(server.url)
    client.close()

    with pytest.raises(ProviderLater, match="this process is ending"):
        client.call("POST", "/embeddings", body={"input": list(TEXTS), "model": "m"})


class HurriedClock(ManualClock):
    """Each look at it takes a second."""

    def now(self):
        self.advance(1)
        return super().now()


def test_an_answer_that_comes_too_slowly_is_given_up(server):
    embedder = OpenAIEmbedder(
        identity=Identity(provider="openai", model="m"),
        endpoint=Endpoint(provider="openai", base_url=server.url, public=False),
        timeout_s=1.5,
        clock=HurriedClock(),
    )

    with pytest.raises(ProviderLater, match=r"no answer within 1\.5 s"):
        embedder.embed_documents(TEXTS)

    embedder.close()


def test_a_server_on_this_machine_is_not_asked_through_a_proxy(server, connect, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)

    assert connect(server.url).embed_documents(TEXTS)


def test_a_server_of_this_machine_that_is_not_there_is_started_by_what_is_named(ask):
    with pytest.raises(ProviderLater) as caught:
        ask("http://127.0.0.1:9/v1", provider="ollama").call("POST", "/embeddings", body={})

    assert caught.value.hint == "check that a server is running at http://127.0.0.1:9: ollama serve"


@pytest.mark.parametrize(
    ("variable", "value", "url", "kind", "code", "words"),
    [
        ("ALL_PROXY", "socks5://127.0.0.1:9", "http://a.invalid/v1", "stop", "proxy_unusable", "ALL_PROXY"),
        ("ALL_PROXY", "socks://127.0.0.1:9", "http://a.invalid/v1", "stop", "proxy_unusable", "ALL_PROXY"),
        (
            "HTTP_PROXY",
            "http://me:word@127.0.0.1:9",
            "http://a.invalid",
            "stop",
            "proxy_unusable",
            "HTTP_PROXY",
        ),
        (
            "SSL_CERT_FILE",
            "/nowhere.pem",
            "https://a.invalid/v1",
            "stop",
            "untrusted_certificate",
            "SSL_CERT_FILE",
        ),
        ("UNUSED", "", "http://a.invalid/v1", "stop", "host_unknown", "a.invalid"),
        ("UNUSED", "", "http://127.0.0.1:9/v1", "later", "unreachable", "http://127.0.0.1:9"),
    ],
)
def test_what_fails_before_the_first_byte_names_the_variable_the_host_or_the_file(
    ask, clock, monkeypatch, variable, value, url, kind, code, words
):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv(variable, value)
    began = clock.now()

    with pytest.raises(ProviderError) as caught:
        ask(url).call("POST", "/embeddings", body={})

    error = caught.value
    assert (error.kind, error.code) == (kind, code)
    assert words in f"{error} {error.hint}" and "word@" not in str(error)
    assert kind == "later" or clock.now() == began, "another attempt would end in the same way"


def test_a_server_without_tls_behind_https_stops_at_once(server, ask):
    with pytest.raises(ProviderStop) as caught:
        ask(server.url.replace("http:", "https:")).call("POST", "/embeddings", body={})

    assert caught.value.code == "no_tls" and "https://127.0.0.1" in str(caught.value)


def test_an_untrusted_certificate_stops_at_once_and_says_how_to_trust_it(server, ask, monkeypatch):
    body = {"input": list(TEXTS), "model": "m"}
    with TlsProxy(urlsplit(server.url).port) as proxy:
        url = f"https://127.0.0.1:{proxy.port}/v1"
        with pytest.raises(ProviderStop, match="the certificate of https:") as caught:
            ask(url).call("POST", "/embeddings", body=body)
        refused = proxy.connections
        monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
        trusted = ask(url).call("POST", "/embeddings", body=body)

    assert (refused, trusted.status) == (1, 200)
    assert "SSL_CERT_FILE" in caught.value.hint
