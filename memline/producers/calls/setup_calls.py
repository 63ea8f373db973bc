"""List what sets up a memory and looks at its settings: init, setup, hook, config.

Commands alone have them: they work on files of the user who types them.
"""

from __future__ import annotations

from memline.producers.calls.rows import Call, argument, flag, option

SETUP_CALLS = (
    Call(
        name="init",
        title="Make a folder of Markdown searchable.",
        text="""\
Make a folder of Markdown searchable: its index, a first answer, and how to connect an agent.

DIR is the current folder unless it is given. Nothing is written into it. From then on commands in it and
below it mean its notes. With --provider a configuration is written where there is none; else what to add to
it is printed.""",
        asks="Index it?",
        parameters=(
            argument("folder", "The folder.", is_required=False, metavar="[DIR]"),
            flag("yes", "Ask nothing."),
            option(
                "provider",
                "Search by meaning with this provider.",
                choices_of="memline.shared.providers:PROVIDERS",
            ),
            option(
                "model", "Its model; for local a GGUF or ONNX file, or hf:owner/repo/file.", metavar="NAME"
            ),
            option("baseUrl", "Its address, where it is not the usual one.", metavar="URL"),
            flag("anyway", "Take a home directory, or one of thousands of files, too."),
        ),
        examples=(
            "memline init",
            "memline init ~/notes --yes",
            "memline init ~/vault --provider local   # a small model on this machine, downloaded once",
            "memline init --provider openai --model nomic-embed-text --base-url http://127.0.0.1:11434/v1",
        ),
    ),
    Call(
        name="setup",
        title="Connect Claude Code, Codex, Cursor or another MCP client.",
        text="""\
Connect an MCP client to this memory: print what goes into its file, or write it.

--write runs the client's own command where it has one, or changes its file where that is plain JSON; all else
in the file stays. A file with comments is not changed: what to add is printed. No key is ever written.""",
        asks="Write {path}?",
        parameters=(
            argument("client", "The client.", choices_of="memline.producers.bridges.clients:CLIENTS"),
            flag(
                "write",
                "Run the client's command, or change its file.",
                opposite="--print",
                default="--print",
                python="is_written",
            ),
            flag("yes", "Write without asking."),
            option("file", "The client's file, where it is not the usual one.", metavar="FILE"),
            option("name", "What the client calls the memory.", default="memline"),
        ),
        examples=(
            "memline setup claude",
            "memline --workspace ~/notes setup cursor --write",
            "memline setup codex --write --yes",
            "memline setup claude --write --file ~/projects/shop/.mcp.json",
        ),
    ),
    Call(
        name="hook",
        title="Answer a hook of Claude Code.",
        text="""\
Answer a hook of Claude Code: an event as JSON on standard input, the answer on standard output.

SessionStart gives the session its context, as memline context --private does. PreCompact writes the
session down before it is compacted, where a flush is configured. The plugin of the
repository calls it. A problem is a message for the user, and never stops the session.""",
        examples=("""echo '{"hook_event_name": "SessionStart", "cwd": "'"$PWD"'"}' | memline hook""",),
    ),
    Call(
        name="config",
        title="Show and check the configuration.",
        examples=("memline config show", "memline config check"),
    ),
    Call(
        name="config show",
        title="Print every value with its origin, secrets hidden.",
        answer="configuration",
        parameters=(flag("changed", "Only what is set, and not left to its default."),),
        examples=(
            "memline config show",
            "memline config show --agent work --json",
            "memline --workspace ~/notes config show --changed",
        ),
    ),
    Call(
        name="config path",
        title="Print the path of the file that is used.",
        text="Print the file that is used; exit status 1 when there is none.",
        examples=("memline config path", 'cat "$(memline config path)"'),
    ),
    Call(
        name="config check",
        title="Name everything that is wrong.",
        text="Name everything that is wrong; exit status 1 when anything is.",
        answer="checked",
        examples=("memline config check", "memline --config new.json5 config check --json"),
    ),
)
