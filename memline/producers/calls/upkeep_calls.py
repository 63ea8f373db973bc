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

It lists what it will touch and asks. PATH is a path or citation as `memline search` gives it, of a session
its path alone. The lines go out of the note, the index, its vectors and its free pages. A session goes as a
whole: it stays where its program has it, and is never read again. Backups, logs and open batches that have
the text are named, and left to you.""",
        answer="forgot",
        asks="Forget this in the notes and in Memline for good?",
        audit="forget",
        is_danger=True,
        parameters=(
            argument("path", "A path or a citation.", is_required=False),
            option(
                "query", "Each line with all these words, as they are written but for upper and lower case."
            ),
            option("session", "A session, by its key or the name of its transcript.", metavar="KEY"),
            option("before", "Dated notes and sessions before this day (2025-01-01, 90d).", metavar="DATE"),
            flag("dryRun", "Only list what would be forgotten."),
            YES,
        ),
        examples=(
            "memline forget 'memory/2026-02-10.md#L5-L7'",
            "memline forget --query 'door code' --dry-run",
            "memline forget --session agent:main:dm:anna",
            "memline forget --before 2025-01-01 --yes",
        ),
    ),
)
