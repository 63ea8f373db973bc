"""Read a session key: which chat asks, what this chat may see, and how it sees an answer.

A session key is `agent:<id>:<rest>`, as OpenClaw makes it: `agent:main:main` is the owner's own session,
`agent:main:discord:group:123` a group. An empty key says nothing about the chat.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from memline.shared.config.installation import ChatRule, ChatScope
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import AccessDenied
from memline.shared.finding import Finding, warning
from memline.shared.findings.check import of_agent
from memline.shared.findings.conditions import DISABLED
from memline.shared.search.results import Answer
from memline.shared.visible_text import for_model, one_line

#: What a snippet that was cut short ends with.
CUT = "…"


class Chat(msgspec.Struct, frozen=True, kw_only=True):
    """The chat behind a session key; empty fields are not known."""

    #: The whole key, in lower case.
    raw_key: str = ""
    #: The agent that the key names, in lower case.
    agent: str = ""
    #: The same without `agent:<id>:`.
    key: str = ""
    #: direct, group or channel.
    kind: str = ""
    #: Where the chat is: discord, telegram …
    channel: str = ""

    @property
    def is_private(self) -> bool:
        """Say whether it is between owner and agent, or nothing is known of it.

        A group is not, and neither is a helper that may work for one: they never get the long-term note.
        """
        return self.kind == "direct" or not self.raw_key

    def __str__(self) -> str:
        return f"channel={self.channel or '-'}, chatType={self.kind or '-'}, session={self.key or '-'}"


def chat_of(session_key: str) -> Chat:
    """Read a session key. Any text is one; an empty one says nothing."""
    raw = session_key.strip().lower()
    if not raw:
        return Chat()
    parts = raw.split(":")
    agent, rest = "", parts
    if parts[0] == "agent" and len(parts) > 2:
        agent, rest = parts[1], parts[2:]
    key = ":".join(rest)
    if rest[0] == "subagent":
        # A helper of some session: the key does not say of which.
        return Chat(raw_key=raw, agent=agent, key=key)
    kind = "group" if "group" in rest else "channel" if "channel" in rest else "direct"
    has_channel = len(rest) > 1 and rest[1] in ("group", "channel", "direct", "dm")
    return Chat(raw_key=raw, agent=agent, key=key, kind=kind, channel=rest[0] if has_channel else "")


def may_use_memory(scope: ChatScope | None, chat: Chat) -> bool:
    """Say whether the rules let this chat use memory: the first that fits decides, else the default."""
    if scope is None:
        return True
    action = next((rule.action for rule in scope.rules if _fits(rule, chat)), scope.default)
    return action == "allow"


def gets_citations(mode: str, chat: Chat) -> bool:
    """Say whether answers to this chat carry citations; with `auto` only groups and channels get none."""
    return mode == "on" or (mode == "auto" and chat.kind not in ("group", "channel"))


def _fits(rule: ChatRule, chat: Chat) -> bool:
    return (
        rule.match.channel in ("", chat.channel)
        and rule.match.chat_type in ("", chat.kind)
        and chat.key.startswith(rule.match.key_prefix)
        and chat.raw_key.startswith(rule.match.raw_key_prefix)
    )


def sees_private(settings: AgentSettings, chat: Chat | None) -> bool:
    """Say whether this chat may search and read the long-term note; without a chat the owner asks."""
    return chat is None or chat.is_private or settings.content.memory.private_in_groups


def chat_for(settings: AgentSettings, session_key: str) -> Chat:
    """Return the chat behind a session key. Raises AccessDenied for a key of another agent."""
    chat = chat_of(session_key)
    if chat.agent and chat.agent != settings.agent.lower():
        raise AccessDenied(
            f"the session key is of agent {chat.agent[:80]!r}, not of {settings.agent!r}",
            hint=f"give a key that begins with agent:{settings.agent}:, or ask for that agent",
        )
    return chat


def view_for(chat: Chat, settings: AgentSettings, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Show the answer of a search, as JSON, as an agent sees it in this chat.

    With citations every snippet ends with its citation, else no hit has one. With qmd
    `limits.maxInjectedChars` is the room for snippets; `truncated` says whether something did not fit.
    """
    memory = settings.content.memory
    cites = gets_citations(memory.citations, chat)
    most = memory.qmd.limits.max_injected_chars if memory.backend == "qmd" else 0
    results, chars, is_cut = list[dict[str, Any]](), 0, False
    for hit in answer["results"]:
        shown = {name: hit[name] for name in hit if name != "citation"}
        shown["heading"] = one_line(shown.get("heading", ""))
        text = for_model(hit["snippet"])
        if cites:
            shown["citation"] = one_line(hit["citation"])
            text = f"{text.strip()}\n\nSource: {shown['citation']}"
        if is_cut := bool(most) and chars + len(text) > most:
            text = text[: max(most - chars - 1, 0)] + CUT
        if chars < most or not is_cut:
            results.append({**shown, "snippet": text})
        if is_cut:
            break
        chars += len(text)
    return {
        **answer,
        "results": results,
        "totalResults": len(results),
        "truncated": is_cut,
        "citations": memory.citations,
    }


def denied_answer(settings: AgentSettings, chat: Chat) -> dict[str, Any] | None:
    """Return the answer to a chat that may not use the agent's memory at all; None when it may."""
    if not settings.memory.enabled:
        return no_answer(settings, (DISABLED,))
    if not may_use_memory(settings.content.memory.scope, chat):
        refused = warning(
            "chat_refused",
            f"memory may not be used in this chat ({chat})",
            "answer without memory; memory.scope in the configuration says where it may be used",
        )
        return no_answer(settings, (refused,))
    return None


def no_answer(settings: AgentSettings, found: tuple[Finding, ...]) -> dict[str, Any]:
    """Make an answer without results that says why, in the shape of one with results."""
    answer = Answer(findings=of_agent(settings.agent, found), workspace=str(settings.workspace))
    empty = view_for(Chat(), settings, answer.to_json(marks=False))
    return {**empty, "disabled": True, "unavailable": False, "error": answer.warning}
