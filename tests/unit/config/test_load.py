"""What a configuration file means: layers, places, keys and secrets."""

import re
from pathlib import Path

import pytest

from memline.producers.cli.config import shown
from memline.shared.config.installation import (
    QueueAddress,
    Serve,
    mask_url,
)
from memline.shared.errors import ConfigError
from tests.unit.config.conftest import memory

# -- places ----------------------------------------------------------------------------------------


def test_without_a_file_a_workspace_is_needed_only_where_notes_are(read, home):
    loaded = read()

    assert (list(loaded.agents), loaded.default_agent) == (["main"], "main")
    assert loaded.home == home / ".local/share/memline"
    assert (loaded.path, loaded.serve) == (None, Serve())
    with pytest.raises(ConfigError) as caught:
        loaded.agent()
    assert "memline --workspace DIR" in caught.value.hint
    (main,) = shown(loaded)["agents"]
    assert main["workspaceOrigin"] == "no workspace is configured, and no folder here has an index"


def test_the_workspace_is_option_then_variable_then_file_then_the_usual_one(read, home, tmp_path):
    by_option, by_variable = tmp_path / "option", tmp_path / "variable"
    by_option.mkdir()
    by_variable.mkdir()
    (home / ".openclaw" / "workspace").mkdir(parents=True)
    env = {"MEMLINE_WORKSPACE": str(by_variable)}

    assert read(memory(), env, workspace=by_option).agent().workspace == by_option
    assert read(memory(), env).agent().workspace == by_variable
    assert read(memory()).agent().workspace == Path("/w")
    assert read().agent().workspace == home / ".openclaw" / "workspace"


def test_home_and_state_are_option_then_variable_then_the_usual_place(read, home):
    env = {"MEMLINE_HOME": "~/m", "XDG_DATA_HOME": "/data"}

    assert read(None, env, home=Path("/o")).home == Path("/o")
    assert read(None, env).home == home / "m"
    assert read(None, {"XDG_DATA_HOME": "/data"}).home == Path("/data/memline")
    assert read(memory()).agent().state_dir == home / ".openclaw"
    assert read(memory(), {"OPENCLAW_STATE_DIR": "/s"}).agent().state_dir == Path("/s")


# -- layers ----------------------------------------------------------------------------------------


def test_sessions_need_the_permission_of_each_agent(read):
    defaults = {"workspace": "/w", "memorySearch": {"sources": ["memory", "sessions"]}}
    own = {"experimental": {"sessionMemory": True}}
    loaded = read({"agents": {"defaults": defaults, "list": [{"id": "a", "memorySearch": own}, {"id": "b"}]}})

    assert loaded.agent("a").memory.sources == ("memory", "sessions")
    assert loaded.agent("b").memory.sources == ("memory",)
    assert "experimental.sessionMemory" in loaded.warnings[0]
    assert read(memory(sources=["sessions"])).agent().memory.sources == ("memory",)


@pytest.mark.parametrize(
    ("weights", "scaled"),
    [
        ({"vectorWeight": 0.6, "textWeight": 0.2}, (0.75, 0.25)),
        ({"vectorWeight": 0.0}, (0.0, 1.0)),
        ({"vectorWeight": 1}, (2 / 3, 1 / 3)),
        ({"vectorWeight": 0, "textWeight": 0}, (0.5, 0.5)),
        ({}, (0.5, 0.5)),
    ],
)
def test_the_weights_are_scaled_to_a_sum_of_one(read, weights, scaled):
    hybrid = read(memory(query={"hybrid": weights})).agent().memory.query.hybrid

    assert (hybrid.vector_weight, hybrid.text_weight) == pytest.approx(scaled)


def test_the_overlap_stays_below_the_size_of_a_chunk(read):
    loaded = read(memory(chunking={"tokens": 50.0}))

    assert loaded.agent().memory.chunking.overlap == 49


# -- keys, addresses and secrets -------------------------------------------------------------------


def test_keys_of_the_environment_are_kept_by_provider(read):
    env = {"OPENAI_API_KEY": "o", "GOOGLE_API_KEY": "g", "VOYAGE_API_KEY": " "}

    assert read(memory(), env).agent().environment_keys == {"openai": "o", "gemini": "g"}
    env["GEMINI_API_KEY"] = "first"
    assert read(memory(), env).agent().environment_keys["gemini"] == "first"


def test_references_in_keys_headers_and_addresses_are_replaced(read):
    remote = {"apiKey": "${K}", "headers": {"X": "a ${K} b", "Y": "$${K}"}, "baseUrl": "http://${H}:1/v1"}

    used = read(memory(remote=remote), {"K": "key", "H": "host"}).agent().memory.remote

    assert (used.api_key, used.base_url) == ("key", "http://host:1/v1")
    assert used.headers == {"X": "a key b", "Y": "${K}"}
    named = read(memory(remote={"apiKey": "GEMINI_API_KEY"}), {"GEMINI_API_KEY": "g"}).agent()
    assert named.memory.remote.api_key == "g"


def test_providers_give_address_key_and_headers_and_nothing_else(read):
    content = memory()
    content["models"] = {
        "providers": {
            "openai": {"baseUrl": "http://h", "apiKey": "${K}", "headers": {"a": "b"}, "models": [1]},
            "voyage": {"apiKey": "${NOT_THERE}"},
            "anthropic": {"apiKey": "${NOT_THERE_EITHER}", "baseUrl": 5},
        }
    }

    loaded = read(content, {"K": "key"})

    providers = loaded.agent().content.models.providers
    openai = providers["openai"]
    assert (openai.base_url, openai.api_key, openai.headers) == ("http://h", "key", {"a": "b"})
    assert providers["voyage"].api_key == ""
    assert [warning.partition(": ")[2] for warning in loaded.warnings] == [
        "models.providers.voyage.apiKey: without effect, the variable NOT_THERE is not set"
    ]


@pytest.mark.parametrize(
    ("env", "url", "token"),
    [
        ({}, "redis://r/1", "of-the-file"),
        ({"MEMLINE_QUEUE_URL": "rediss://v", "MEMLINE_SERVE_TOKEN": "x" * 8}, "rediss://v", "x" * 8),
        ({"MEMLINE_SERVE_TOKEN_FILE": "token"}, "redis://r/1", "of-the-secret"),
    ],
)
def test_the_queue_and_the_token_are_variable_then_file(read, tmp_path, monkeypatch, env, url, token):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token").write_text("of-the-secret\n")
    file = {
        "queue": {"url": "redis://${R}/1"},
        "serve": {"token": "${TOKEN}", "tokens": {"main": "for-main"}},
    }

    settings = read(file, {"R": "r", "TOKEN": "of-the-file", **env})

    assert (settings.queue.url, settings.serve.token) == (url, token)
    assert settings.serve.tokens == {"main": "for-main"}


def test_a_fleet_is_named_after_host_and_home_unless_a_name_is_set(read):
    url = {"MEMLINE_QUEUE_URL": "redis://h/0"}
    here, there = (read(None, {**url, "MEMLINE_HOME": home}).queue for home in ("/a", "/b"))

    assert re.fullmatch("[0-9a-f]{12}", here.name) and here.name != there.name
    named = read({"queue": {"name": "file"}}, {**url, "MEMLINE_QUEUE_NAME": "team"}).queue
    assert named == QueueAddress("redis://h/0", "team")
    assert not read(None).queue


def test_no_secret_is_in_what_a_configuration_prints(read):
    content = memory(remote={"apiKey": "hush", "headers": {"X": "hush"}, "baseUrl": "http://me:hush@h/v1"})
    content["agents"]["defaults"]["compaction"] = {"memoryFlush": {"apiKey": "hush"}}
    content["models"] = {"providers": {"openai": {"apiKey": "hush"}}}
    content["serve"] = {"token": "hush-hush", "tokens": {"main": "hush-main"}}
    loaded = read(content, {"OPENAI_API_KEY": "hush", "MEMLINE_QUEUE_URL": "redis://:hush@h"})

    answer = shown(loaded)
    text = repr(loaded) + repr(loaded.agents) + repr(loaded.chosen_agents()) + repr(answer)

    assert "hush" not in text
    assert answer["serve"]["token"] == "(set)" and answer["serve"]["tokens"] == {"main": "(set)"}
    assert answer["queue"]["url"] == "redis://***@h"


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("redis://h:6379/0", "redis://h:6379/0"),
        ("redis://user:p/w@h", "redis://***@h"),
        ("https://h/v1?key=abc&x=1", "https://h/v1?key=***&x=***"),
        ("user:pw@h", "***@h"),
        ("", ""),
    ],
)
def test_a_url_is_shown_without_its_password(url, masked):
    assert mask_url(url) == masked


# -- chats, servers, prices, sessions --------------------------------------------------------------
