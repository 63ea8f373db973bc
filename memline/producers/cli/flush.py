"""`memline flush`: show sessions, their size and their flushes, and run one flush manually."""

from __future__ import annotations

import click

from memline.producers.cli.options import Invocation, command, echo, print_json
from memline.producers.reports.session_list import SET_UP, flushes, outcome
from memline.shared.flush import state as flush_state


@command("memline flush", "memline flush --json", "memline flush --now 4f9c2e1a-….jsonl", json=True)
@click.option("--now", "session", metavar="SESSION", help="Flush this session now, whatever its size.")
def flush(invocation: Invocation, session: str | None, as_json: bool) -> int:
    """Show how close sessions are to a memory flush, and the outcome of the last one.

    A flush is one silent request to a chat model before a session is compacted; its answer is appended to
    today's daily note. `memline up` and `memline watch` start it; see docs/flush.md.
    """
    if session is not None:
        name = session if session.endswith(".jsonl") else f"{session}.jsonl"
        from memline.producers.watching.flush_sessions import (
            flush_now,  # It imports dramatiq, for nothing when listing.
        )

        done = flush_now(invocation.agent(), name)
        if as_json:
            print_json({"session": name, **outcome(done)})
        else:
            echo(f"{done.outcome}: {done.reason}")
        return 1 if done.outcome in (flush_state.FAILED, flush_state.SKIPPED) else 0
    report = [flushes(settings) for settings in invocation.agents()]
    if as_json:
        print_json(report)
        return 0
    for agent in report:
        echo(f"{agent['agentId']}: {'on' if agent['enabled'] else f'off, {SET_UP}'}")
        for row in agent["sessions"]:
            of = f" of {row['threshold']}" if row["threshold"] else ""
            last = f" · {row['outcome']} ({row['reason']})" if row["outcome"] else ""
            echo(f"  {row['session']}  {row['tokens']}{of} tokens{last}")
        if not agent["sessions"]:
            echo("  no session has been measured yet: memline up (or watch) does that")
    return 0
