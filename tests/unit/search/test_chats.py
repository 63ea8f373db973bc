from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.config.faces import ChatRule, ChatScope
from shared.search.chats import Chat, chat_of, gets_citations, may_use_memory

DIRECT_ONLY = ChatScope(default="deny", rules=(ChatRule(action="allow", chat_type="direct"),))


@pytest.mark.parametrize(
    ("key", "kind", "channel"),
    [
        ("agent:main:main", "direct", ""),
        ("agent:main:discord:group:123", "group", "discord"),
        ("AGENT:Main:Slack:Channel:C1", "channel", "slack"),
        ("agent:main:telegram:dm:7", "direct", "telegram"),
        ("agent:main:whatsapp:direct:+49", "direct", "whatsapp"),
        ("agent:main:subagent:9f3", "", ""),
        ("discord:group:123", "group", "discord"),
        ("main", "direct", ""),
        ("", "", ""),
        ("   ", "", ""),
    ],
)
def test_a_session_key_says_what_kind_of_chat_it_is(key: str, kind: str, channel: str) -> None:
    chat = chat_of(key)

    assert (chat.kind, chat.channel) == (kind, channel)


@given(st.text())
def test_any_text_is_a_session_key(key: str) -> None:
    assert isinstance(chat_of(key), Chat)


@pytest.mark.parametrize(
    ("mode", "key", "cited"),
    [
        ("auto", "agent:main:main", True),
        ("auto", "", True),
        ("auto", "agent:main:subagent:1", True),
        ("auto", "agent:main:discord:group:1", False),
        ("auto", "agent:main:slack:channel:1", False),
        ("on", "agent:main:discord:group:1", True),
        ("off", "agent:main:main", False),
    ],
)
def test_citations_go_by_the_mode_and_under_auto_by_the_chat(mode: str, key: str, cited: bool) -> None:
    assert gets_citations(mode, chat_of(key)) is cited


def test_without_a_scope_every_chat_may_use_memory() -> None:
    assert may_use_memory(None, chat_of("agent:main:discord:group:1"))


@pytest.mark.parametrize(
    ("key", "allowed"),
    [
        ("agent:main:main", True),
        ("agent:main:discord:group:1", False),
        ("agent:main:subagent:1", False),
        ("", False),
    ],
)
def test_a_rule_fits_only_what_is_known_of_a_chat(key: str, allowed: bool) -> None:
    assert may_use_memory(DIRECT_ONLY, chat_of(key)) is allowed


def test_the_first_rule_that_fits_decides() -> None:
    scope = ChatScope(
        default="deny",
        rules=(
            ChatRule(action="deny", channel="discord", chat_type="group"),
            ChatRule(action="allow", channel="discord"),
            ChatRule(action="allow", key_prefix="telegram:group:team"),
            ChatRule(action="allow", raw_key_prefix="agent:ops:"),
        ),
    )

    def allowed(key: str) -> bool:
        return may_use_memory(scope, chat_of(key))

    assert not allowed("agent:main:discord:group:1")
    assert allowed("agent:main:discord:dm:1")
    assert allowed("agent:main:telegram:group:team-a")
    assert not allowed("agent:main:telegram:group:other")
    assert allowed("agent:ops:slack:channel:1")


def test_a_rule_without_a_match_fits_everything() -> None:
    assert may_use_memory(ChatScope(default="deny", rules=(ChatRule(action="allow"),)), chat_of(""))
