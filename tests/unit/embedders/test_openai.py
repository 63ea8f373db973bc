"""The OpenAI-compatible provider against a real server that misbehaves in every known way."""

import base64
import socket

import pytest

from memline.shared.embedders.endpoint import Endpoint
from memline.shared.embedders.openai import OpenAIEmbedder, values_of
from memline.shared.embedders.protocol import Identity
from memline.shared.errors import ProviderBrokenAnswer, ProviderError, ProviderStop
from tests.unit.embedders.conftest import KEY

TEXTS = ["alpha notes", "beta plan", "会議 gamma"]


def test_dimensions_of_a_public_model_are_known_before_the_first_answer(server):
    embedder = OpenAIEmbedder(
        identity=Identity(provider="openai", model="text-embedding-3-small"),
        endpoint=Endpoint(provider="openai", base_url=server.url, public=True),
    )

    with pytest.raises(ProviderBrokenAnswer, match="384 dimensions; expected 1536"):
        embedder.embed_documents(TEXTS)

    embedder.close()


def test_user_and_password_of_the_address_are_sent_as_a_header_and_never_shown(server, connect):
    server.control({"fault": "404-model"})
    address = server.url.replace("//", "//ann:s3cret-word@")

    with pytest.raises(ProviderStop) as caught:
        connect(address, remote={"api_key": ""}).embed_documents(TEXTS)

    assert server.requests[0].headers["authorization"] == "Basic YW5uOnMzY3JldC13b3Jk"
    assert "s3cret" not in f"{caught.value} {caught.value.hint}"


def test_the_key_is_in_no_error_even_when_the_server_quotes_it(server, connect):
    header = "header-secret-98765"
    for fault in ("401", "500", "html"):
        server.control({"fault": fault})

        with pytest.raises(ProviderError) as caught:
            connect(server.url, remote={"headers": {"x-auth": header}}).embed_documents(TEXTS)

        seen = f"{caught.value!r} {caught.value.hint}"
        assert KEY not in seen
        assert header not in seen


@pytest.mark.parametrize("key", ["sk-proj-abc…xyz-secret", "sk-abc\ninjected: secret"])
def test_a_key_that_cannot_be_sent_is_an_error_without_the_key(server, connect, key):
    with pytest.raises(ProviderStop) as caught:
        connect(server.url, remote={"api_key": key}).embed_documents(TEXTS)

    assert "secret" not in f"{caught.value!r} {caught.value.hint} {caught.value.__cause__!r}"
    assert not server.requests


def test_a_text_with_half_a_character_is_sent_all_the_same(server, connect):
    (vector,) = connect(server.url).embed_documents(["broken \ud800 text"])

    assert len(vector) == 384 * 4
    assert server.requests[0].body["input"] == ["broken ? text"]


def test_connections_are_kept(server, connect, monkeypatch):
    opened = []
    create = socket.create_connection

    def counted(*args, **options):
        opened.append(args)
        return create(*args, **options)

    monkeypatch.setattr(socket, "create_connection", counted)
    embedder = connect(server.url)

    for _ in range(5):
        embedder.embed_query("x", timeout_s=60)

    assert len(opened) == 1


def test_base64_is_read_strictly_with_the_faster_decoder_and_without():
    whole = bytes(range(256))

    assert values_of(base64.b64encode(whole).decode()) == whole
    for broken in ("AAA", "AA AA=", "AAA=\n", "A-_A", "\ud800AAA", "====", "AA==AAAA"):
        with pytest.raises(ProviderBrokenAnswer, match="not base64"):
            values_of(broken)
