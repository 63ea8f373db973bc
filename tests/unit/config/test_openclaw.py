"""What only a configuration of OpenClaw has: `memory.qmd`, and the blocks of 2026.9, used as they are."""

from pathlib import Path
from typing import Any

import pytest

from memline.producers.agent_view import chat_of, may_use_memory
from memline.shared.config.check import RawConfig, Warnings
from memline.shared.config.openclaw import read_qmd
from memline.shared.config.schema import ExtraPath
from memline.shared.errors import ConfigError
from tests.unit.config.conftest import Loader

STUB = {"stub": {"baseUrl": "http://127.0.0.1:9/v1", "apiKey": "sk-stub", "api": "openai-completions"}}


def layer(memory: dict[str, Any]) -> tuple[dict[str, Any], Warnings]:
    warnings = Warnings()
    raw = RawConfig(content={"memory": memory}, name="f", env={}, warnings=warnings)
    return read_qmd(raw), warnings


def test_without_the_qmd_backend_its_settings_mean_nothing() -> None:
    found, warnings = layer({"backend": "builtin", "qmd": {"paths": [{"path": "x"}]}})

    assert (found, warnings) == ({}, [])


def test_what_means_the_same_is_taken_over() -> None:
    found, _ = layer(
        {
            "backend": "qmd",
            "qmd": {
                "paths": [{"path": "~/notes", "name": "notes", "pattern": "*.md"}],
                "limits": {"maxResults": 9},
                "sessions": {"enabled": True},
                "update": {"interval": "90m"},
            },
        }
    )

    assert {path: each for path, each in found.items() if not path.startswith("memory.")} == {
        "provider": "none",
        "extraPaths": (ExtraPath(path="~/notes", pattern="*.md"),),
        "query.maxResults": 9,
        "experimental.sessionMemory": True,
        "sources": ("memory", "sessions"),
        "sync.intervalMinutes": 90,
    }


def test_its_own_settings_are_read_with_the_originals_durations() -> None:
    found, warnings = layer(
        {
            "backend": "qmd",
            "qmd": {
                "command": "'/opt/my qmd/qmd' --verbose",
                "searchMode": "search",
                "update": {"interval": 7, "embedInterval": "90s"},
                "limits": {"timeoutMs": 1},
            },
        }
    )

    assert {path.removeprefix("memory.qmd."): each for path, each in found.items()}.items() >= {
        ("command", "'/opt/my qmd/qmd' --verbose"),
        ("searchMode", "search"),
        ("update.interval", 7.0),
        ("update.embedInterval", 1.5),
        ("limits.timeoutMs", 1),
    }
    assert warnings == []


def test_a_key_that_is_not_known_is_named() -> None:
    _, warnings = layer({"backend": "qmd", "qmd": {"mcporter": {"enabled": True}}})

    assert warnings == ["f: memory.qmd.mcporter: unknown key, without effect"]


def test_a_misspelt_key_of_the_newest_form_is_named_with_the_one_to_write(read: Loader) -> None:
    search = {"provder": "none", "query": {"maxresult": 3}, "new": 1}

    warnings = read({"memory": {"search": search}}).warnings

    assert [warning.partition("memory.search.")[2] for warning in warnings] == [
        "provder: unknown key, without effect, write provider instead",
        "query.maxresult: unknown key, without effect, write maxResults instead",
        "new: unknown key, without effect",
    ]


def test_groups_do_not_use_memory_unless_a_scope_says_so() -> None:
    found, _ = layer({"backend": "qmd"})
    scope = found["memory.scope"]
    keys = (
        "",
        "agent:main:main",
        "agent:main:discord:group:1",
        "agent:main:x:channel:2",
        "agent:main:subagent:3",
    )

    assert [may_use_memory(scope, chat_of(key)) for key in keys] == [True, True, False, False, False]
    assert found["memory.maxInjectedChars"] == 4000


@pytest.mark.parametrize(
    ("interval", "minutes"), [("5m", 5), ("1h", 60), (7, 7), ("30s", 1), ("0m", 0), ("1d", 1440)]
)
def test_intervals_are_durations(interval: object, minutes: int) -> None:
    found, _ = layer({"backend": "qmd", "qmd": {"update": {"interval": interval}}})

    assert found["sync.intervalMinutes"] == minutes


@pytest.mark.parametrize(
    ("qmd", "place"),
    [
        ({"update": {"interval": "soon"}}, "f: memory.qmd.update.interval"),
        ({"limits": {"maxResults": "9"}}, "f: memory.qmd.limits.maxResults"),
        ({"paths": "x"}, "f: memory.qmd.paths"),
        ("x", "f: memory.qmd"),
        # What was meant to keep a chat out must not let it in because of a slip of the pen.
        ({"scope": {"default": "denny"}}, "f: memory.qmd.scope.default"),
    ],
)
def test_an_invalid_value_is_reported_with_its_place_in_qmd(qmd: object, place: str) -> None:
    with pytest.raises(ConfigError, match=f"^{place}: found"):
        layer({"backend": "qmd", "qmd": qmd})


def search(**keys: Any) -> dict[str, Any]:
    return {"memory": {"search": keys}, "models": {"providers": STUB}}


def test_memory_search_is_the_memory_search_of_all_agents(read: Loader) -> None:
    loaded = read(
        search(
            provider="openai",
            model="text-embedding-3-large",
            fallback="voyage",
            remote={"baseUrl": "http://127.0.0.1:9/v1", "apiKey": "sk-own", "batch": {"enabled": True}},
            sources=["memory", "sessions"],
            experimental={"sessionMemory": True},
            extraPaths=["../team", {"path": "/srv/x", "pattern": "*.md"}],
            query={"maxResults": 9, "minScore": 0.2},
            store={"vector": {"enabled": False}},
            cache={"enabled": False},
            outputDimensionality=256,
        ),
        workspace=Path("/"),
    )

    memory = loaded.agent().memory
    assert (memory.provider, memory.model, memory.fallback) == ("openai", "text-embedding-3-large", "voyage")
    assert (memory.remote.base_url, memory.remote.api_key) == ("http://127.0.0.1:9/v1", "sk-own")
    assert memory.remote.batch.enabled and memory.sources == ("memory", "sessions")
    assert memory.extra_paths == (ExtraPath(path="../team"), ExtraPath(path="/srv/x", pattern="*.md"))
    assert (memory.query.max_results, memory.query.min_score) == (9, 0.2)
    assert not memory.store.vector.enabled and not memory.cache.enabled
    assert memory.output_dimensionality == 256
    assert loaded.warnings == ()


def test_it_wins_over_the_old_places_and_an_agent_over_it(read: Loader) -> None:
    content = {
        "agents": {
            "defaults": {"workspace": "/w", "memorySearch": {"model": "old", "query": {"maxResults": 3}}},
            "entries": {"main": {}, "work": {"memory": {"search": {"model": "its", "extraPaths": ["b"]}}}},
        },
        "memory": {"search": {"model": "new", "extraPaths": ["a"]}},
    }

    agents = read(content).settings.agents

    assert {name: each.memory.model for name, each in agents.items()} == {"main": "new", "work": "its"}
    assert agents["main"].memory.query.max_results == 3
    assert [each.path for each in agents["work"].memory.extra_paths] == ["a", "b"]


@pytest.mark.parametrize(
    ("defaults", "entries", "default"),
    [
        ({}, {"b": {}, "a": {"default": True}}, "a"),
        ({"systemAgent": {"agentId": "a"}}, {"b": {}, "a": {}, "main": {}}, "a"),
        ({}, {"b": {}, "main": {}}, "main"),
        ({}, {"b": {}, "a": {}}, "b"),
    ],
)
def test_the_default_agent_is_the_one_that_owns_what_names_none(
    read: Loader, defaults: dict[str, Any], entries: dict[str, Any], default: str
) -> None:
    assert read({"agents": {"defaults": defaults, "entries": entries}}).settings.default_agent == default


def test_other_agents_have_their_workspace_below_the_common_one(read: Loader, home: Path) -> None:
    (home / ".openclaw/workspace").mkdir(parents=True)
    entries = {"main": {}, "work": {}, "lab": {"workspace": "/lab"}}

    named = read({"agents": {"defaults": {"workspace": "/w"}, "entries": entries}}).settings.agents
    usual = read({"agents": {"entries": entries}}).settings.agents

    assert {name: str(each.workspace) for name, each in named.items()} == {
        "main": "/w",
        "work": "/w/work",
        "lab": "/lab",
    }
    assert usual["work"].workspace == home / ".openclaw/workspace-work"


def test_what_has_no_effect_here_is_a_warning_and_not_refused(read: Loader) -> None:
    loaded = read(
        search(
            multimodal={"enabled": True, "modalities": ["image"]},
            inputType="x",
            store={"fts": {"tokenizer": "trigram"}, "new": 1},
            tomorrow=True,
            query={"minScore": 0.5},
        )
    )

    assert [warning.partition(": ")[2].partition(":")[0] for warning in loaded.warnings] == [
        "memory.search.multimodal",
        "memory.search.inputType",
        "memory.search.store.fts",
        "memory.search.store.new",
        "memory.search.tomorrow",
    ]


def test_a_wrong_value_is_named_with_its_place(read: Loader) -> None:

    with pytest.raises(ConfigError, match=r"memory\.search\.query\.maxResults: found"):
        read(search(query={"maxResults": "six"}))
    with pytest.raises(ConfigError, match=r"agents\.entries\.main: found"):
        read({"agents": {"entries": {"main": 7}}})


@pytest.mark.parametrize(
    ("provider", "env", "expected"),
    [
        ("stub", {}, ("openai", "http://127.0.0.1:9/v1", "sk-stub", "m")),
        ("lmstudio", {}, ("openai", "http://127.0.0.1:1234/v1", "none", "m")),
        (
            "deepinfra",
            {"DEEPINFRA_API_KEY": "dk"},
            ("openai", "https://api.deepinfra.com/v1/openai", "dk", "m"),
        ),
        ("bedrock", {}, ("none", "", "", "bedrock/m")),
    ],
)
def test_a_provider_of_openclaws_is_used_through_its_protocol_and_never_gets_openais_key(
    read: Loader, provider: str, env: dict[str, str], expected: tuple[str, ...], tmp_path: Path
) -> None:
    content = search(provider=provider, model=f"{provider}/m")

    loaded = read(content, {"OPENAI_API_KEY": "sk-secret", **env}, workspace=tmp_path)

    memory = loaded.agent().memory
    assert (memory.provider, memory.remote.base_url, memory.remote.api_key, memory.model) == expected
    assert any("cannot embed" in warning for warning in loaded.warnings) == (provider == "bedrock")


def test_a_reference_to_the_environment_is_the_variable(read: Loader, tmp_path: Path) -> None:
    key = {"source": "env", "provider": "default", "id": "MY_KEY"}
    content = search(provider="openai", remote={"baseUrl": "http://127.0.0.1:9/v1", "apiKey": key})
    content["models"] = {"providers": {"google": {"apiKey": key}, "voyage": {"apiKey": {"source": "exec"}}}}

    agent = read(content, {"MY_KEY": "k1"}, workspace=tmp_path).agent()

    assert agent.memory.remote.api_key == "k1"
    assert agent.providers["google"].api_key == "k1"
    assert agent.providers["voyage"].api_key == ""


def test_past_conversations_are_searched_when_the_file_says_so(read: Loader, tmp_path: Path) -> None:
    def sources(**keys: Any) -> tuple[str, ...]:
        return read(search(**keys), workspace=tmp_path).agent().memory.sources

    assert sources() == ("memory",)
    assert sources(rememberAcrossConversations=True) == ("memory", "sessions")
    assert sources(rememberAcrossConversations=False) == ("memory",)


@pytest.mark.parametrize(("written", "size"), [("2mb", 2 << 20), ("512 KB", 512 << 10), (7, 7), ("0", 0)])
def test_sizes_may_have_a_unit(read: Loader, tmp_path: Path, written: object, size: int) -> None:
    flush = {"memoryFlush": {"forceFlushTranscriptBytes": written}}

    loaded = read({"agents": {"defaults": {"compaction": flush}}}, workspace=tmp_path)

    assert loaded.agent().sessions.compaction.memory_flush.force_flush_transcript_bytes == size
