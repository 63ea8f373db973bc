"""`memline flush`: show sessions, their size and their flushes, and run one flush manually."""

from __future__ import annotations

from memline.producers.calls.table import CALLS
from memline.producers.cli.options import Invocation, echo, print_json
from memline.producers.cli.table_commands import act_on, asks
from memline.producers.reports.session_list import SET_UP, flushes


@asks(CALLS["flush"])
def flush(invocation: Invocation, session: str | None, as_json: bool) -> int | None:
    """Print how close sessions are to a flush, or flush one now."""
    if session is not None:
        return act_on(
            invocation, CALLS["flush"], as_json, agents=[invocation.agent()], session=session, here=True
        )
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
