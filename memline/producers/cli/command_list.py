"""The commands and the global options of `memline`, as its own help lists them. Imports nothing."""

from __future__ import annotations

PROGRAM = "memline"

#: Name of a command: where it is, and its line in the list of commands.
COMMANDS = {
    "init": ("memline.producers.cli.init:init", "Make a folder of Markdown searchable."),
    "index": ("memline.producers.cli.index:index", "Bring the index up to date with the files."),
    "search": ("memline.producers.cli.search:search", "Answer a question from the notes, with citations."),
    "get": ("memline.producers.cli.read:get", "Print a memory file or some of its lines."),
    "status": ("memline.producers.cli.status:status", "Say what is indexed and what is behind."),
    "doctor": ("memline.producers.cli.status:doctor", "Find problems and say what fixes them."),
    "lint": ("memline.producers.cli.read:lint", "Name the links that lead nowhere, and notes without any."),
    "config": ("memline.producers.cli.config:config", "Show and check the configuration."),
    "up": ("memline.producers.cli.up:up", "Run everything in one process."),
    "watch": ("memline.producers.cli.up:watch", "Follow the files and put changes on the queue."),
    "worker": ("memline.producers.cli.up:worker", "Work on messages of the queue, in one role or more."),
    "serve": ("memline.producers.cli.serve:serve", "Serve memory over HTTP: an API, MCP and a dashboard."),
    "mcp": ("memline.producers.cli.serve:mcp", "Serve an agent's memory to an MCP client (stdio)."),
    "metrics": ("memline.producers.cli.serve:metrics", "Serve the state of the fleet for Prometheus."),
    "reindex": ("memline.producers.cli.jobs:reindex", "Ask for a reindex and return, or plan one."),
    "jobs": ("memline.producers.cli.jobs:jobs", "List, show, pause, resume and cancel jobs."),
    "batch": ("memline.producers.cli.jobs:batch", "List, show and cancel jobs of a provider's Batch API."),
    "queue": ("memline.producers.cli.queue:queue", "Show depth, backlog, workers and dead messages."),
    "setup": (
        "memline.producers.cli.setup:setup",
        "Connect Claude Code, Codex, Cursor or another MCP client.",
    ),
    "hook": ("memline.producers.cli.setup:hook", "Answer a hook of Claude Code."),
    "context": (
        "memline.producers.cli.session_start:context",
        "Print what an agent reads when a session starts.",
    ),
    "flush": ("memline.producers.cli.setup:flush", "Write down what is worth keeping of a session."),
    "forget": (
        "memline.producers.cli.forget_command:forget",
        "Forget lines of notes, or sessions, for good.",
    ),
    "import": (
        "memline.producers.cli.moving:import_command",
        "Take over the conversations of ChatGPT or Claude.",
    ),
    "backup": ("memline.producers.cli.moving:backup", "Copy the indexes, and bring such a copy back."),
}

#: The first command of each section of that list.
SECTIONS = {
    "init": "Notes and search",
    "up": "Processes",
    "reindex": "Work",
    "setup": "Agents",
    "forget": "Upkeep",
}

#: What else people type for a command.
ALIASES = {"find": "search", "query": "search", "ask": "search"}

#: What stands above the lists of `memline --help`.
SUMMARY = """Memory search for AI agents: Markdown notes in, cited answers out.

Global options may stand before or after the command's name."""

#: What stands below them.
EXAMPLES = (
    "memline --workspace ~/notes index",
    "memline --workspace ~/notes search 'why did we choose redis'",
    "memline config check",
)

#: Options before or after the name of a command: name, what it takes, help.
GLOBALS = (
    ("config", "FILE", "Configuration file.  [env: MEMLINE_CONFIG]"),
    ("home", "DIR", "Where indexes and state live.  [env: MEMLINE_HOME]"),
    ("workspace", "DIR", "Folder of the notes.  [env: MEMLINE_WORKSPACE]"),
    ("agent", "ID", "The agent whose memory is meant."),
)
