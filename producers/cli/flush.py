"""`memline flush`: show sessions, their size and their flushes, and run one flush manually."""

from __future__ import annotations

from typing import Any

import click

from memline.producers.cli.options import Invocation, command, echo, print_json
from memline.shared.clock import SystemClock
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import ConfigError, MemlineError
from memline.shared.flush import plan
from memline.shared.flush import state as flush_state
from memline.shared.flush.state import SessionState
from memline.shared.flush.transcript import SessionSize, measure
from memline.shared.sources.safe_open import FileRefused

_SET_UP = (
    "no model and no command is configured for it: set agents.defaults.compaction.memoryFlush.model (and"
    " baseUrl), or memoryFlush.command"
)


@command("memline flush", "memline flush --json", "memline flush --now 4f9c2e1a-….jsonl", json=True)
@click.option("--now", "session", metavar="SESSION", help="Flush this session now, whatever its size.")
def flush(invocation: Invocation, session: str | None, as_json: bool) -> int:
    """Show how close sessions are to a memory flush, and the outcome of the last one.

    A flush is one silent request to a chat model before a session is compacted; its answer is appended to
    today's daily note. `memline up` and `memline watch` start it; see docs/flush.md.
    """
    if session is not None:
        name = session if session.endswith(".jsonl") else f"{session}.jsonl"
        done = _flush_now(invocation.agent(), name)
        if as_json:
            print_json({"session": name, **_outcome(done)})
        else:
            echo(f"{done.outcome}: {done.reason}")
        return 1 if done.outcome in (flush_state.FAILED, flush_state.SKIPPED) else 0
    report = [_report(settings) for settings in invocation.agents()]
    if as_json:
        print_json(report)
        return 0
    for agent in report:
        echo(f"{agent['agentId']}: {'on' if agent['enabled'] else f'off, {_SET_UP}'}")
        for row in agent["sessions"]:
            of = f" of {row['threshold']}" if row["threshold"] else ""
            outcome = f" · {row['outcome']} ({row['reason']})" if row["outcome"] else ""
            echo(f"  {row['session']}  {row['tokens']}{of} tokens{outcome}")
        if not agent["sessions"]:
            echo("  no session has been measured yet: memline up (or watch) does that")
    return 0


def _report(settings: AgentSettings) -> dict[str, Any]:
    folder = plan.folder_of(settings)
    registry = plan.read_registry(folder)
    return {
        "agentId": settings.agent,
        "enabled": plan.is_on(settings),
        "sessions": [
            {
                "session": name,
                "tokens": session.size.tokens,
                "threshold": plan.threshold_of(settings, registry.get(name), session.size.model),
                "bytesSinceCompaction": session.size.bytes_since_compaction,
                "compactions": session.size.compactions,
                **_outcome(session),
            }
            for name, session in sorted(flush_state.read(folder).sessions.items())
        ],
    }


def _outcome(session: SessionState) -> dict[str, Any]:
    return {name: getattr(session, name) for name in ("outcome", "reason", "attempts", "at")}


def _flush_now(settings: AgentSettings, name: str) -> SessionState:
    from memline.shared.flush.run import run  # Its HTTP client takes 60 ms, for nothing when listing.

    if not plan.is_on(settings):
        raise ConfigError(_SET_UP, hint="docs/flush.md has examples")
    folder = plan.folder_of(settings)
    if not flush_state.can_be_named(name):
        raise MemlineError(f"{name!r} is not a valid name of a transcript", hint="memline flush")
    try:
        size = measure(str(folder), name, SessionSize())
    except (FileRefused, OSError) as error:
        raise MemlineError(f"there is no transcript {name} in {folder}", hint="memline flush") from error
    clock = SystemClock()
    try:
        with flush_state.editing(folder) as state:
            requested = state.sessions.setdefault(name, SessionState())
            plan.record_size(requested, size)
            requested.attempts = 0
            plan.record_request(requested, "requested manually", clock.now())
        done = run(settings, name, cycle=requested.cycle, clock=clock)
    except OSError as error:
        words = (error.strerror or str(error)).lower()
        raise MemlineError(f"{folder} cannot be written: {words}", hint=f"ls -ld {folder}") from error
    if done is None:
        raise MemlineError("another process has just flushed this session", hint="memline flush")
    return done
