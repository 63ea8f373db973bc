"""List the processes that run until they are told to stop, and what writes their files: commands alone."""

from __future__ import annotations

from memline.producers.calls.rows import Call, Parameter, argument, flag, option


def _port(words: str, default: str) -> Parameter:
    return option("port", words, kind="integer", default=default, minimum=0, maximum=65_535)


PROCESS_CALLS = (
    Call(
        name="mcp",
        title="Serve an agent's memory to an MCP client (stdio).",
        text="""\
Serve an agent's memory as MCP tools on standard input and output.

For the configuration of an MCP client, which starts it. Nothing but the protocol goes to standard output.""",
        parameters=(
            option(
                "sessionKey",
                "Session that the client serves, agent:<id>:<rest>: it decides about citations and access.",
                metavar="KEY",
            ),
        ),
        examples=(
            "memline mcp",
            "memline --workspace ~/notes mcp",
            "memline mcp --agent work --session-key agent:work:main",
        ),
    ),
    Call(
        name="serve",
        title="Serve memory over HTTP: an API, MCP and a dashboard.",
        text="""\
Serve memory over HTTP: search, get, status and context, MCP at /mcp and a dashboard at /ui.

One process answers many clients from one warm index. Run it on the host of the index; memline up keeps
that fresh.""",
        parameters=(
            option(
                "host", "Address; others than loopback need a token.", default="127.0.0.1", metavar="ADDRESS"
            ),
            _port("Port; 0: any that is free.", "7843"),
        ),
        examples=(
            "memline serve",
            "memline serve --port 8080 --agent main",
            "MEMLINE_SERVE_TOKEN=$(openssl rand -hex 24) memline serve --host 0.0.0.0",
        ),
    ),
    Call(
        name="metrics",
        title="Serve the state of the fleet for Prometheus.",
        text="""\
Serve metrics of queues, backlog, workers and providers for Prometheus, until it is stopped.

One process a host is enough; run it beside the index. Each scrape reads the metrics again.""",
        parameters=(
            _port("Port.", "9464"),
            option("host", "Address; every client that reaches it may read.", default="127.0.0.1"),
            flag("once", "Print the metrics and end."),
        ),
        examples=("memline metrics", "memline metrics --port 9500", "memline metrics --once"),
    ),
    Call(
        name="up",
        title="Run everything in one process.",
        text="""\
Run everything in one process, no server needed: follow the files, chunk, embed, store.

Searches of other processes see changes at once, and this one answers `memline search`, `get`, `status`
and `context` for them, five times as fast. SIGINT and SIGTERM end it after the running work. A
second one for the same folder follows nothing until the first has ended, and then takes its place.""",
        examples=("memline --workspace ~/notes up", "MEMLINE_LOG_LEVEL=INFO memline up --agent main"),
    ),
    Call(
        name="watch",
        title="Follow the files and put changes on the queue.",
        text="""\
Follow the files and put their changes on the queue; the workers are other processes.

Needs queue.url. Without a queue, `memline up` does this and the work in one process.""",
        needs_queue=True,
        examples=("MEMLINE_QUEUE_URL=redis://127.0.0.1:6379/0 memline watch",),
    ),
    Call(
        name="worker",
        title="Work on messages of the queue, in one role or more.",
        text="""\
Work on messages of the queue, in one role or several: chunk, embed, batch, store, query.

Needs queue.url. SIGINT and SIGTERM end it: running messages are finished, for up to 15 seconds, and the
others go back on the queue. A second signal changes nothing, a third ends it at once.""",
        needs_queue=True,
        parameters=(
            argument(
                "roles",
                "The roles.",
                kind="array",
                metavar="ROLE...",
                choices_of="memline.shared.queue.routes:QUEUES",
            ),
            option(
                "threads",
                "Messages a role works on at a time; store keeps one.",
                kind="integer",
                default="chunk 2, embed 4, batch 2, store 1, query 2",
                minimum=1,
                metavar="N",
            ),
        ),
        examples=(
            "memline worker embed --threads 16",
            "memline worker chunk store query",
            "MEMLINE_QUEUE_URL=redis://127.0.0.1:6379/0 memline worker embed",
        ),
    ),
)
