"""Which provider is chosen, and what is said when none can be."""

import pytest

from memline.shared.config.schema import Local, ProviderEntry
from memline.shared.embedders.choice import NONE, choose
from memline.shared.embedders.protocol import Identity
from memline.shared.errors import ProviderStop
from memline.shared.providers import GEMINI_TASKS
from tests.unit.embedders.conftest import KEY, make_settings

GEMINI = Identity(provider="gemini", model="gemini-embedding-001", scheme=GEMINI_TASKS)
VOYAGE = Identity(provider="voyage", model="voyage-4-large", scheme="document/query")

LOCAL = {"base_url": "http://127.0.0.1:11434/v1"}


def key_of(choice):
    assert choice.endpoint
    return choice.endpoint.key


def test_without_any_key_search_goes_by_keywords_and_says_how_to_change_that():
    choice = choose(make_settings())

    assert (choice.provider, choice.identity) == (NONE, None)
    assert "no key was found" in choice.reason
    assert "OPENAI_API_KEY" in choice.action
    with pytest.raises(ProviderStop, match="no key was found"):
        choice.build()


def test_auto_takes_a_server_of_ones_own_without_a_key():
    choice = choose(make_settings(remote=LOCAL, model="nomic-embed-text"))

    assert (choice.provider, choice.model) == ("openai", "nomic-embed-text")
    assert choice.identity
    assert choice.identity.endpoint
    assert choice.caps
    assert choice.caps.max_rows == 256


@pytest.mark.parametrize(
    ("keys", "identity"),
    [({"gemini": "g", "voyage": "v"}, GEMINI), ({"gemini": "g"}, GEMINI), ({"voyage": "v"}, VOYAGE)],
)
def test_auto_goes_on_to_gemini_and_voyage_by_their_keys(keys, identity):
    choice = choose(make_settings(environment_keys=keys))

    assert choice.identity == identity
    assert key_of(choice) == keys[identity.provider]
    assert choice.reason == ""


def test_a_key_that_the_environment_knows_is_shown_to_its_own_provider_only():
    keys = {"openai": "o", "gemini": "g"}

    choice = choose(make_settings(remote={"api_key": "g"}, environment_keys=keys))

    assert (choice.provider, key_of(choice)) == ("gemini", "g")


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:11434", "http://127.0.0.1:11434/", "http://127.0.0.1:11434/v1"]
)
def test_ollama_needs_no_key_and_finds_its_path(url):
    own = choose(make_settings(provider="ollama"))
    given = choose(make_settings(provider="ollama", providers={"ollama": ProviderEntry(base_url=url)}))

    assert (own.provider, own.model) == ("ollama", "nomic-embed-text")
    assert own.base_url == given.base_url == "http://127.0.0.1:11434/v1"
    assert own.identity == given.identity


def test_mistral_is_taken_by_name_alone():
    keys = {"mistral": KEY}

    choice = choose(make_settings(provider="mistral", environment_keys=keys))

    assert (choice.model, choice.base_url, key_of(choice)) == (
        "mistral-embed",
        "https://api.mistral.ai/v1",
        KEY,
    )
    assert choose(make_settings(environment_keys=keys)).provider == NONE
    assert "MISTRAL_API_KEY" in choose(make_settings(provider="mistral")).action


@pytest.mark.parametrize("name", ["mistral", "ollama"])
def test_a_preset_speaks_the_protocol_of_openai_under_its_own_name(server, name):
    choice = choose(make_settings(provider=name, remote={"base_url": server.url, "api_key": KEY}))

    embedder = choice.build()
    embedder.embed_query("x", timeout_s=60)
    embedder.close()

    assert embedder.identity.provider == name
    assert server.requests[0].body["model"] == choice.model
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_auto_sends_nothing_away_when_a_model_is_here(tmp_path):
    model = tmp_path / "model.gguf"
    model.touch()

    choice = choose(make_settings(local=Local(model_path=str(model)), environment_keys={"openai": KEY}))

    assert choice.provider == NONE
    assert f"the model file {model} is empty" in choice.reason


@pytest.mark.parametrize("path", ["/no/such/file.gguf", "hf:owner/repo/file.gguf"])
def test_auto_passes_over_a_local_model_that_is_not_here(path):
    choice = choose(make_settings(local=Local(model_path=path), environment_keys={"openai": KEY}))

    assert choice.provider == "openai"


@pytest.mark.parametrize(("per_minute", "rows"), [(100, 5), (3000, 100), (3, 1), (0, 100)])
def test_where_texts_are_counted_a_request_is_small_against_the_minute(per_minute, rows):
    remote = {"requests_per_minute": per_minute}
    gemini = choose(make_settings(provider="gemini", environment_keys={"gemini": KEY}, remote=remote))
    openai = choose(make_settings(remote={**LOCAL, **remote}))

    assert gemini.caps and openai.caps
    assert gemini.caps.max_rows == rows
    assert openai.caps.max_rows == 256


@pytest.mark.parametrize(
    "url", ["localhost:11434/v1", "ftp://x/v1", "http://", "http://[::1", "http://a:x/v1"]
)
@pytest.mark.parametrize("provider", ["auto", "openai"])
def test_an_address_that_is_none_is_a_reason_not_a_crash(provider, url):
    choice = choose(make_settings(provider=provider, remote={"base_url": url}))

    assert choice.provider == NONE
    assert "remote.baseUrl is not a valid address" in choice.reason
    assert choice.action


def test_the_prefix_of_the_provider_is_no_part_of_the_model_except_where_it_is():
    plain = choose(make_settings(remote=LOCAL, model="openai/m"))
    router = choose(make_settings(remote={"base_url": "https://openrouter.ai/api/v1"}, model="openai/m"))

    assert plain.model == "m"
    assert router.model == "openai/m"


def test_secrets_are_in_no_representation():
    settings = make_settings(remote={**LOCAL, "api_key": KEY, "headers": {"x-auth": "hidden-value"}})

    assert KEY not in repr(choose(settings))
    assert "hidden-value" not in repr(choose(settings))
