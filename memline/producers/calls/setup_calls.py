"""List what sets up a memory and looks at its settings: init, add, remove, setup, hook, config, bench.

Commands alone have them: they work on files of the user who types them.
"""

from __future__ import annotations

from memline.producers.calls.rows import ANY, FILE, FOLDER, NEW_FILE, NEW_FOLDER, Call, argument, flag, option

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
    Call(
        name="completion",
        title="Print the completion script for a shell.",
        parameters=(argument("shell", "The shell.", choices=("bash", "zsh", "fish")),),
        examples=(
            'eval "$(memline completion bash)"        # in ~/.bashrc',
            'eval "$(memline completion zsh)"         # in ~/.zshrc',
            "memline completion fish > ~/.config/fish/completions/memline.fish",
        ),
    ),
    Call(
        name="bench",
        title="Measure the quality of search.",
        examples=(
            "memline bench retrieval questions.jsonl ./workspaces",
            "memline bench import locomo locomo10.json ./locomo",
        ),
    ),
    Call(
        name="bench retrieval",
        title="Measure search on labelled questions.",
        text="""\
Ask the labelled questions of QUERIES and say how much of their evidence is found.

QUERIES has a JSON object a line: query_id, query, workspace, category, evidence. Every Markdown file
below ROOT/<workspace>, or with --view sessions every transcript in ROOT/<workspace>/sessions, goes into a
throw-away index, and every question is answered as `memline search` would, with the configured chunking
and query settings.

\b
R@k        share of the evidence in the first k hits
hit@6      share of the questions with any of it in the first six
MRR@10     1 / rank of the first hit with evidence
nDCG@10    rank-weighted evidence, each piece counted once
snippet@6  of the evidence found in the first six, the share the snippets show

Without a provider the second row is for the same questions with every chunk cited alone.

QUERIES may be a folder that `memline bench import` has written, without a ROOT. Its questions have the
published metrics too, each file counted once, and one without evidence counts as not found:

\b
recall@k      share of the files with evidence among the first k files
recall_any@k  share of the questions with any of them among the first k
MRR           1 / rank of the first of them, of ten""",
        answer="metrics",
        parameters=(
            argument("queries", "File of the questions, or a folder that was imported.", path=ANY),
            argument("root", "Folder of the workspaces.", is_required=False, path=FOLDER),
            option("view", "What is searched.", choices=("memory", "sessions")),
            option(
                "provider",
                "Embed with it; none: keywords only.",
                choices_of="memline.shared.config.schema:PROVIDER_CHOICES",
            ),
            option("run", "Write the hits to this file.", path=NEW_FILE, python="run_file"),
        ),
        examples=(
            "memline bench retrieval questions.jsonl ./workspaces",
            "memline bench retrieval questions.jsonl ./workspaces --provider openai --json",
            "memline bench retrieval ./locomo      # what memline bench import has written",
        ),
    ),
    Call(
        name="bench import",
        title="Turn the file of a public benchmark into notes and questions.",
        text="""\
Turn the file of a public benchmark into notes and questions in the new folder OUT.

LoCoMo's conversations become one workspace, a note a session; in LongMemEval each question has a
workspace of its own, its haystack. Nothing in the notes tells which of them hold an answer. `memline
bench retrieval OUT` asks the questions.""",
        answer="benchmark",
        parameters=(
            argument(
                "benchmark",
                "The benchmark.",
                choices_of="memline.producers.bridges.public_benchmarks:FORMATS",
            ),
            argument("file", "The file, as it was downloaded.", path=FILE),
            argument("out", "The new folder.", path=NEW_FOLDER),
        ),
        examples=(
            "memline bench import locomo locomo10.json ./locomo",
            "memline bench import longmemeval longmemeval_s_cleaned.json ./longmemeval",
        ),
    ),
)
