"""`memline mcp`: an agent's memory for an MCP client, over standard input and output."""

from __future__ import annotations

import click

from memline.producers.cli.options import Invocation, command


@command(
    "memline mcp", "memline --workspace ~/notes mcp", "memline mcp --agent work --session-key agent:work:main"
)
@click.option(
    "--session-key",
    metavar="KEY",
    default="",
    help="Session that the client serves, agent:<id>:<rest>: it decides about citations and access.",
)
def mcp(invocation: Invocation, session_key: str) -> None:
    """Serve an agent's memory as MCP tools on standard input and output.

    For the configuration of an MCP client, which starts it. Nothing but the protocol goes to standard output.
    """
    import os
    import signal
    from contextlib import closing

    from memline.producers.agents.mcp import run_stdio
    from memline.producers.agents.tools import Caller, MemoryTools

    invocation.log()
    # The thread that waits for a line cannot be ended otherwise; what is written, is.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    agent = invocation.agent()
    tools = MemoryTools(invocation.settings, (agent.agent,))
    with closing(tools):
        run_stdio(tools, Caller(agent=agent.agent, session_key=session_key))
