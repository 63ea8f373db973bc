"""`memline serve`: the memory of all agents over HTTP, as an API and as MCP."""

from __future__ import annotations

import click

from memline.producers.cli.options import Invocation, command, stop_event


@command(
    "memline serve",
    "memline serve --port 8080 --agent main",
    "MEMLINE_SERVE_TOKEN=$(openssl rand -hex 24) memline serve --host 0.0.0.0",
)
@click.option(
    "--host", metavar="ADDRESS", help="Address; others than loopback need a token.  [default: 127.0.0.1]"
)
@click.option("--port", type=click.IntRange(0, 65_535), help="Port; 0: any that is free.  [default: 7843]")
def serve(invocation: Invocation, host: str | None, port: int | None) -> None:
    """Serve memory over HTTP: search, get, status and context, and MCP at /mcp, until it is stopped.

    One process answers many clients from one warm index. Run it on the host of the index; memline up keeps
    that fresh.
    """
    from contextlib import closing
    from dataclasses import replace

    from memline.producers.agents.tools import MemoryTools
    from memline.producers.http.app import Api
    from memline.producers.http.server import listen, require_token, run, url_of

    invocation.log()
    agents = tuple(settings.agent for settings in invocation.agents())
    wanted = invocation.settings.serve
    wanted = replace(
        wanted, host=wanted.host if host is None else host, port=wanted.port if port is None else port
    )
    require_token(wanted)
    default = invocation.settings.default_agent
    tools = MemoryTools(invocation.settings, agents)
    with closing(tools), stop_event() as stop, listen(wanted) as opened:
        api = Api(tools, wanted, default_agent=default if default in agents else agents[0])
        click.echo(f"memline: {url_of(opened)} (MCP at /mcp)", err=True)
        run(api.app, opened, stop)
