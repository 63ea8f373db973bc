"""Keys that OpenClaw has saved serve where its configuration is used, at the provider's own address alone."""

import json

import pytest
from msgspec.structs import replace

from memline.shared.embedders.endpoint import endpoint_of
from memline.shared.providers import PROVIDERS
from memline.shared.sqlite import library
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


def save_early(state, text):
    file = state / "agents/main/agent/auth-profiles.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def save_row(path, table, columns, *row):
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = library().connect(str(path), isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"CREATE TABLE {table} ({columns}) STRICT")
    connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
    connection.close()


def save_of_agent(state, text):
    path = state / "agents/main/agent/openclaw-agent.sqlite"
    columns = "store_key TEXT, store_json TEXT, updated_at INTEGER"
    save_row(path, "auth_profile_store", columns, "primary", text, 1)


def save_of_all(state, text):
    columns = "state_key TEXT, value_json TEXT, updated_at_ms INTEGER"
    save_row(state / "state/openclaw.sqlite", "config_machine_state", columns, "authProfiles.store", text, 1)


def of_home(state, **options):
    return replace(make_settings(**options), state_dir=state, agent="main", has_saved_keys=True)


def key(settings, provider="openai"):
    return endpoint_of(PROVIDERS[provider], settings, own=True).key


@pytest.mark.parametrize("save", [save_early, save_of_agent, save_of_all])
def test_a_saved_key_is_used_when_there_is_no_other(tmp_path, save):
    assert key(of_home(tmp_path)) == ""

    save(tmp_path, json.dumps(STORE))

    assert key(of_home(tmp_path)) == "sk-saved"
    assert key(of_home(tmp_path), "gemini") == "g-saved"
    assert key(of_home(tmp_path), "voyage") == ""
    assert key(of_home(tmp_path, environment_keys={"openai": "sk-mine"})) == "sk-mine"
    assert key(of_home(tmp_path, remote={"api_key": "sk-remote"})) == "sk-remote"


def test_no_other_address_gets_it_and_no_other_configuration(tmp_path):
    save_early(tmp_path, json.dumps(STORE))

    assert key(of_home(tmp_path, remote={"base_url": "http://127.0.0.1:9/v1"})) == ""
    assert key(replace(of_home(tmp_path), has_saved_keys=False)) == ""
    assert key(replace(of_home(tmp_path), agent="other")) == ""


@pytest.mark.parametrize("text", ["", "[]", "{", '{"profiles": []}', '{"profiles": {"a": 7}}', "[" * 100_000])
def test_what_cannot_be_read_has_no_keys(tmp_path, text):
    save_early(tmp_path, text)
    (tmp_path / "state").mkdir()
    (tmp_path / "state/openclaw.sqlite").write_bytes(b"no database")

    assert key(of_home(tmp_path)) == ""
