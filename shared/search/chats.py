"""Who asks: the chat behind a session key, whether it may use memory, and whether it gets citations.

A session key is `agent:<id>:<rest>`, as OpenClaw makes it: `agent:main:main` is the owner's own session,
`agent:main:discord:group:123` a group. An empty key says nothing about the chat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.values import value

if TYPE_CHECKING:
    from shared.config.faces import ChatRule, ChatScope

#: Parts of a key that say what kind of chat it is.
_KINDS = {"group": "group", "channel": "channel", "direct": "direct", "dm": "direct"}


@value
class Chat:
    """What a session key says; empty fields are not known."""

    #: The whole key, in lower case.
    raw_key: str = ""
    #: The same without `agent:<id>:`.
    key: str = ""
    #: direct, group or channel.
    kind: str = ""
    #: Where the chat is: discord, telegram …
    channel: str = ""

    def __str__(self) -> str:
        return f"channel={self.channel or '-'}, chatType={self.kind or '-'}, session={self.key or '-'}"


def chat_of(session_key: str) -> Chat:
    """The chat of a session key; any text is one, an empty one says nothing."""
    raw = session_key.strip().lower()
    if not raw:
        return Chat()
    parts = raw.split(":")
    rest = parts[2:] if parts[0] == "agent" and len(parts) > 2 else parts
    key = ":".join(rest)
    if rest[0] == "subagent":
        # A helper of some session: nothing says of which.
        return Chat(raw_key=raw, key=key)
    kind = "group" if "group" in rest else "channel" if "channel" in rest else "direct"
    return Chat(
        raw_key=raw,
        key=key,
        kind=kind,
        channel=rest[0] if len(rest) > 1 and rest[1] in _KINDS else "",
    )


def may_use_memory(scope: ChatScope | None, chat: Chat) -> bool:
    """Whether the rules let this chat use memory: the first that fits decides, else the default."""
    if scope is None:
        return True
    action = next((rule.action for rule in scope.rules if _fits(rule, chat)), scope.default)
    return action == "allow"


def gets_citations(mode: str, chat: Chat) -> bool:
    """Whether answers to this chat carry citations; with `auto` direct chats do, and those not known."""
    return mode == "on" or (mode == "auto" and chat.kind not in ("group", "channel"))


def _fits(rule: ChatRule, chat: Chat) -> bool:
    return (
        rule.channel in ("", chat.channel)
        and rule.chat_type in ("", chat.kind)
        and chat.key.startswith(rule.key_prefix)
        and chat.raw_key.startswith(rule.raw_key_prefix)
    )
