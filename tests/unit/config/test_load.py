import re
from pathlib import Path

import pytest

from memline.shared.config.installation import ChatMatch, ChatRule, ChatScope, Serve, Token
from memline.shared.config.load import Options, load
from memline.shared.config.schema import ExtraPath
from memline.shared.config.show import shown
from memline.shared.errors import ConfigError
from tests.unit.config.conftest import Loader, memory

# -- places ---------------------------------------------------------------------------------------


def test_without_anything_every_key_has_its_default(read: Loader, home: Path) -> None:
    loaded = read()

    assert list(loaded.settings.agents) == ["main"]
    assert loaded.settings.default_agent == "main"
    assert loaded.settings.home == home / ".local/share/memline"
    assert loaded.settings.queue.url == ""
    assert loaded.settings.path is None


def test_a_missing_workspace_is_an_error_only_for_commands_that_need_it(read: Loader) -> None:
    loaded = read()

    with pytest.raises(ConfigError) as caught:
        loaded.agent()

    assert "memline --workspace DIR" in caught.value.hint
    with pytest.raises(ConfigError):
        loaded.settings.agents["main"]


def test_the_usual_workspace_is_taken_when_it_exists(read: Loader, home: Path) -> None:
    (home / ".openclaw" / "workspace").mkdir(parents=True)

    assert read().agent().workspace == home / ".openclaw" / "workspace"


def test_the_workspace_is_option_then_variable_then_file(read: Loader, tmp_path: Path) -> None:
    by_option, by_variable = tmp_path / "option", tmp_path / "variable"
    by_option.mkdir()
    by_variable.mkdir()
    env = {"MEMLINE_WORKSPACE": str(by_variable)}

    assert read(memory(), env, workspace=by_option).agent().workspace == by_option
    assert read(memory(), env).agent().workspace == by_variable
    assert read(memory()).agent().workspace == Path("/w")


@pytest.mark.parametrize(
    "text",
    [
        '{"agents": {"defaults": {"workspace": "/a"}}, "serve": {}, "agents": {}}',
        "// as two snippets of a page\nagents: { defaults: { workspace: '/a' } },\nserve: {},\nagents: {},",
    ],
)
def test_a_key_that_is_there_twice_is_told(home: Path, tmp_path: Path, text: str) -> None:
    file = tmp_path / "c.json5"
    file.write_text(text)

    loaded = load(Options(config=file), {"HOME": str(home)})

    assert loaded.warnings == (f"{file}: agents is there twice in one object, the last one counts",)


def test_a_workspace_named_by_hand_has_to_exist(read: Loader, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such folder \\(named by --workspace\\)"):
        read(workspace=tmp_path / "nowhere").agent()


def test_a_workspace_that_is_nowhere_is_not_made(read: Loader, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        read(workspace=tmp_path / "no" / "where").agent()

    assert "mkdir" not in raised.value.hint
    assert "--workspace DIR" in raised.value.hint


def test_a_workspace_of_the_file_expands_home_and_begins_at_the_file(
    read: Loader, home: Path, tmp_path: Path
) -> None:
    expanded = read({"agents": {"defaults": {"workspace": "~/notes"}}}).agent()
    relative = read({"agents": {"defaults": {"workspace": "../notes"}}}).agent()

    assert expanded.workspace == home / "notes"
    assert relative.workspace == tmp_path.parent / "notes"


def test_home_is_option_then_variable_then_xdg(read: Loader, home: Path) -> None:
    env = {"MEMLINE_HOME": "~/m", "XDG_DATA_HOME": "/data"}

    assert read(None, env, home=Path("/o")).settings.home == Path("/o")
    assert read(None, env).settings.home == home / "m"
    assert read(None, {"XDG_DATA_HOME": "/data"}).settings.home == Path("/data/memline")


def test_the_state_directory_can_be_moved(read: Loader, home: Path) -> None:
    assert read(memory()).agent().state_dir == home / ".openclaw"
    assert read(memory(), {"OPENCLAW_STATE_DIR": "/s"}).agent().state_dir == Path("/s")


# -- layers ---------------------------------------------------------------------------------------


def test_an_agent_overrides_the_defaults_and_those_the_old_place(read: Loader, home: Path) -> None:
    loaded = read(
        {
            "memorySearch": {"query": {"maxResults": 3}, "model": "old", "extraPaths": ["a"]},
            "agents": {
                "defaults": {
                    "workspace": "/w",
                    "memorySearch": {"query": {"maxResults": 4}, "extraPaths": ["~/b", "a"]},
                },
                "list": [
                    {"id": "main"},
                    {"id": "work", "memorySearch": {"query": {"maxResults": 5}, "extraPaths": ["c"]}},
                ],
            },
        }
    )

    main, work = loaded.agents()
    assert (main.memory.query.max_results, work.memory.query.max_results) == (4, 5)
    assert main.memory.model == work.memory.model == "old"
    assert [entry.path for entry in main.memory.extra_paths] == ["a", f"{home}/b"]
    assert [entry.path for entry in work.memory.extra_paths] == ["a", f"{home}/b", "c"]


def test_doubles_among_extra_paths_are_found_after_expanding(read: Loader, home: Path) -> None:
    loaded = read(memory(extraPaths=["~/n", f"{home}/n"]))

    assert loaded.agent().memory.extra_paths == (ExtraPath(path=f"{home}/n"),)


def test_each_agent_is_settled_by_itself(read: Loader) -> None:
    loaded = read(
        {
            "agents": {
                "defaults": {"workspace": "/w", "memorySearch": {"sources": ["memory", "sessions"]}},
                "list": [{"id": "a", "memorySearch": {"experimental": {"sessionMemory": True}}}, {"id": "b"}],
            }
        }
    )

    assert loaded.agent("a").memory.sources == ("memory", "sessions")
    assert loaded.agent("b").memory.sources == ("memory",)


def test_settings_of_the_other_backend_are_the_weakest_layer(read: Loader) -> None:
    qmd = {"backend": "qmd", "qmd": {"limits": {"maxResults": 9}, "paths": [{"path": "q"}]}}

    assert read({**memory(), "memory": qmd}).agent().memory.query.max_results == 9
    stronger = read({**memory(query={"maxResults": 2}, extraPaths=["e"]), "memory": qmd}).agent()
    assert stronger.memory.query.max_results == 2
    assert [entry.path for entry in stronger.memory.extra_paths] == ["q", "e"]


def test_citations_are_read(read: Loader) -> None:
    assert read(memory()).agent().citations == "auto"
    assert read({**memory(), "memory": {"citations": "off"}}).agent().citations == "off"


# -- keys and addresses ---------------------------------------------------------------------------


def test_keys_of_the_environment_are_kept_by_provider(read: Loader) -> None:
    env = {"OPENAI_API_KEY": "o", "GOOGLE_API_KEY": "g", "VOYAGE_API_KEY": " "}

    assert read(memory(), env).agent().environment_keys == {"openai": "o", "gemini": "g"}
    env["GEMINI_API_KEY"] = "first"
    assert read(memory(), env).agent().environment_keys["gemini"] == "first"


def test_references_in_keys_headers_and_addresses_are_replaced(read: Loader) -> None:
    remote = {"apiKey": "${K}", "headers": {"X": "a ${K} b", "Y": "$${K}"}, "baseUrl": "http://${H}:1/v1"}

    agent = read(memory(remote=remote), {"K": "key", "H": "host"}).agent()

    assert agent.memory.remote.api_key == "key"
    assert agent.memory.remote.headers == {"X": "a key b", "Y": "${K}"}
    assert agent.memory.remote.base_url == "http://host:1/v1"


@pytest.mark.parametrize("wrong", ["nonsense", "ftp://h/v1", "http://", "http://:80/v1", "127.0.0.1:80/v1"])
def test_an_address_that_leads_nowhere_is_a_warning(read: Loader, wrong: str) -> None:
    places = {
        "agents": {
            "defaults": {
                "memorySearch": {"remote": {"baseUrl": wrong}},
                "compaction": {"memoryFlush": {"baseUrl": wrong}},
            }
        },
        "models": {"providers": {"openai": {"baseUrl": wrong}}},
    }

    warnings = read(places).warnings

    assert [each.partition(": ")[2] for each in sorted(warnings)] == [
        f"{place}: not the address of a server, such as http://127.0.0.1:11434/v1"
        for place in (
            "agents.defaults.compaction.memoryFlush.baseUrl",
            "memorySearch.remote.baseUrl",
            "models.providers.openai.baseUrl",
        )
    ]
    assert read(memory(remote={"baseUrl": "HTTPS://u:p@h:1/v1?key=${K}"}), {"K": "k"}).warnings == ()


def test_the_name_of_a_key_variable_means_its_value(read: Loader) -> None:
    agent = read(memory(remote={"apiKey": "GEMINI_API_KEY"}), {"GEMINI_API_KEY": "g"}).agent()

    assert agent.memory.remote.api_key == "g"


def test_a_reference_to_nothing_is_an_error_that_names_the_variable(read: Loader) -> None:
    with pytest.raises(ConfigError) as caught:
        read(memory(remote={"apiKey": "${NOT_THERE}"}))

    assert "NOT_THERE" in caught.value.message
    assert "remote.apiKey" in caught.value.message


def test_an_overridden_reference_to_nothing_is_accepted(read: Loader) -> None:
    content = memory(remote={"apiKey": "${NOT_THERE}"})
    content["agents"]["list"] = [{"id": "main", "memorySearch": {"remote": {"apiKey": "k"}}}]

    assert read(content).agent().memory.remote.api_key == "k"


def test_providers_give_address_key_and_headers_and_nothing_else(read: Loader) -> None:
    content = memory()
    content["models"] = {
        "providers": {
            "openai": {"baseUrl": "http://h", "apiKey": "${K}", "headers": {"a": "b"}, "models": [1]},
            "voyage": {"apiKey": "${NOT_THERE}"},
            "anthropic": {"apiKey": "${NOT_THERE_EITHER}", "baseUrl": 5},
        }
    }

    loaded = read(content, {"K": "key"})

    openai = loaded.agent().providers["openai"]
    assert (openai.base_url, openai.api_key, openai.headers) == ("http://h", "key", {"a": "b"})
    assert loaded.agent().providers["voyage"].api_key == ""
    assert [warning for warning in loaded.warnings if "NOT_THERE" in warning] == [
        f"{loaded.settings.path}: models.providers.voyage.apiKey: without effect, "
        "the variable NOT_THERE is not set"
    ]


def test_the_queue_is_variable_then_file(read: Loader) -> None:
    content = {"queue": {"url": "redis://${R}/1"}}

    assert read(content, {"R": "r"}).settings.queue.url == "redis://r/1"
    assert read(content, {"R": "r", "MEMLINE_QUEUE_URL": "rediss://v"}).settings.queue.url == "rediss://v"


def test_a_fleet_is_named_after_host_and_home_unless_a_name_is_given(read: Loader) -> None:
    url = {"MEMLINE_QUEUE_URL": "redis://h/0"}
    here, there = (read(None, {**url, "MEMLINE_HOME": home}).settings.queue for home in ("/a", "/b"))

    assert re.fullmatch("[0-9a-f]{12}", here.name) and here.name != there.name
    assert here.address == f"redis://h/0#{here.name}"
    named = read({"queue": {"name": "file"}}, {**url, "MEMLINE_QUEUE_NAME": "team"}).settings.queue
    assert named.address == "redis://h/0#team"
    assert (read(None).settings.queue.name, read(None).settings.queue.address) == ("", "")
    with pytest.raises(ConfigError, match="MEMLINE_QUEUE_NAME: not a valid name"):
        read(None, {**url, "MEMLINE_QUEUE_NAME": "a:b"})


# -- what is wrong: see test_problems.py -----------------------------------------------------------


def test_unknown_keys_elsewhere_are_ignored(read: Loader) -> None:
    content = {
        "channels": {"whatsapp": {}},
        "agents": {"defaults": {"workspace": "/w", "model": {"primary": "x"}}, "list": [{"id": "a", "x": 1}]},
        "memory": {"x": 1},
    }

    assert read(content).agent().workspace == Path("/w")


def test_no_secret_is_in_what_a_configuration_prints(read: Loader) -> None:
    content = memory(remote={"apiKey": "hush", "headers": {"X": "hush"}})
    content["models"] = {"providers": {"openai": {"apiKey": "hush"}}}
    loaded = read(content, {"OPENAI_API_KEY": "hush", "MEMLINE_QUEUE_URL": "redis://:hush@h"})

    text = repr(loaded) + repr(loaded.settings) + repr(loaded.agents()) + repr(loaded.context)

    assert "hush" not in text


# -- chats, servers, prices, sessions --------------------------------------------------------------


def test_without_these_keys_every_chat_sees_everything_and_loopback_is_served(read: Loader) -> None:
    loaded = read(memory())

    agent, sessions = loaded.agent(), loaded.agent().sessions
    assert (agent.scope, agent.max_injected_chars) == (None, 0)
    assert loaded.settings.serve == Serve()
    assert Serve().host == "127.0.0.1"
    assert (sessions.context_tokens, sessions.compaction.reserve_tokens_floor) == (200_000, 20_000)
    assert sessions.compaction.memory_flush.soft_threshold_tokens == 4_000
    assert sessions.compaction.memory_flush.enabled


def test_a_scope_has_the_form_of_a_send_policy(read: Loader) -> None:
    rules = [
        {"action": "allow", "match": {"channel": "Discord", "chatType": "dm"}},
        {"action": "deny", "match": {"rawKeyPrefix": "agent:main:telegram"}},
        {"action": "deny"},
    ]

    loaded = read({**memory(), "memory": {"scope": {"default": "deny", "rules": rules}}})

    assert loaded.agent().scope == ChatScope(
        default="deny",
        rules=(
            ChatRule(action="allow", match=ChatMatch(channel="discord", chat_type="direct")),
            ChatRule(action="deny", match=ChatMatch(raw_key_prefix="agent:main:telegram")),
            ChatRule(action="deny"),
        ),
    )


def test_the_settings_of_qmd_count_with_its_backend_and_yield_to_those_of_memory(read: Loader) -> None:
    qmd = {"limits": {"maxInjectedChars": 900}, "scope": {"default": "deny"}}

    without, taken, yielding = (
        read({**memory(), "memory": {"qmd": qmd, **more}})
        for more in ({}, {"backend": "qmd"}, {"backend": "qmd", "maxInjectedChars": 7})
    )

    assert without.agent().max_injected_chars == 0
    assert (taken.agent().max_injected_chars, taken.agent().scope) == (900, ChatScope(default="deny"))
    assert not [text for text in taken.warnings if "without effect" in text]
    assert yielding.agent().max_injected_chars == 7


@pytest.mark.parametrize(
    ("written", "host"),
    [
        ("Notes.Example", "notes.example"),
        ("https://notes.example/", "notes.example"),
        ("notes.example:8443", "notes.example"),
        ("127.0.0.1:80", "127.0.0.1"),
        ("::1", "::1"),
        ("fe80::1:2", "fe80::1:2"),
        ("[fe80::1]:8443", "fe80::1"),
    ],
)
def test_a_host_is_taken_without_scheme_and_port(read: Loader, written: str, host: str) -> None:
    assert read({"serve": {"allowedHosts": [written]}}).settings.serve.allowed_hosts == (host,)


def test_tokens_may_come_from_variables_and_files_and_are_never_shown(read: Loader, tmp_path: Path) -> None:
    serve = {"token": "${TOKEN}", "tokens": {"main": "for-main-only"}, "allowedHosts": ["notes.example"]}
    (tmp_path / "token").write_text("of-the-secret\n")

    loaded = read({"serve": serve}, {"TOKEN": "from-the-environment"})
    by_variable = read({"serve": serve}, {"TOKEN": "x" * 8, "MEMLINE_SERVE_TOKEN": "of-the-variable"})
    by_file = read({"serve": {}}, {"MEMLINE_SERVE_TOKEN_FILE": str(tmp_path / "token")})

    of_main = Token(name="tokens.main", token="for-main-only", agent="main")
    assert loaded.settings.serve == Serve(
        token="from-the-environment", tokens=(of_main,), allowed_hosts=("notes.example",)
    )
    serve = shown(loaded)["serve"]
    assert serve["token"] == "(set)"
    (entry,) = serve["tokens"]
    assert entry == {"name": "tokens.main", "token": "(set)", "agent": "main"}
    assert "for-main-only" not in repr(loaded.settings.serve)
    assert by_variable.settings.serve.token == "of-the-variable"
    assert by_file.settings.serve.token == "of-the-secret"


def test_prices_are_read_by_model(read: Loader) -> None:
    prices = {"m": {"perMillion": 0.01, "asOf": "2026-11-01"}, "openai/n": {"perMillion": 2}}

    loaded = read({**memory(), "prices": prices})

    assert loaded.settings.prices == shown(loaded)["prices"] == prices


def test_keys_of_sessions_are_read_and_the_originals_other_keys_left_alone(read: Loader) -> None:
    flush = {"softThresholdTokens": 100, "model": "local/qwen"}
    secrets = {"apiKey": "${CHAT_KEY}"}
    content = memory()
    content["agents"]["defaults"] |= {
        "compaction": {"mode": "safeguard", "reserveTokensFloor": 30000, "memoryFlush": {**flush, **secrets}},
        "contextTokens": 32768,
        "userTimezone": "Europe/Berlin",
    }
    content["models"] = {"providers": {"local": {"models": [{"id": "qwen", "contextWindow": 16384}, 5]}}}

    loaded = read(content, {"CHAT_KEY": "sk-hush"})

    sessions = loaded.agent().sessions
    assert loaded.warnings == ()
    assert sessions.compaction.reserve_tokens_floor == 30_000
    assert sessions.compaction.memory_flush.api_key == "sk-hush"
    assert (sessions.context_tokens, sessions.user_timezone) == (32_768, "Europe/Berlin")
    assert sessions.context_windows == {"local/qwen": 16_384, "qwen": 16_384}
    text = str(shown(loaded))
    assert "hush" not in text and "memoryFlush" in text
