import pytest
from msgspec.structs import replace

from memline.shared.embedders.choice import choose, choose_fallback, choose_for_identity
from memline.shared.embedders.protocol import Identity
from memline.shared.errors import ProviderStop
from memline.shared.providers import GEMINI_PROMPTS, GEMINI_TASKS
from tests.support.embedding_server import GeminiServer, VoyageServer
from tests.unit.embedders.conftest import KEY, make_settings

OPENAI = Identity(provider="openai", model="text-embedding-3-small")
GEMINI = Identity(provider="gemini", model="gemini-embedding-001", scheme=GEMINI_TASKS)
VOYAGE = Identity(provider="voyage", model="voyage-4-large", scheme="document/query")
LOCAL = {"base_url": "http://127.0.0.1:11434/v1"}


FIRST = {
    "base_url": "https://first.example/v1",
    "api_key": "key-of-first",
    "headers": {"x-first": "1"},
    "max_rows": 3,
}


@pytest.mark.parametrize(
    ("name", "identity", "url", "rows"),
    [
        ("openai", OPENAI, "https://api.openai.com/v1", 2048),
        ("gemini", GEMINI, "https://generativelanguage.googleapis.com/v1beta", 100),
        ("voyage", VOYAGE, "https://api.voyageai.com/v1", 1000),
    ],
)
def test_the_fallback_inherits_nothing_of_the_first_provider(name, identity, url, rows):
    other = "openai" if name != "openai" else "gemini"
    settings = make_settings(
        provider=other,
        fallback=name,
        model="model-of-first",
        output_dimensionality=768,
        remote=FIRST,
        environment_keys={name: KEY},
    )

    choice = choose_fallback(settings, choose(settings))

    assert choice
    assert choice.identity == identity
    assert (choice.requested, choice.fallback_from) == (other, other)
    assert choice.endpoint
    assert (choice.endpoint.base_url, choice.endpoint.key) == (url, KEY)
    assert not choice.endpoint.headers
    assert choice.caps
    assert choice.caps.max_rows == rows


@pytest.mark.parametrize(
    "settings",
    [
        make_settings(remote={"base_url": "http://127.0.0.1:1/v1"}, model="new"),
        make_settings(environment_keys={"openai": KEY}),
        make_settings(provider="none", environment_keys={"openai": KEY}),
        make_settings(provider="gemini"),
        make_settings(provider="gemini", environment_keys={"gemini": KEY}),
    ],
)
def test_an_identity_of_another_endpoint_is_never_asked(settings):
    old = choose(make_settings(remote=LOCAL)).identity
    assert old

    with pytest.raises(ProviderStop, match="do not lead to openai") as caught:
        choose_for_identity(settings, old, "http://127.0.0.1:11434/v1").build()

    assert caught.value.hint


def test_the_public_service_is_not_asked_with_the_key_meant_for_another_place():
    public = Identity(provider="openai", model="text-embedding-3-small")

    with pytest.raises(ProviderStop):
        choose_for_identity(make_settings(remote={**LOCAL, "api_key": KEY}), public, "").build()


@pytest.mark.parametrize(
    "identity", [OPENAI, GEMINI, VOYAGE, replace(GEMINI, model="gemini-embedding-2", scheme=GEMINI_PROMPTS)]
)
@pytest.mark.parametrize("is_fallback", [True, False])
def test_an_identity_of_any_provider_can_be_asked(identity, is_fallback):
    name = identity.provider
    first = "none" if not is_fallback else "voyage" if name != "voyage" else "openai"
    settings = make_settings(
        provider=first if is_fallback else name,
        fallback=name if is_fallback else "none",
        model="another",
        environment_keys={name: KEY},
    )

    embedder = choose_for_identity(settings, replace(identity, dims=256), "").build()
    embedder.close()

    assert embedder.identity == replace(identity, dims=256)


@pytest.mark.parametrize(("kind", "name"), [(GeminiServer, "gemini"), (VoyageServer, "voyage")])
def test_a_question_for_older_vectors_is_dressed_as_they_were(kind, name):
    with kind() as server:
        remote = {"base_url": server.url, "api_key": KEY}
        settings = make_settings(provider=name, remote=remote)
        chosen = choose(settings).identity
        assert chosen
        old = replace(
            chosen, model="old", scheme="CLUSTERING/QUESTION_ANSWERING" if name == "gemini" else "/query"
        )

        embedder = choose_for_identity(settings, old, server.url).build()
        embedder.embed_query("where?", timeout_s=60)
        embedder.close()

        body = server.requests[0].body
    assert body.get("taskType", body.get("input_type")) == (
        "QUESTION_ANSWERING" if name == "gemini" else "query"
    )
