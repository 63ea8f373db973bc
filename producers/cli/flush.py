"""`memline flush`: how large sessions are, what became of their flushes, and one taken by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from producers.cli.options import Invocation, examples, global_options, json_option, print_json

if TYPE_CHECKING:
    from shared.config.schema import AgentSettings
    from shared.flush.state import SessionState

_SET_UP = (
    "nobody is set up to take the turn: set agents.defaults.compaction.memoryFlush.model (and baseUrl),"
    " or memoryFlush.command"
)


@click.command(
    epilog=examples("memline flush", "memline flush --json", "memline flush --now 4f9c2e1a-….jsonl")
)
@click.option("--now", "session", metavar="SESSION", help="Flush this session now, whatever its size.")
@json_option
@global_options
def flush(invocation: Invocation, session: str | None, as_json: bool) -> int:
    """Show how close sessions are to a memory flush, and what became of the last one.

    A flush is one silent turn of a chat model before a session is compacted; what it says is appended to
    today's daily note. `memline up` and `memline watch` ask for it; see docs/flush.md.
    """
    if session is not None:
        return _now(invocation.agent(), session, as_json)
    report = [_report(settings) for settings in invocation.agents()]
    if as_json:
        print_json(report)
        return 0
    for agent in report:
        click.echo(f"{agent['agentId']}: {'on' if agent['enabled'] else f'off, {_SET_UP}'}")
        for row in agent["sessions"]:
            of = f" of {row['threshold']}" if row["threshold"] else ""
            became = f" · {row['outcome']} ({row['reason']})" if row["outcome"] else ""
            click.echo(f"  {row['session']}  {row['tokens']}{of} tokens{became}")
        if not agent["sessions"]:
            click.echo("  no session has been looked at yet: memline up (or watch) does that")
    return 0


def _report(settings: AgentSettings) -> dict[str, Any]:
    from shared.flush import plan
    from shared.flush import state as flush_state

    folder = plan.folder_of(settings)
    registered = plan.registered(folder)
    return {
        "agentId": settings.agent,
        "enabled": plan.is_on(settings),
        "sessions": [
            {
                "session": name,
                "tokens": session.size.tokens,
                "threshold": plan.threshold_of(
                    settings, registered.get(name, plan.Registered()), model=session.size.model
                ),
                "bytesSinceCompaction": session.size.bytes_since_compaction,
                "compactions": session.size.compactions,
                **_outcome(session),
            }
            for name, session in sorted(flush_state.read(folder).sessions.items())
        ],
    }


def _outcome(session: SessionState) -> dict[str, Any]:
    return {
        "outcome": session.outcome,
        "reason": session.reason,
        "attempts": session.attempts,
        "at": session.at,
    }


def _now(settings: AgentSettings, session: str, as_json: bool) -> int:
    from shared.clock import SystemClock
    from shared.errors import ConfigError, MemlineError
    from shared.flush import plan
    from shared.flush import state as flush_state
    from shared.flush.run import run
    from shared.flush.size import SessionSize, measure
    from shared.sources.safe_open import FileRefused

    if not plan.is_on(settings):
        raise ConfigError(_SET_UP, hint="docs/flush.md has examples")
    folder = plan.folder_of(settings)
    name = session if session.endswith(".jsonl") else f"{session}.jsonl"
    if "/" in name or not flush_state.can_be_named(name):
        raise MemlineError(f"{name!r} is no name of a transcript", hint="memline flush")
    try:
        size = measure(str(folder), name, SessionSize())
    except (FileRefused, OSError) as error:
        raise MemlineError(f"there is no transcript {name} in {folder}", hint="memline flush") from error
    clock = SystemClock()
    try:
        with flush_state.editing(folder) as state:
            asked = state.sessions.setdefault(name, flush_state.SessionState())
            plan.grow(asked, size)
            asked.attempts = 0
            plan.ask(asked, "asked for by hand", clock.now())
        done = run(settings, name, cycle=asked.cycle, clock=clock)
    except OSError as error:
        words = (error.strerror or str(error)).lower()
        raise MemlineError(f"{folder} cannot be written: {words}", hint=f"ls -ld {folder}") from error
    if done is None:
        raise MemlineError("another process has just flushed this session", hint="memline flush")
    if as_json:
        print_json({"session": name, **_outcome(done)})
    else:
        click.echo(f"{done.outcome}: {done.reason}")
    return 1 if done.outcome in (flush_state.FAILED, flush_state.SKIPPED) else 0
