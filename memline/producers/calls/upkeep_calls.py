"""List what keeps an index and moves it: index, reindex, forget, import, backup, flush."""

from __future__ import annotations

from memline.producers.calls.rows import COMMAND, YES, Call, argument, flag, option

_FORCE = flag("force", "All files, not only those that changed.")

UPKEEP_CALLS = (
    Call(
        name="index",
        title="Bring the index up to date with the files.",
        text="""\
Bring the index up to date with the files and wait until every vector is ready or failed.

Safe to interrupt and to run again: it goes on where it was, and nothing is paid for twice.""",
        answer="runs",
        audit="index",
        button="Index now",
        parameters=(
            flag("force", "Read and split every file again; known vectors are kept."),
            flag("reEmbed", "Forget all vectors and embed every text again."),
            flag(
                "acceptRemovals",
                "Remove the files of a folder that was emptied; without it they stay.",
                faces=COMMAND,
            ),
            flag("verbose", "Name the files that are added, changed and removed.", faces=COMMAND),
        ),
        examples=(
            "memline --workspace ~/notes index",
            "memline index --json",
            "memline index --force          # split every file again; vectors are kept",
            "memline index --re-embed       # pay for every vector again",
        ),
    ),
    Call(
        name="reindex",
        title="Ask for a reindex and return, or plan one.",
        run="memline.producers.actions.verbs:reindex",
        is_of_one_agent=True,
        http="POST /reindex",
        answer="job",
        audit="reindex",
        button="Reindex",
        needs_queue=True,
        parameters=(_FORCE,),
    ),
    Call(
        name="flush",
        title="Write down what is worth keeping of a session.",
        text="""\
Ask a chat model what is worth keeping of a session, and append its answer to today's note.

`memline up` and `memline watch` do so before OpenClaw compacts a session, the hook of Claude Code before each
compaction.""",
        answer="flushed",
        parameters=(argument("session", "Name of a transcript of OpenClaw.", metavar="SESSION"),),
        examples=("memline flush 4f9c2e1a-….jsonl", "memline flush 4f9c2e1a --json"),
    ),
    Call(
        name="import",
        title="Take over the conversations of ChatGPT or Claude.",
        text="""\
Take over the conversations of an export of ChatGPT or Claude, a zip as it was downloaded.

What a person and the model wrote in the thread that is shown becomes a note, secrets masked. The zip may be
deleted; a later one adds what is new, and what was deleted or forgotten does not return.""",
        answer="chats",
        audit="import",
        parameters=(
            argument("source", "Whose export it is: chatgpt or claude.", metavar="chatgpt|claude"),
            argument("path", "The zip as it was downloaded.", metavar="FILE"),
        ),
        examples=(
            "memline import chatgpt ~/Downloads/chatgpt-export.zip",
            "memline import claude ~/Downloads/claude-export.zip --json",
        ),
    ),
    Call(
        name="forget",
        title="Forget lines of notes, or sessions, for good.",
        text="""\
Forget lines of notes, or sessions, for good.

It lists what it will touch and asks. PATH is a path or citation as `memline search` gives it, of a
conversation its path alone: it goes as a whole. The lines go out of the note, the index, its vectors and
cache, the batches at the provider and the other files of Memline's home; what stays in a kept note or a
transcript is not read again. The index of another agent or workspace that has it is named: forget it there
as well, with --agent or --workspace.""",
        answer="forgot",
        asks="Forget this in {where} for good?",
        audit="forget",
        is_danger=True,
        parameters=(
            argument("path", "A path or a citation.", is_required=False),
            option("query", "Each line that holds all these words, in any form."),
            option("session", "A session, by its key or the name of its transcript.", metavar="KEY"),
            option("before", "Dated notes and sessions before this day (2025-01-01, 90d).", metavar="DATE"),
            flag("dryRun", "Only list what would be forgotten."),
            YES,
            flag("keepNote", "Leave the notes as they are; only Memline forgets."),
            flag("list", "List what was forgotten: number, day and path, never the text.", python="as_list"),
            option("undo", "Take this number off that list.", kind="integer", minimum=1, metavar="N"),
            option("backup", "Copy the notes there first.", metavar="DIR"),
        ),
        examples=(
            "memline forget 'memory/2026-02-10.md#L5-L7'",
            "memline forget memory/old.md --keep-note --yes",
            "memline forget --query 'door code' --dry-run",
            "memline forget --before 2025-01-01 --backup ~/attic",
            "memline forget --list",
        ),
    ),
    Call(
        name="backup",
        title="Copy the indexes, and bring such a copy back.",
        text="""\
Copy the index of each agent, and what the home knows of its providers, while everything runs.

FILE is a file that ends in .sqlite, for one agent, or a folder, which gets <agent>.sqlite; without one it
is backups in Memline's home. Each copy is whole, and readable by its owner alone. Notes are not in it: they
are your files.""",
        examples=(
            "memline backup                                 # into backups, in Memline's home",
            "memline backup /mnt/usb/main.sqlite --agent main",
            "memline backup restore /mnt/usb/main.sqlite",
        ),
    ),
    Call(
        name="backup write",
        title="Copy the indexes.",
        text="Copy the index of each agent into FILE, or into a folder; see memline backup.",
        answer="backups",
        audit="backup",
        parameters=(
            argument("path", "A file for one agent, or a folder.", is_required=False, metavar="[FILE]"),
        ),
        examples=("memline backup ~/backups/memline",),
    ),
    Call(
        name="backup restore",
        title="Bring a backup back.",
        text="""\
Make a backup the index where that is missing or damaged; else take its vectors over.

An index that is there keeps all it has: `memline index` reads the notes, and pays for no text whose vector
is in the backup. A damaged or foreign file, and one of a newer Memline, changes nothing.""",
        answer="restored",
        audit="restore",
        parameters=(argument("path", "A file that memline backup has written.", metavar="FILE"),),
        examples=("memline backup restore ~/backups/memline/main.sqlite --agent main",),
    ),
)
