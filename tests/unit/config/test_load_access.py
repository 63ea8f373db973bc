"""`serve`, `memory.scope` and `memory.maxInjectedChars`: what is read, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memline.shared.config.load import Loaded, Options, examine
from memline.shared.config.schema import ChatMatch, ChatRule, ChatScope, Serve
from memline.shared.config.show import shown_for_all

Reader = Callable[..., Loaded]


@pytest.fixture
def read(home: Path, tmp_path: Path) -> Reader:
    def read(content: dict[str, Any], **env: str) -> Loaded:
        (tmp_path / "c.json5").write_text(json.dumps(content))
        return examine(Options(config=tmp_path / "c.json5"), {"HOME": str(home), **env})

    return read


def problems(loaded: Loaded) -> str:
    return "; ".join(f"{one.message} ({one.hint})" for one in loaded.problems)


def agent(loaded: Loaded) -> Any:
    return loaded.settings.agents["main"]


def memory(**keys: Any) -> dict[str, Any]:
    return {"agents": {"defaults": {"workspace": "/w"}}, "memory": keys}


def test_without_these_keys_every_chat_sees_everything_and_loopback_is_served(read: Reader) -> None:
    loaded = read(memory())

    assert (agent(loaded).scope, agent(loaded).max_injected_chars) == (None, 0)
    assert loaded.settings.serve == Serve()
    assert Serve().host == "127.0.0.1"


def test_a_scope_has_the_form_of_a_send_policy(read: Reader) -> None:
    rules = [
        {"action": "allow", "match": {"channel": "Discord", "chatType": "dm"}},
        {"action": "deny", "match": {"rawKeyPrefix": "agent:main:telegram"}},
        {"action": "deny"},
    ]

    loaded = read(memory(scope={"default": "deny", "rules": rules}))

    assert not loaded.problems
    assert agent(loaded).scope == ChatScope(
        default="deny",
        rules=(
            ChatRule(action="allow", match=ChatMatch(channel="discord", chat_type="direct")),
            ChatRule(action="deny", match=ChatMatch(raw_key_prefix="agent:main:telegram")),
            ChatRule(action="deny"),
        ),
    )


def test_the_settings_of_qmd_count_with_its_backend_and_yield_to_those_of_memory(read: Reader) -> None:
    qmd = {"limits": {"maxInjectedChars": 900}, "scope": {"default": "deny"}}

    assert agent(read(memory(qmd=qmd))).max_injected_chars == 0
    taken = read(memory(qmd=qmd, backend="qmd"))
    assert (agent(taken).max_injected_chars, agent(taken).scope) == (900, ChatScope(default="deny"))
    assert not [text for text in taken.warnings if "without effect" in text]
    assert agent(read(memory(qmd=qmd, backend="qmd", maxInjectedChars=7))).max_injected_chars == 7


@pytest.mark.parametrize(
    ("scope", "said"),
    [
        ("deny", "allowed: an object"),
        ({"default": "no"}, "allowed: allow, deny"),
        ({"rule": []}, "did you mean rules?"),
        ({"rules": {}}, "allowed: an array"),
        ({"rules": [{"match": {}}]}, "scope.rules[0]: action is missing"),
        ({"rules": [{"action": "allow", "match": {"chattype": "direct"}}]}, "did you mean chatType?"),
        ({"rules": [{"action": "allow", "match": {"chatType": "party"}}]}, "direct, group, channel"),
        ({"rules": [{"action": "allow", "match": {"channel": 7}}]}, "allowed: text"),
        ({"rules": ["allow"]}, "scope.rules[0]: found a text, allowed: an object"),
    ],
)
def test_a_scope_that_is_not_understood_is_a_problem(read: Reader, scope: Any, said: str) -> None:
    loaded = read(memory(scope=scope))

    assert said in problems(loaded)
    assert agent(loaded).scope == ChatScope(default="deny")


@pytest.mark.parametrize("limit", [-1, "many", True, 1.5])
def test_a_budget_is_a_whole_number(read: Reader, limit: Any) -> None:
    assert "a whole number" in problems(read(memory(maxInjectedChars=limit)))


def test_tokens_may_come_from_variables_and_are_never_shown(read: Reader) -> None:
    serve = {"token": "${TOKEN}", "tokens": {"main": "for-main-only"}, "allowedHosts": ["notes.example"]}

    loaded = read({"serve": serve}, TOKEN="from-the-environment")

    assert loaded.settings.serve == Serve(
        token="from-the-environment", tokens={"main": "for-main-only"}, allowed_hosts=("notes.example",)
    )
    shown = {key: one.value for key, one in shown_for_all(loaded).items() if key.startswith("serve.")}
    assert shown["serve.token"] == "(set)"
    assert shown["serve.tokens"] == {"main": "(set)"}
    assert "for-main-only" not in repr(loaded.settings.serve)


def test_the_variable_of_the_token_wins_over_the_file(read: Reader) -> None:
    loaded = read({"serve": {"token": "of-the-file"}}, MEMLINE_SERVE_TOKEN="of-the-variable")

    assert loaded.settings.serve.token == "of-the-variable"


@pytest.mark.parametrize(
    ("serve", "said"),
    [
        ({"prot": 1}, "did you mean port?"),
        ({"port": 70_000}, "from 0 to 65535"),
        ({"token": "short"}, "at least 8"),
        ({"token": "not for a header\n"}, "not usable as a token"),
        ({"token": "${GONE}"}, "GONE is not set"),
        ({"tokens": {"main": "same-for-both", "work": "same-for-both"}}, "same token"),
        ({"tokens": {"../x": "a-good-token"}}, "there is no agent '../x'"),
        ([], "allowed: an object"),
    ],
)
def test_a_server_that_is_not_understood_is_a_problem(read: Reader, serve: Any, said: str) -> None:
    loaded = read({"serve": serve})

    assert said in problems(loaded)
    assert "same-for-both" not in problems(loaded)


def test_the_token_comes_from_a_file_too_and_is_shown_with_its_variable(read: Reader, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of-the-secret\n")
    loaded = read({"serve": {"token": "of-the-file"}}, MEMLINE_SERVE_TOKEN_FILE=str(tmp_path / "token"))

    assert loaded.settings.serve.token == "of-the-secret"
    assert shown_for_all(loaded)["serve.token"].origin == "MEMLINE_SERVE_TOKEN_FILE"
