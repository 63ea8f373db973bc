"""The commands and the global options of `memline`, as its help lists them. Imports nothing."""

PROGRAM = "memline"

_CLI = "memline.producers.cli."

#: The commands in five groups: the name of each, where it is, and its line in the list.
GROUPS = {
    "Notes": (
        ("init", "init:init", "Make a folder of Markdown searchable."),
        ("index", "index:index", "Bring the index up to date with the files."),
        ("search", "search:search", "Answer a question from the notes, with citations."),
        ("get", "search:get", "Print a memory file or some of its lines."),
        ("status", "status:status", "Say what is indexed and what is stale."),
        ("doctor", "status:doctor", "Find problems and say what fixes them."),
        ("lint", "search:lint", "Name the links that lead nowhere, and notes without any."),
        ("config", "config:config", "Show and check the configuration."),
    ),
    "Agents": (
        ("setup", "setup:setup", "Connect Claude Code, Codex, Cursor or another MCP client."),
        ("mcp", "serve:mcp", "Serve an agent's memory to an MCP client (stdio)."),
        ("serve", "serve:serve", "Serve memory over HTTP: an API, MCP and a dashboard."),
        ("hook", "setup:hook", "Answer a hook of Claude Code."),
        ("context", "setup:context", "Print what an agent reads when a session starts."),
        ("flush", "setup:flush", "Write down what is worth keeping of a session."),
    ),
    "Processes": (
        ("up", "up:up", "Run everything in one process."),
        ("watch", "up:watch", "Follow the files and put changes on the queue."),
        ("worker", "up:worker", "Work on messages of the queue, in one role or more."),
    ),
    "Queue": (
        ("queue", "queue:queue", "Show depth, backlog, workers and dead messages."),
        ("reindex", "jobs:reindex", "Ask for a reindex and return, or plan one."),
        ("jobs", "jobs:jobs", "List, show, pause, resume and cancel jobs and batches."),
    ),
    "Keep": (
        ("forget", "keep:forget", "Forget lines of notes, or sessions, for good."),
        ("import", "keep:import_command", "Take over the conversations of ChatGPT or Claude."),
        ("backup", "keep:backup", "Copy the indexes, and bring such a copy back."),
    ),
}

#: Where each command is.
COMMANDS = {name: _CLI + place for group in GROUPS.values() for name, place, _ in group}

#: What else people type for a command, and it works.
ALIASES = {"find": "search", "query": "search", "ask": "search"}

#: The command that a word means, and the option: other programs have them.
MEANINGS = {
    **dict.fromkeys(("grep", "lookup", "recall", "vsearch"), "search"),
    **dict.fromkeys(("show", "cat", "read", "open", "view", "multi-get"), "get"),
    **dict.fromkeys(("sync", "update", "refresh", "scan", "embed", "ingest"), "index"),
    **dict.fromkeys(("add", "new", "create", "collection"), "init"),
    **dict.fromkeys(("info", "stats", "ls", "list"), "status"),
    **dict.fromkeys(("check", "health", "diagnose", "debug"), "doctor"),
    **dict.fromkeys(("settings", "configure"), "config"),
    **dict.fromkeys(("run", "start", "daemon"), "up"),
    **dict.fromkeys(("server", "http", "api", "dashboard", "ui", "web"), "serve"),
    **dict.fromkeys(("install", "connect", "integrate"), "setup"),
    **dict.fromkeys(("delete", "remove", "rm", "purge"), "forget"),
    **dict.fromkeys(("export", "restore", "dump"), "backup"),
    **dict.fromkeys(("help", "man"), "--help"),
    "version": "--version",
    **dict.fromkeys(("--top", "--top-k", "--count", "--num", "--max"), "--max-results"),
    **dict.fromkeys(("--dir", "--folder", "--directory", "--root", "--vault"), "--workspace"),
    **dict.fromkeys(("--threshold", "--score", "--min"), "--min-score"),
    **dict.fromkeys(("--after", "--newer", "--start"), "--since"),
    **dict.fromkeys(("--before", "--older", "--end"), "--until"),
    **dict.fromkeys(("--glob", "--file", "--files", "--in"), "--path"),
    **dict.fromkeys(("--not", "--ignore"), "--exclude"),
    **dict.fromkeys(("--tags", "--label"), "--tag"),
    **dict.fromkeys(("--type", "--corpus"), "--source"),
    **dict.fromkeys(("--full", "--rebuild", "--all"), "--force"),
    **dict.fromkeys(("--preview", "--check"), "--dry-run"),
    **dict.fromkeys(("--line", "--offset", "-l"), "--from"),
    **dict.fromkeys(("--context", "-C"), "--around"),
    **dict.fromkeys(("--as-json", "--output"), "--json"),
    **dict.fromkeys(("--configuration", "-c"), "--config"),
    **dict.fromkeys(("-y", "--no-input", "--assume-yes"), "--yes"),
}

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
