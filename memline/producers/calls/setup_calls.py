"""List what sets up a memory and looks at its settings: init, add, remove, setup, hook, config.

Commands alone have them: they work on files of the user who types them.
"""

from __future__ import annotations

from memline.producers.calls.rows import Call, argument, flag, option

_ASK_NOTHING = flag("yes", "Ask nothing.")
_ANYWAY = flag("anyway", "Take a home directory, or one of thousands of files, too.")
_DIR = argument("folder", "A folder, or a Markdown file.", metavar="DIR")

SETUP_CALLS = (
    Call(
        name="init",
        title="Make a folder of Markdown searchable.",
        text="""\
Make a folder of Markdown searchable: settings, index, a first answer, and how to connect an agent.

DIR is the current folder unless it is given. Its settings are kept in your configuration folder; nothing
is written into DIR itself.""",
        asks="Write its settings and index it?",
        parameters=(
            argument("folder", "The folder.", is_required=False, metavar="[DIR]"),
            _ASK_NOTHING,
            option(
                "model",
                "Search by meaning with a small model on this machine, downloaded once.",
                choices=("local",),
            ),
            _ANYWAY,
        ),
        examples=("memline init", "memline init ~/notes --yes", "memline init ~/vault --model local"),
    ),
    Call(
        name="add",
        title="Search another folder beside the notes.",
        text="""\
Search another folder, or a Markdown file, beside the notes: adds it to `extraPaths`.

The settings of the workspace are changed, their comments stay.""",
        asks="{what}. Index all of it?",
        parameters=(_DIR, _ASK_NOTHING, _ANYWAY),
        examples=("memline add ~/wiki", "memline --workspace ~/notes add ~/projects/handbook/docs"),
    ),
    Call(
        name="remove",
        title="Search a folder no longer.",
        text="""\
Search a folder or file no longer: takes it out of `extraPaths`. The folder itself is not touched.""",
        parameters=(_DIR,),
        examples=("memline remove ~/wiki", "memline --workspace ~/notes remove ~/wiki"),
    ),
    Call(
        name="setup",
        title="Connect Claude Code, Codex, Cursor or another MCP client.",
        text="""\
Connect an MCP client to this memory: print what goes into its file, or write it.

The usual file is the client's own one for this user; for claude it is .mcp.json in the current folder.
--write and --remove show the difference and ask. All else in the file stays, comments too, and a copy of
it is kept beside it. No key is ever written.""",
        asks="Write {path}?",
        parameters=(
            argument("client", "The client.", choices_of="memline.producers.bridges.clients:CLIENTS"),
            flag(
                "write",
                "Change the client's file.",
                opposite="--print",
                default="--print",
                python="is_written",
            ),
            flag("remove", "Take the memory out of the client's file."),
            flag("yes", "Write without asking."),
            option("file", "The client's file, where it is not the usual one.", metavar="FILE"),
            option("name", "What the client calls the memory.", default="memline"),
        ),
        examples=(
            "memline setup claude",
            "memline --workspace ~/notes setup cursor --write",
            "memline setup codex --write --yes",
            "memline setup claude --write --file ~/projects/shop/.mcp.json",
            "memline setup zed --remove",
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
        text="Print the file that is used, else that of the workspace; exit status 1 when there is none.",
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
