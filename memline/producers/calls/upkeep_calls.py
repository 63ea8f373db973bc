"""List what keeps an index: reindex."""

from __future__ import annotations

from memline.producers.calls.rows import Call, flag

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
)
