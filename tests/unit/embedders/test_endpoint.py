"""An endpoint's digest tells addresses apart and keeps every secret out."""

import pytest

from memline.shared.config.schema import ProviderEntry
from memline.shared.embedders.endpoint import endpoint_of, normal_url
from memline.shared.providers import PROVIDERS
from tests.unit.embedders.conftest import make_settings


def digest(url, **headers):
    settings = make_settings(remote={"base_url": url, "headers": headers})
    return endpoint_of(PROVIDERS["openai"], settings, own=True).digest


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


def test_addresses_and_headers_that_matter_tell_endpoints_apart():
    plain = digest("http://a/v1")

    assert plain
    assert len({plain, digest("http://b/v1"), digest("http://a/v2"), digest("http://a/v1", route="x")}) == 4
    assert digest("http://A/v1/", Route="x") == digest("http://a/v1", route="x")


@pytest.mark.parametrize("name", ["Authorization", "X-Api-Key", "Cookie", "x-access-token"])
def test_secrets_do_not_change_the_digest(name):
    assert digest("http://a/v1", **{name: "one"}) == digest("http://a/v1", **{name: "two"})
    assert digest("http://ann:pw@a/v1?key=1") == digest("http://a/v1?key=2")


def test_the_entry_of_the_provider_gives_what_remote_does_not():
    entry = ProviderEntry(base_url="http://entry/v1", headers={"X-A": "1"})
    settings = {"providers": {"openai": entry}}

    ours = endpoint_of(PROVIDERS["openai"], make_settings(**settings), own=True)
    with_remote = make_settings(**settings, remote={"base_url": "http://r/v1"})
    remote = endpoint_of(PROVIDERS["openai"], with_remote, own=True)

    assert (ours.base_url, ours.headers) == ("http://entry/v1", {"x-a": "1"})
    assert remote.base_url == "http://r/v1"


@pytest.mark.parametrize(
    ("url", "native"),
    [
        ("https://generativelanguage.googleapis.com/v1beta/openai", ""),
        ("https://generativelanguage.googleapis.com/v1beta/openai/", ""),
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
        ({"google": ("g", ""), "gemini": ("m", "http://m")}, "g", "public"),
        ({"google": ("", "http://g"), "gemini": ("m", "")}, "m", "public"),
        ({"gemini": ("m", "http://m")}, "m", "http://m"),
        ({"google": ("", "http://g"), "gemini": ("", "http://m")}, "", "http://g"),
        ({}, "", "public"),
    ],
)
def test_a_key_of_gemini_goes_to_no_address_but_that_of_its_own_entry(entries, key, url):
    providers = {n: ProviderEntry(api_key=k, base_url=u) for n, (k, u) in entries.items()}

    endpoint = endpoint_of(PROVIDERS["gemini"], make_settings(providers=providers), own=True)

    assert endpoint.key == key
    assert endpoint.base_url == (PROVIDERS["gemini"].public_url if url == "public" else url)
