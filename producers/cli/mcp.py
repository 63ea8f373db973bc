"""`memline mcp`: an agent's memory for an MCP client, over standard input and output."""

from __future__ import annotations

import click

from producers.cli.options import Invocation, examples, global_options

#: Calls at a time; a client has rarely more than one running.
THREADS = 4


@click.command(
    epilog=examples(
        "memline mcp",
        "memline --workspace ~/notes mcp",
        "memline mcp --agent work --session-key agent:work:main",
    )
)
@click.option(
    "--session-key",
    metavar="KEY",
    default="",
    help="Session that the client serves, agent:<id>:<rest>: it decides about citations and access.",
)
@global_options
def mcp(invocation: Invocation, session_key: str) -> None:
    """Serve an agent's memory as MCP tools on standard input and output.

    For the configuration of an MCP client, which starts it. Nothing but the protocol goes to standard output.
    """
    from contextlib import closing

    from producers.mcp import run_stdio
    from producers.memory_tools import Caller, MemoryTools

    invocation.log()
    agent = invocation.agent()
    tools = MemoryTools(invocation.settings, (agent.agent,), long_lived=True)
    with closing(tools):
        run_stdio(
            tools,
            Caller(agent=agent.agent, session_key=session_key),
            threads=THREADS,
            writes=agent.memory.append.enabled,
        )
