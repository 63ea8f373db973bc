from __future__ import annotations

from typing import Any

import pytest

from memline.shared.config.check import Issues, RawConfig
from memline.shared.config.openclaw import read_qmd
from memline.shared.search.agent_view import chat_of, may_use_memory
from memline.shared.values import astuple


def layer(memory: dict[str, Any]) -> tuple[dict[str, Any], Issues]:
    issues = Issues()
    raw = RawConfig(content={"memory": memory}, name="f", env={}, issues=issues)
    return dict(read_qmd(raw)), issues


def test_without_the_qmd_backend_its_settings_mean_nothing() -> None:
    found, issues = layer({"backend": "builtin", "qmd": {"paths": [{"path": "x"}]}})

    assert (found, issues.problems, issues.warnings) == ({}, [], [])


def test_what_means_the_same_is_taken_over() -> None:
    found, issues = layer(
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

    assert {path: astuple(each) for path, each in found.items() if not path.startswith("memory.")} == {
        "provider": ("none", "f: memory.backend"),
        "extraPaths": ((("~/notes", "*.md"),), "f: memory.qmd.paths"),
        "query.maxResults": (9, "f: memory.qmd.limits.maxResults"),
        "experimental.sessionMemory": (True, "f: memory.qmd.sessions.enabled"),
        "sources": (("memory", "sessions"), "f: memory.qmd.sessions.enabled"),
        "sync.intervalMinutes": (90, "f: memory.qmd.update.interval"),
    }
    assert not issues.problems


def test_its_own_settings_are_read_with_the_originals_durations() -> None:
    found, issues = layer(
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

    assert {path.removeprefix("memory.qmd."): each.value for path, each in found.items()}.items() >= {
        ("command", "'/opt/my qmd/qmd' --verbose"),
        ("searchMode", "search"),
        ("update.interval", 7.0),
        ("update.embedInterval", 1.5),
        ("limits.timeoutMs", 1),
    }
    assert (issues.problems, issues.warnings) == ([], [])


def test_a_key_that_is_not_known_is_named() -> None:
    _, issues = layer({"backend": "qmd", "qmd": {"mcporter": {"enabled": True}}})

    assert issues.warnings == ["f: memory.qmd.mcporter: unknown key, without effect"]


def test_groups_do_not_use_memory_unless_a_scope_says_so() -> None:
    found, _ = layer({"backend": "qmd"})
    scope = found["memory.scope"].value
    keys = (
        "",
        "agent:main:main",
        "agent:main:discord:group:1",
        "agent:main:x:channel:2",
        "agent:main:subagent:3",
    )

    assert [may_use_memory(scope, chat_of(key)) for key in keys] == [True, True, False, False, False]
    assert found["memory.maxInjectedChars"].value == 4000


def test_a_scope_that_is_wrong_lets_no_chat_in() -> None:
    found, issues = layer({"backend": "qmd", "qmd": {"scope": {"default": "denny"}}})

    assert issues.problems and not may_use_memory(found["memory.scope"].value, chat_of(""))


@pytest.mark.parametrize(
    ("interval", "minutes"), [("5m", 5), ("1h", 60), (7, 7), ("30s", 1), ("0m", 0), ("1d", 1440)]
)
def test_intervals_are_durations(interval: object, minutes: int) -> None:
    found, _ = layer({"backend": "qmd", "qmd": {"update": {"interval": interval}}})

    assert found["sync.intervalMinutes"].value == minutes


@pytest.mark.parametrize(
    ("qmd", "place"),
    [
        ({"update": {"interval": "soon"}}, "f: memory.qmd.update.interval"),
        ({"limits": {"maxResults": "9"}}, "f: memory.qmd.limits.maxResults"),
        ({"paths": "x"}, "f: memory.qmd.paths"),
        ("x", "f: memory.qmd"),
    ],
)
def test_an_invalid_value_is_reported_with_its_place_in_qmd(qmd: object, place: str) -> None:
    _, issues = layer({"backend": "qmd", "qmd": qmd})

    assert issues.problems[0].message.startswith(f"{place}: found")
