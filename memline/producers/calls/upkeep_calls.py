"""List what keeps an index and moves it: index, reindex, forget, import, backup, flush."""

from __future__ import annotations

from memline.producers.calls.rows import YES, Call, argument, flag, option

_FORCE = flag("force", "All files, not only those that changed.")

UPKEEP_CALLS = (
    Call(
        name="reindex",
        title="Ask for a reindex and return, or plan one.",
        run="memline.producers.actions.verbs:reindex",
        answer="job",
        audit="reindex",
        parameters=(_FORCE,),
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
)
