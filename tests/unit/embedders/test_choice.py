"""Which provider is chosen, at which address and with which key, and what is said when none can be."""

import pytest
from msgspec.structs import replace

from memline.shared.config.schema import Local, ProviderEntry
from memline.shared.embedders.choice import NONE, choose, choose_fallback, choose_for_identity
from memline.shared.embedders.endpoint import endpoint_of, normal_url
from memline.shared.embedders.protocol import Identity
from memline.shared.errors import ProviderStop
from memline.shared.providers import GEMINI_PROMPTS, GEMINI_TASKS, PROVIDERS
from tests.unit.embedders.conftest import KEY, make_settings

OPENAI = Identity(provider="openai", model="text-embedding-3-small")
GEMINI = Identity(provider="gemini", model="gemini-embedding-001", scheme=GEMINI_TASKS)
VOYAGE = Identity(provider="voyage", model="voyage-4-large", scheme="document/query")

#: A server of one's own.
LOCAL = {"base_url": "http://127.0.0.1:11434/v1"}


def key_of(choice):
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

    assert (choice.provider, choice.model, choice.caps.max_rows) == ("openai", "nomic-embed-text", 256)
    assert choice.identity.endpoint


@pytest.mark.parametrize(
    ("keys", "identity"),
    [({"gemini": "g", "voyage": "v"}, GEMINI), ({"gemini": "g"}, GEMINI), ({"voyage": "v"}, VOYAGE)],
)
def test_auto_goes_on_to_gemini_and_voyage_by_their_keys(keys, identity):
    choice = choose(make_settings(environment_keys=keys))

    assert (choice.identity, key_of(choice), choice.reason) == (identity, keys[identity.provider], "")


def test_a_key_that_the_environment_knows_is_shown_to_its_own_provider_only():
    choice = choose(make_settings(remote={"api_key": "g"}, environment_keys={"openai": "o", "gemini": "g"}))

    assert (choice.provider, key_of(choice)) == ("gemini", "g")


@pytest.mark.parametrize("url", ["", "http://127.0.0.1:11434", "http://127.0.0.1:11434/v1"])
def test_ollama_needs_no_key_and_finds_its_path(url):
    entries = {"ollama": ProviderEntry(base_url=url)} if url else {}
    choice = choose(make_settings(provider="ollama", providers=entries))

    assert (choice.provider, choice.model) == ("ollama", "nomic-embed-text")
    assert choice.base_url == "http://127.0.0.1:11434/v1"


def test_mistral_is_taken_by_name_alone():
    keys = {"mistral": KEY}
    choice = choose(make_settings(provider="mistral", environment_keys=keys))

    assert (choice.model, choice.base_url) == ("mistral-embed", "https://api.mistral.ai/v1")
    assert key_of(choice) == KEY
    assert choose(make_settings(environment_keys=keys)).provider == NONE
    assert "MISTRAL_API_KEY" in choose(make_settings(provider="mistral")).action


@pytest.mark.usefixtures("engines_here")
def test_auto_sends_nothing_away_when_a_model_is_here(tmp_path):
    model = tmp_path / "model.gguf"
    model.touch()
    here, away = (
        choose(make_settings(local=Local(model_path=path), environment_keys={"openai": KEY}))
        for path in (str(model), "hf:owner/repo/file.gguf")
    )

    assert (here.provider, away.provider) == (NONE, "openai")
    assert f"the model file {model} is empty" in here.reason


@pytest.mark.parametrize(("per_minute", "rows"), [(100, 5), (3000, 100), (3, 1), (0, 100)])
def test_where_texts_are_counted_a_request_is_small_against_the_minute(per_minute, rows):
    remote = {"requests_per_minute": per_minute}
    gemini = choose(make_settings(provider="gemini", environment_keys={"gemini": KEY}, remote=remote))
    openai = choose(make_settings(remote={**LOCAL, **remote}))

    assert (gemini.caps.max_rows, openai.caps.max_rows) == (rows, 256)


@pytest.mark.parametrize(
    "url", ["localhost:11434/v1", "ftp://x/v1", "http://", "http://[::1", "http://a:x/v1"]
)
def test_an_address_that_is_none_is_a_reason_not_a_crash(url):
    choice = choose(make_settings(remote={"base_url": url}))

    assert choice.provider == NONE
    assert "remote.baseUrl is not a valid address" in choice.reason
    assert choice.action


def test_the_prefix_of_the_provider_is_no_part_of_the_model_except_where_it_is():
    plain = choose(make_settings(remote=LOCAL, model="openai/m"))
    router = choose(make_settings(remote={"base_url": "https://openrouter.ai/api/v1"}, model="openai/m"))

    assert (plain.model, router.model) == ("m", "openai/m")


def test_secrets_are_in_no_representation():
    remote = {**LOCAL, "api_key": KEY, "headers": {"x-auth": "hidden-value"}}
    shown = repr(choose(make_settings(remote=remote)))

    assert KEY not in shown and "hidden-value" not in shown


# The fallback, and models of before.


@pytest.mark.parametrize(
    ("identity", "url", "rows"),
    [
        (OPENAI, "https://api.openai.com/v1", 2048),
        (GEMINI, "https://generativelanguage.googleapis.com/v1beta", 100),
        (VOYAGE, "https://api.voyageai.com/v1", 1000),
    ],
)
def test_the_fallback_inherits_nothing_of_the_first_provider(identity, url, rows):
    name = identity.provider
    other = "openai" if name != "openai" else "gemini"
    settings = make_settings(
        provider=other,
        fallback=name,
        model="model-of-first",
        output_dimensionality=768,
        remote={"base_url": "https://first.example/v1", "api_key": "k", "headers": {"x": "1"}, "max_rows": 3},
        environment_keys={name: KEY},
    )

    choice = choose_fallback(settings, choose(settings))

    assert (choice.identity, choice.requested, choice.fallback_from) == (identity, other, other)
    assert (choice.endpoint.base_url, choice.endpoint.key, choice.endpoint.headers) == (url, KEY, {})
    assert choice.caps.max_rows == rows


@pytest.mark.parametrize(
    "settings",
    [
        make_settings(remote={"base_url": "http://127.0.0.1:1/v1"}, model="new"),
        make_settings(environment_keys={"openai": KEY}),
        make_settings(provider="none", environment_keys={"openai": KEY}),
        make_settings(provider="gemini", environment_keys={"gemini": KEY}),
    ],
)
def test_an_identity_of_another_endpoint_is_never_asked(settings):
    old = choose(make_settings(remote=LOCAL)).identity

    with pytest.raises(ProviderStop, match="do not lead to openai") as caught:
        choose_for_identity(settings, old, "http://127.0.0.1:11434/v1")

    assert caught.value.hint


def test_the_public_service_is_not_asked_with_the_key_meant_for_another_place():
    with pytest.raises(ProviderStop):
        choose_for_identity(make_settings(remote={**LOCAL, "api_key": KEY}), OPENAI, "")


@pytest.mark.parametrize(
    "identity", [OPENAI, GEMINI, VOYAGE, replace(GEMINI, model="gemini-embedding-2", scheme=GEMINI_PROMPTS)]
)
@pytest.mark.parametrize("is_fallback", [True, False])
def test_an_identity_of_any_provider_can_be_asked(identity, is_fallback):
    name = identity.provider
    first = "voyage" if name != "voyage" else "openai"
    settings = make_settings(
        provider=first if is_fallback else name,
        fallback=name if is_fallback else "none",
        model="another",
        environment_keys={name: KEY},
    )

    embedder = choose_for_identity(settings, replace(identity, dims=256), "").build()
    embedder.close()

    assert embedder.identity == replace(identity, dims=256)


# The address and the key.


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("HTTP://LocalHost:11434/v1/", "http://localhost:11434/v1"),
        ("https://example.com:443/v1/embeddings", "https://example.com/v1"),
        ("http://example.com:80", "http://example.com"),
        (" https://example.com/Path/v1// ", "https://example.com/Path/v1"),
        ("https://example.com/v1?api-version=2", "https://example.com/v1?api-version=2"),
        ("http://[::1]:8080/v1", "http://[::1]:8080/v1"),
    ],
)
def test_an_address_has_one_spelling(url, normal):
    assert normal_url(url) == normal


def digest(url, **headers):
    settings = make_settings(remote={"base_url": url, "headers": headers})
    return endpoint_of(PROVIDERS["openai"], settings, own=True).digest


def test_addresses_and_headers_that_matter_tell_endpoints_apart_and_no_secrets_do():
    plain = digest("http://a/v1")

    assert plain
    assert len({plain, digest("http://b/v1"), digest("http://a/v2"), digest("http://a/v1", route="x")}) == 4
    assert digest("http://A/v1/", Route="x") == digest("http://a/v1", route="x")
    for name in ("Authorization", "X-Api-Key", "Cookie", "x-access-token"):
        assert digest("http://a/v1", **{name: "one"}) == plain
    assert digest("http://ann:pw@a/v1?key=1") == digest("http://a/v1?key=2")


@pytest.mark.parametrize(
    ("url", "native"),
    [
        ("https://generativelanguage.googleapis.com/v1beta/openai", ""),
        ("https://generativelanguage.googleapis.com/v1beta/", ""),
        ("http://openai/openai/v1", "http://openai"),
        ("http://a/openai-like/v1beta", "http://a/openai-like/v1beta"),
        ("http://a/v1beta/openai?x=1", "http://a/v1beta?x=1"),
    ],
)
def test_the_path_of_the_other_protocol_of_gemini_is_cut_off(url, native):
    endpoint = endpoint_of(PROVIDERS["gemini"], make_settings(remote={"base_url": url}), own=True)

    assert endpoint.base_url == (native or PROVIDERS["gemini"].public_url)
    assert endpoint.public == (not native)


@pytest.mark.parametrize(
    ("entries", "key", "url"),
    [
        ({"google": ("g", ""), "gemini": ("m", "http://m")}, "g", ""),
        ({"google": ("", "http://g"), "gemini": ("m", "")}, "m", ""),
        ({"gemini": ("m", "http://m")}, "m", "http://m"),
        ({"google": ("", "http://g"), "gemini": ("", "http://m")}, "", "http://g"),
        ({}, "", ""),
    ],
)
def test_a_key_of_gemini_goes_to_no_address_but_that_of_its_own_entry(entries, key, url):
    providers = {name: ProviderEntry(api_key=k, base_url=u) for name, (k, u) in entries.items()}

    endpoint = endpoint_of(PROVIDERS["gemini"], make_settings(providers=providers), own=True)

    assert (endpoint.key, endpoint.base_url) == (key, url or PROVIDERS["gemini"].public_url)
