"""`memline mcp` and `serve`: memory for agents, until they are stopped; and what such processes share."""

import _thread
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from types import FrameType

import click
import msgspec

from memline.producers.api.calls import Caller, Calls
from memline.producers.chats import chat_for
from memline.producers.cli.invocation import Invocation, command
from memline.producers.cli.output import note
from memline.producers.cli.root import INTERRUPTED, tell_interrupted
from memline.producers.runs.parts import run
from memline.shared import logs
from memline.shared.config import environment
from memline.shared.liveness import Liveness

_PORT = click.IntRange(0, 65_535)


def liveness() -> Liveness:
    """Return what tells systemd, or the check of a container, how this process is doing."""
    return Liveness(*environment.liveness())


def of_service(invocation: Invocation, *, level: str = "WARNING") -> Invocation:
    """Return the invocation of a process that serves what is configured, and write its log.

    The log has lines from `level` on, or from `MEMLINE_LOG_LEVEL` on.
    """
    logs.configure(environment.log_level(default=level))
    return Invocation(msgspec.structs.replace(invocation.options, is_service=True))


def stop_event() -> threading.Event:
    """Return an event that SIGINT and SIGTERM set; a second signal changes nothing, a third ends the process.

    A supervisor that signals the whole process group reaches a process twice, once itself and once through
    its parent. Taken for "end now", the second threw away what was paid for.
    """
    stop = threading.Event()
    signals = 0

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal signals
        signals += 1
        # In a thread: the lock of an event cannot be taken twice, and the main thread, which runs this
        # handler, may just hold it in `stop.wait`. The process would hang for ever.
        _thread.start_new_thread(stop.set, ())
        if signals > 2:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
    return stop


@command(
    "memline mcp",
    "memline --workspace ~/notes mcp",
    "memline mcp --agent work --session-key agent:work:main",
)
@click.option(
    "--session-key",
    metavar="KEY",
    help="Session that the client serves, agent:<id>:<rest>: it decides about citations and access.",
)
def mcp(invocation: Invocation, session_key: str | None) -> None:
    """Serve an agent's memory as MCP tools on standard input and output.

    For the configuration of an MCP client, which starts it. Nothing but the protocol goes to standard output.
    """
    from memline.producers.api.mcp import run_stdio

    logs.configure(environment.log_level())
    agent = invocation.agent()
    # A wrong one would be refused at every call.
    caller = Caller(agent=agent.agent, session_key=session_key or "", is_local=True)
    chat_for(agent, caller.session_key)
    # The thread that waits for a line cannot be ended otherwise, by Ctrl-C neither; what is written, is.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    signal.signal(signal.SIGINT, _end_at_once)
    with closing(Calls(invocation.settings, (agent.agent,))) as calls:
        run_stdio(calls, caller)


def _end_at_once(*_: object) -> None:
    tell_interrupted()
    os._exit(INTERRUPTED)


@command(
    "memline serve",
    "memline serve --port 8080 --agent main",
    "MEMLINE_SERVE_TOKEN=$(openssl rand -hex 24) memline serve --host 0.0.0.0",
)
@click.option(
    "--host", metavar="ADDRESS", help="Address; others than loopback need a token.  [default: 127.0.0.1]"
)
@click.option("--port", type=_PORT, help="Port; 0: any that is free.  [default: 7843]")
def serve(invocation: Invocation, host: str | None, port: int | None) -> None:
    """Serve memory over HTTP: search, get, status and context, MCP at /mcp and a dashboard at /ui.

    One process answers many clients from one warm index. Run it on the host of the index; memline up keeps
    that fresh.
    """
    invocation = of_service(invocation)
    run([server_of(invocation, host=host, port=port)], stop_event(), liveness=liveness())


@contextmanager
def server_of(
    invocation: Invocation,
    *,
    host: str | None = None,
    port: int | None = None,
    is_alone: bool = True,
) -> Iterator[Callable[[], None]]:
    """Serve HTTP by these settings: a part of a process; the rest as of `Server`."""
    # Starlette and uvicorn take 150 ms to import, which `mcp` and `up` never need.
    from memline.producers.web.serving import Server

    settings, agents = invocation.settings, invocation.agents()
    wanted = msgspec.structs.replace(
        settings.serve,
        host=settings.serve.host if host is None else host,
        port=settings.serve.port if port is None else port,
    )
    calls = Calls(settings, tuple(each.agent for each in agents))
    with Server(calls, wanted, on_note=note, is_alone=is_alone) as server:
        yield server.tick
