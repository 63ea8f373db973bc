"""`memline mcp`, `serve` and `metrics`: memory for agents, figures for Prometheus, until they are stopped."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from functools import partial

import click

from memline.producers.agents.tools import Caller, MemoryTools, chat_for
from memline.producers.cli.options import Invocation, command, stop_event
from memline.shared import logs
from memline.shared.values import replace


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
    from memline.producers.agents.mcp import run_stdio

    invocation.log()
    agent = invocation.agent()
    # A wrong one would be refused at every call.
    chat_for(agent, session_key)
    # The thread that waits for a line cannot be ended otherwise; what is written, is.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    tools = MemoryTools(invocation.settings, (agent.agent,), options_of=invocation.everywhere)
    with closing(tools), invocation.listed("mcp", [agent]):
        run_stdio(tools, Caller(agent=agent.agent, session_key=session_key))


@command(
    "memline serve",
    "memline serve --port 8080 --agent main",
    "MEMLINE_SERVE_TOKEN=$(openssl rand -hex 24) memline serve --host 0.0.0.0",
)
@click.option(
    "--host", metavar="ADDRESS", help="Address; others than loopback need a token.  [default: 127.0.0.1]"
)
@click.option("--port", type=click.IntRange(0, 65_535), help="Port; 0: any that is free.  [default: 7843]")
@click.option("--read-only", is_flag=True, help="Show the dashboard without its actions.")
def serve(invocation: Invocation, host: str | None, port: int | None, read_only: bool) -> None:
    """Serve memory over HTTP: search, get, status and context, MCP at /mcp and a dashboard at /ui.

    One process answers many clients from one warm index. Run it on the host of the index; memline up keeps
    that fresh.
    """
    from memline.producers.http.app import Api
    from memline.producers.http.server import listen, require_token, run, url_of
    from memline.producers.web.dashboard import Dashboard

    invocation.log()
    logs.always(logs.AUDIT)
    served = invocation.agents()
    agents = tuple(settings.agent for settings in served)
    wanted = invocation.settings.serve
    wanted = replace(
        wanted,
        host=wanted.host if host is None else host,
        port=wanted.port if port is None else port,
        read_only=wanted.read_only or read_only,
    )
    require_token(wanted)
    default = invocation.settings.default_agent
    tools = MemoryTools(invocation.settings, agents, options_of=invocation.everywhere)
    with closing(tools), stop_event() as stop, invocation.listed("serve", served), listen(wanted) as opened:
        api = Api(
            tools,
            wanted,
            dashboard=partial(Dashboard, loaded=invocation.loaded, is_stopping=stop.is_set),
            default_agent=default if default in agents else agents[0],
            is_stopping=stop.is_set,
        )
        click.echo(f"memline: {url_of(opened)} (dashboard at /ui, MCP at /mcp)", err=True)
        run(api.app, opened, stop, liveness=invocation.liveness())


#: The usual one of Prometheus exporters inside applications.
DEFAULT_PORT = 9464


@command("memline metrics", "memline metrics --port 9500", "memline metrics --once")
@click.option("--port", type=click.IntRange(0, 65_535), default=DEFAULT_PORT, show_default=True, help="Port.")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address; every client that reaches it may read."
)
@click.option("--once", is_flag=True, help="Print the metrics and end.")
def metrics(invocation: Invocation, port: int, host: str, once: bool) -> None:
    """Serve metrics of queues, backlog, workers and providers for Prometheus, until it is stopped.

    One process a host is enough; run it beside the index. The metrics are read anew at each scrape.
    """
    from memline.producers.reports.metrics import FleetCollector, page, serve

    invocation.log()
    collector = FleetCollector(invocation.settings, invocation.enabled_agents())
    if once:
        click.echo(page(collector), nl=False)
        return
    with stop_event() as stop, serve(collector, host=host, port=port) as url:
        click.echo(f"memline: metrics at {url}", err=True)
        invocation.liveness().run_until(stop)
