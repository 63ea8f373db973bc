"""Keys that OpenClaw has saved serve where its configuration is used, at the provider's own address alone."""

import json

import pytest
from msgspec.structs import replace

from memline.shared.embedders.endpoint import endpoint_of
from memline.shared.providers import PROVIDERS
from tests.support.openclaw_rows import KEY_STORES, save_keys
from tests.unit.embedders.conftest import make_settings

STORE = {
    "version": 1,
    "profiles": {
        "anthropic:x": {"type": "api_key", "provider": "anthropic", "key": "sk-other"},
        "openai:sign-in": {"type": "oauth", "provider": "openai", "access": "token"},
        "openai:ref": {"type": "api_key", "provider": "openai", "keyRef": {"source": "exec"}},
        "openai:odd": {"type": "api_key", "provider": "openai", "key": 7},
        "openai:manual": {"type": "api_key", "provider": "openai", "key": " sk-saved\n"},
        "google:default": {"type": "api_key", "provider": "google", "key": "g-saved"},
    },
}


def key(state, provider="openai", *, agent="main", has_saved_keys=True, **options):
    settings = make_settings(**options)
    settings = replace(settings, state_dir=state, agent=agent, has_saved_keys=has_saved_keys)
    return endpoint_of(PROVIDERS[provider], settings, own=True).key


@pytest.mark.parametrize("store", KEY_STORES)
def test_a_saved_key_is_used_when_there_is_no_other(tmp_path, store):
    assert key(tmp_path) == ""

    save_keys(tmp_path, json.dumps(STORE), store)

    assert [key(tmp_path, name) for name in ("openai", "gemini", "voyage")] == ["sk-saved", "g-saved", ""]
    assert key(tmp_path, environment_keys={"openai": "sk-mine"}) == "sk-mine"
    assert key(tmp_path, remote={"api_key": "sk-remote"}) == "sk-remote"


def test_no_other_address_gets_it_and_no_other_configuration(tmp_path):
    save_keys(tmp_path, json.dumps(STORE), "early")

    assert key(tmp_path, remote={"base_url": "http://127.0.0.1:9/v1"}) == ""
    assert key(tmp_path, has_saved_keys=False) == ""
    assert key(tmp_path, agent="other") == ""


@pytest.mark.parametrize("text", ["", "[]", "{", '{"profiles": []}', '{"profiles": {"a": 7}}', "[" * 100_000])
def test_what_cannot_be_read_has_no_keys(tmp_path, text):
    save_keys(tmp_path, text, "early")
    (tmp_path / "state").mkdir()
    (tmp_path / "state/openclaw.sqlite").write_bytes(b"no database")

    assert key(tmp_path) == ""
