"""Report the sessions of an agent: how far each transcript was read, and how near it is to a memory flush."""

from __future__ import annotations

from typing import Any

from memline.shared.config.schema import AgentSettings
from memline.shared.flush import flush_plan
from memline.shared.flush import state as flush_state
from memline.shared.flush.state import SessionState
from memline.shared.index import ledger
from memline.shared.index.driver import reading_if_any

#: What is missing where nothing is flushed.
SET_UP = (
    "no model and no command is configured for it: set agents.defaults.compaction.memoryFlush.model (and"
    " baseUrl), or memoryFlush.command"
)


def why_off(settings: AgentSettings) -> str:
    """Say why no session of the agent is flushed."""
    if not settings.memory.enabled:
        return "memory search is disabled (memorySearch.enabled)"
    if not settings.sessions.compaction.memory_flush.enabled:
        return "it is disabled (agents.defaults.compaction.memoryFlush.enabled)"
    return SET_UP


def flushes(settings: AgentSettings) -> dict[str, Any]:
    """Report the flushes of an agent in the JSON contract of `memline flush`. Raises OSError."""
    folder = flush_plan.folder_of(settings)
    registry = flush_plan.read_registry(folder)
    return {
        "agentId": settings.agent,
        "enabled": flush_plan.is_on(settings),
        "sessions": [
            {
                "session": name,
                "tokens": session.size.tokens,
                "threshold": flush_plan.threshold_of(settings, registry.get(name), session.size.model),
                "bytesSinceCompaction": session.size.bytes_since_compaction,
                "compactions": session.size.compactions,
                **outcome(session),
            }
            for name, session in sorted(flush_state.read(folder).sessions.items())
        ],
    }


def outcome(session: SessionState) -> dict[str, Any]:
    """Say what became of the last flush of a session."""
    return {name: getattr(session, name) for name in ("outcome", "reason", "attempts", "at")}


def transcripts(settings: AgentSettings, *, first: int = 0, limit: int = 50) -> list[dict[str, Any]]:
    """List the transcripts of an agent that the index knows, the one that changed last first.

    Raises IndexFaults.
    """
    with reading_if_any(settings.index_path) as reader:
        return ledger.transcripts(reader, first=first, limit=limit) if reader is not None else []
