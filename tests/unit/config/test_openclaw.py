"""What only a configuration of OpenClaw has: `memory.qmd`, and the blocks of 2026.9, used as they are."""

from pathlib import Path

import pytest

from memline.producers.chats import chat_of, may_use_memory
from memline.shared.config.installation import ChatScope
from memline.shared.config.schema import ExtraPath
from tests.unit.config.conftest import memory

STUB = {"stub": {"baseUrl": "http://127.0.0.1:9/v1", "apiKey": "sk-stub", "api": "openai-completions"}}


def qmd(backend="qmd", **keys):
    return {"memory": {"backend": backend, "qmd": keys}}


def search(**keys):
    return {"memory": {"search": keys}, "models": {"providers": STUB}}


def test_the_backend_qmd_has_the_same_files_limits_and_sessions(read):
    keys = {
        "command": "'/opt/my qmd/qmd' --verbose",
        "paths": [{"path": "~/notes", "name": "notes", "pattern": "*.md"}],
        "limits": {"maxResults": 9, "maxInjectedChars": 900},
        "sessions": {"enabled": True},
        "update": {"interval": "90m", "embedInterval": "90s"},
    }

    agent = read({**memory(), **qmd(**keys)}).agent()

    own, update = agent.memory, agent.content.memory.qmd.update
    assert (own.provider, own.query.max_results, own.sync.interval_minutes) == ("none", 9, 90)
    assert (own.sources, own.experimental.session_memory) == (("memory", "sessions"), True)
    assert [(each.path[-6:], each.pattern) for each in own.extra_paths] == [("/notes", "*.md")]
    assert (agent.content.memory.backend, agent.content.memory.qmd.command) == ("qmd", keys["command"])
    assert (update.interval, update.embed_interval) == (90, 1.5)
    builtin = read({**memory(), **qmd("builtin", **keys)}).agent()
    assert (builtin.memory.extra_paths, builtin.content.memory.scope) == ((), None)
    stronger = read({**memory(query={"maxResults": 2}, extraPaths=["e"]), **qmd(**keys)}).agent().memory
    assert (stronger.query.max_results, len(stronger.extra_paths)) == (2, 2)


def test_with_qmd_groups_do_not_use_memory_unless_a_scope_says_so(read):
    scope = read({**memory(), **qmd()}).agent().content.memory.scope
    keys = (
        "",
        "agent:main:main",
        "agent:main:discord:group:1",
        "agent:main:x:channel:2",
        "agent:main:subagent:3",
    )

    assert [may_use_memory(scope, chat_of(key)) for key in keys] == [True, True, False, False, False]
    assert read({**memory(), **qmd(scope={"default": "deny"})}).agent().content.memory.scope == ChatScope(
        default="deny"
    )


def test_memory_search_wins_over_the_old_places_and_an_agent_over_it(read):
    its = {"model": "its", "extraPaths": ["b"]}
    content = {
        "agents": {
            "defaults": {"workspace": "/w", "memorySearch": {"model": "old", "query": {"maxResults": 3}}},
            "entries": {"main": {}, "work": {"memory": {"search": its}}},
        },
        "memory": {"search": {"model": "new", "extraPaths": ["a"], "cache": {"enabled": False}}},
    }

    agents = read(content).agents

    assert {name: each.memory.model for name, each in agents.items()} == {"main": "new", "work": "its"}
    assert agents["main"].memory.query.max_results == 3 and not agents["work"].memory.cache.enabled
    assert agents["work"].memory.extra_paths == (ExtraPath(path="a"), ExtraPath(path="b"))


@pytest.mark.parametrize(
    ("defaults", "entries", "default"),
    [
        ({}, {"b": {}, "a": {"default": True}}, "a"),
        ({"systemAgent": {"agentId": "a"}}, {"b": {}, "a": {}, "main": {}}, "a"),
        ({}, {"b": {}, "main": {}}, "main"),
        ({}, {"b": {}, "a": {}}, "b"),
    ],
)
def test_the_default_agent_is_the_one_that_owns_what_names_none(read, defaults, entries, default):
    assert read({"agents": {"defaults": defaults, "entries": entries}}).default_agent == default


def test_other_agents_have_their_workspace_below_the_common_one(read, home):
    (home / ".openclaw/workspace").mkdir(parents=True)
    entries = {"main": {}, "work": {}, "lab": {"workspace": "/lab"}}

    named = read({"agents": {"defaults": {"workspace": "/w"}, "entries": entries}}).agents
    usual = read({"agents": {"entries": entries}}).agents

    assert [str(named[each].workspace) for each in entries] == ["/w", "/w/work", "/lab"]
    assert usual["work"].workspace == home / ".openclaw/workspace-work"


@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        ("stub", ("openai", "http://127.0.0.1:9/v1", "sk-stub", "m")),
        ("lmstudio", ("openai", "http://127.0.0.1:1234/v1", "none", "m")),
        ("deepinfra", ("openai", "https://api.deepinfra.com/v1/openai", "dk", "m")),
        ("bedrock", ("none", "", "", "bedrock/m")),
    ],
)
def test_a_provider_of_openclaws_is_used_through_its_protocol_and_never_gets_openais_key(
    read, provider, expected
):
    content = search(provider=provider, model=f"{provider}/m")

    loaded = read(content, {"OPENAI_API_KEY": "sk-secret", "DEEPINFRA_API_KEY": "dk"}, workspace=Path("/"))

    own = loaded.agent().memory
    assert (own.provider, own.remote.base_url, own.remote.api_key, own.model) == expected
    assert any("cannot embed" in warning for warning in loaded.warnings) == (provider == "bedrock")


def test_a_reference_to_the_environment_is_the_variable(read):
    key = {"source": "env", "provider": "default", "id": "MY_KEY"}
    content = search(provider="openai", remote={"baseUrl": "http://127.0.0.1:9/v1", "apiKey": key})
    content["models"] = {"providers": {"google": {"apiKey": key}, "voyage": {"apiKey": {"source": "exec"}}}}

    agent = read(content, {"MY_KEY": "k1"}, workspace=Path("/")).agent()
    providers = agent.content.models.providers

    assert agent.memory.remote.api_key == providers["google"].api_key == "k1"
    assert providers["voyage"].api_key == ""


@pytest.mark.parametrize(
    ("keys", "sources"),
    [
        ({}, ("memory",)),
        ({"rememberAcrossConversations": True}, ("memory", "sessions")),
        ({"rememberAcrossConversations": False}, ("memory",)),
    ],
)
def test_past_conversations_are_searched_when_the_file_says_so(read, keys, sources):
    assert read(search(**keys), workspace=Path("/")).agent().memory.sources == sources
