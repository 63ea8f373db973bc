"""List what is done with jobs, batches, provider accounts and workers: the same verbs on every face."""

from __future__ import annotations

from memline.producers.calls.rows import TEXTS, Call, argument, option

#: Where the functions of the verbs are.
_VERBS = "memline.producers.actions.verbs"

_JOB = argument("job", "Id of a job, or the beginning of it.", metavar="JOB")
_BATCH = argument(
    "batch",
    "Id of a batch, the beginning of it, or the provider's job id.",
    metavar="BATCH",
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
        text="""\
Read no more files of a job and send none of its texts until `resume`; live edits go on.

Requests and batches that are at the provider already are still stored. Exit status 1 when the job is not
running.""",
        run=f"{_VERBS}:pause_job",
        answer="job",
        audit="pause",
        button="Pause",
        parameters=(_JOB,),
        examples=("memline jobs pause 5f3a",),
    ),
    Call(
        name="jobs resume",
        title="Let a paused job go on.",
        text="Let a paused job go on. Exit status 1 when it is not paused.",
        run=f"{_VERBS}:resume_job",
        answer="job",
        audit="resume",
        button="Resume",
        parameters=(_JOB,),
        examples=("memline jobs resume 5f3a",),
    ),
    Call(
        name="jobs cancel",
        title="End a job; what is indexed stays.",
        text="""\
End a job: nothing more of it is read or sent; what is indexed stays.

Its texts stay known as missing: `memline reindex` or `memline index` takes them up. Batches that hold
nothing else are cancelled at the provider. Exit status 1 when the job had ended already.""",
        run=f"{_VERBS}:cancel_job",
        answer="job",
        audit="cancel",
        button="Cancel",
        is_danger=True,
        parameters=(_JOB,),
        examples=("memline jobs cancel 5f3a", "memline jobs cancel 5f3a --json"),
    ),
    Call(
        name="batch cancel",
        title="Cancel a batch; the vectors that it brought are kept.",
        text="""\
Cancel a batch. The vectors that it brought are kept; its other texts are sent in requests.

The batch worker tells the provider: `memline up`, a fleet, or the next `memline index`. Rows that the
provider had finished by then are kept and paid for. Exit status 1 when the batch had ended already.""",
        answer="batchCancelled",
        run=f"{_VERBS}:cancel_batch",
        audit="cancel",
        button="Cancel",
        is_danger=True,
        parameters=(_BATCH,),
        examples=("memline batch cancel 5f3a", "memline batch cancel 5f3a --json"),
    ),
    Call(
        name="batch collect",
        title="Ask the provider about a batch now.",
        text="""\
Ask the provider about a batch now, without waiting for the next poll, and store what is finished.

The batch worker does it: `memline up`, a fleet, or the next `memline index`. Exit status 1 when the batch
has ended.""",
        answer="batchDue",
        run=f"{_VERBS}:collect_batch",
        audit="collect",
        parameters=(_BATCH,),
        examples=("memline batch collect 5f3a", "memline batch collect 5f3a --json"),
    ),
    Call(
        name="queue requeue",
        title="Put dead messages back on their queues.",
        text="""\
Put dead messages back on their queues. Safe: every actor may run twice. A dead request to embed is removed
instead: its texts are wanted again, and go out by themselves.""",
        run=f"{_VERBS}:requeue",
        answer="requeued",
        audit="requeue",
        parameters=(_ERROR, _IDS),
        examples=("memline queue requeue", "memline queue requeue --error 'disk is full'"),
    ),
    Call(
        name="queue drop",
        title="Remove dead messages for good.",
        text="""\
Remove dead messages for good.

What they were about is in the rows. The exception is an answer that waits to be stored (store_vectors): its
texts are sent, and paid for, again.""",
        run=f"{_VERBS}:drop",
        answer="dropped",
        audit="drop",
        is_danger=True,
        parameters=(_ERROR, _IDS),
        examples=("memline queue drop --error 'not configured here'", "memline queue drop --id 3fa2c1d8…"),
    ),
    Call(
        name="queue pause",
        title="Send no more texts to the provider.",
        text="""\
Send no more texts to the provider until `resume`; running requests end, files stay searchable.

With --mode batch no new batches are made and texts are sent in requests, at full price, about twice that of
a batch; open batches are still collected.""",
        answer="pauses",
        run=f"{_VERBS}:pause",
        audit="pause",
        button="Pause",
        parameters=(_PROVIDER, _MODE),
        examples=(
            "memline queue pause",
            "memline queue pause --agent work",
            "memline queue pause --provider openai --mode batch",
        ),
    ),
    Call(
        name="queue resume",
        title="Send texts to the provider again.",
        text="""\
Send texts again: after `pause`, and after a provider stopped (bad key, no quota) and was fixed.

Circuit breakers are closed, on trial: the next failure opens them again. Texts go to the chosen provider
again, not to its fallback. A time that the provider asked to wait (429) ends too: one request tries, and the
others follow when it works. At a ceiling of the day texts wait all the same, and the answer says so.""",
        answer="pauses",
        run=f"{_VERBS}:resume",
        audit="resume",
        button="Resume",
        parameters=(_PROVIDER, _MODE),
        examples=(
            "memline queue resume",
            "memline queue resume --mode batch",
            "memline queue resume --provider gemini",
        ),
    ),
)
