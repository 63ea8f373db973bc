"""`memline mcp`, `serve` and `metrics`: memory for agents, figures for Prometheus, until they are stopped."""

from __future__ import annotations

import os
import signal
from contextlib import closing

from memline.producers.agents.tools import Caller, MemoryTools, chat_for
from memline.producers.calls.table import CALLS
from memline.producers.cli.invocation import Invocation, echo, put
from memline.producers.cli.long_running import listed, liveness, stop_event, write_log
from memline.producers.cli.root import INTERRUPTED, tell_interrupted
from memline.producers.cli.table_commands import asks
from memline.shared import logs
from memline.shared.config.installation import Serve
from memline.shared.values import replace


@asks(CALLS["mcp"])
def mcp(invocation: Invocation, session_key: str | None) -> None:
    from memline.producers.agents.mcp_stdio import run_stdio

    write_log()
    agent = invocation.agent()
    # A wrong one would be refused at every call.
    caller = Caller(agent=agent.agent, session_key=session_key or "")
    chat_for(agent, caller.session_key)
    # The thread that waits for a line cannot be ended otherwise, by Ctrl-C neither; what is written, is.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    tools = MemoryTools(invocation.settings, (agent.agent,), options_of=invocation.everywhere)
    before = signal.signal(signal.SIGINT, _end_at_once)
    try:
        with closing(tools), listed(invocation, "mcp", [agent]):
            run_stdio(tools, caller)
    finally:
        signal.signal(signal.SIGINT, before)


def _end_at_once(*_: object) -> None:
    tell_interrupted()
    os._exit(INTERRUPTED)


@asks(CALLS["serve"])
def serve(invocation: Invocation, host: str | None, port: int | None) -> None:
    from memline.producers.web.serving import serving

    write_log()
    logs.always(logs.AUDIT)
    logs.always(logs.REQUEST, style="json")
    served = invocation.agents()
    wanted = _served(invocation.settings.serve, host, port)
    agents = tuple(each.agent for each in served)
    with stop_event() as stop, serving(wanted, stop) as (url, run):
        echo(f"memline: {url} (dashboard at /ui, MCP at /mcp)", err=True)
        with (
            listed(invocation, "serve", served),
            closing(MemoryTools(invocation.settings, agents, options_of=invocation.everywhere)) as tools,
        ):
            run(tools, liveness())


def _served(serve: Serve, host: str | None, port: int | None) -> Serve:
    return replace(
        serve,
        host=serve.host if host is None else host,
        port=serve.port if port is None else port,
    )


#: The usual one of Prometheus exporters inside applications.
DEFAULT_PORT = 9464


@asks(CALLS["metrics"])
def metrics(invocation: Invocation, port: int | None, host: str | None, once: bool) -> None:
    from memline.producers.reports.metrics import FleetCollector, page, serve

    write_log()
    collector = FleetCollector(invocation.settings, invocation.enabled_agents())
    if once:
        put(page(collector), end="")
        return
    host, port = host or "127.0.0.1", DEFAULT_PORT if port is None else port
    with stop_event() as stop, serve(collector, host=host, port=port) as url:
        echo(f"memline: metrics at {url}", err=True)
        liveness().run_until(stop)
