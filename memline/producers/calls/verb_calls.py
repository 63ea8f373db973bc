"""List what is done with jobs, batches, provider accounts and workers: the same verbs on every face."""

from __future__ import annotations

from memline.producers.calls.rows import TEXTS, Call, argument, option

#: Where the functions of the verbs are.
_VERBS = "memline.producers.actions.verbs"

_JOB = argument("job", "Id of a job, or the beginning of it.")
_BATCH = argument(
    "batch",
    "Id of a batch, the beginning of it, or the provider's job id.",
)
_PROVIDER = option(
    "provider", "Only this one.", default="all", choices_of="memline.shared.providers:PROVIDERS"
)
_MODE = option("mode", "Only this mode.", default="both", choices=("requests", "batch"))

_ERROR = option("error", "Messages with this error, or with this text in their error.")
_IDS = option("id", "Only messages of these ids.", kind="array", python="ids", limits=TEXTS)

VERB_CALLS = (
    Call(
        name="jobs pause",
        title="Pause a job.",
        run=f"{_VERBS}:pause_job",
        answer="job",
        audit="pause",
        button="Pause",
        parameters=(_JOB,),
    ),
    Call(
        name="jobs resume",
        title="Let a paused job go on.",
        run=f"{_VERBS}:resume_job",
        answer="job",
        audit="resume",
        button="Resume",
        parameters=(_JOB,),
    ),
    Call(
        name="jobs cancel",
        title="End a job; what is indexed stays.",
        run=f"{_VERBS}:cancel_job",
        answer="job",
        audit="cancel",
        button="Cancel",
        is_danger=True,
        parameters=(_JOB,),
    ),
    Call(
        name="batch cancel",
        title="Cancel a batch; the vectors that it brought are kept.",
        answer="batchCancelled",
        run=f"{_VERBS}:cancel_batch",
        audit="cancel",
        button="Cancel",
        is_danger=True,
        parameters=(_BATCH,),
    ),
    Call(
        name="batch collect",
        title="Ask the provider about a batch now.",
        answer="batchDue",
        run=f"{_VERBS}:collect_batch",
        audit="collect",
        parameters=(_BATCH,),
    ),
    Call(
        name="queue requeue",
        title="Put dead messages back on their queues.",
        run=f"{_VERBS}:requeue",
        answer="requeued",
        audit="requeue",
        parameters=(_ERROR, _IDS),
    ),
    Call(
        name="queue drop",
        title="Remove dead messages for good.",
        run=f"{_VERBS}:drop",
        answer="dropped",
        audit="drop",
        is_danger=True,
        parameters=(_ERROR, _IDS),
    ),
    Call(
        name="queue pause",
        title="Send no more texts to the provider.",
        answer="pauses",
        run=f"{_VERBS}:pause",
        audit="pause",
        button="Pause",
        parameters=(_PROVIDER, _MODE),
    ),
    Call(
        name="queue resume",
        title="Send texts to the provider again.",
        answer="pauses",
        run=f"{_VERBS}:resume",
        audit="resume",
        button="Resume",
        parameters=(_PROVIDER, _MODE),
    ),
)
