"""List what is done with jobs, batches, provider accounts and workers: the same verbs on every face."""

from __future__ import annotations

from memline.producers.calls.rows import OWNER, TEXTS, Call, argument, option

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

_STATE = option(
    "state",
    "Dead, to be retried, or waiting for a worker.",
    default="dead",
    choices=("dead", "delayed", "waiting"),
)
_QUEUE = option("queue", "Messages of this queue.")
_GROUP = option("group", "Dead messages with this error: a group of `queue dead`.")
_MATCH = option("match", "Glob over queue, actor, agent, error and id.")
_IDS = option("id", "Only messages of these ids.", kind="array", python="ids", limits=TEXTS)
_ERROR = option("group", "Texts with this error: a group of the page of failed texts.")
_TEXT = option("text", "The one whose hash begins so; `memline index --json` has hashes.")

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
        button="Collect now",
        parameters=(_BATCH,),
        examples=("memline batch collect 5f3a", "memline batch collect 5f3a --json"),
    ),
    Call(
        name="queue",
        title="Show depth, backlog, workers and dead messages.",
        text="""\
Show the queues: depth, in flight, oldest age, rate, dead; the backlog of vectors; the workers.""",
        answer="fleet",
        parameters=(
            option(
                "failIf",
                (
                    "Exit 1 when it holds, e.g. 'oldest>300'; one of oldest, waiting, dead, backlog, failed,"
                    " workers, paused, open with < or >."
                ),
                kind="array",
                metavar="CONDITION",
                python="conditions",
            ),
        ),
        examples=(
            "memline queue",
            "memline queue --json",
            "memline queue --fail-if 'oldest>300' --fail-if 'workers<3'",
            "memline queue dead",
            "memline queue requeue --group 3fa2c1d8",
            "memline queue pause",
        ),
    ),
    Call(
        name="queue dead",
        title="List messages that failed, by their last error.",
        text="""\
List messages that failed, by their last error: the largest group first, in a group the oldest.""",
        run=f"{_VERBS}:dead_messages",
        answer="dead",
        rights=OWNER,
        needs_queue=True,
        parameters=(
            _QUEUE,
            _GROUP,
            _MATCH,
            option("limit", "Of each group.", kind="integer", minimum=1, default="5; as JSON all"),
        ),
        examples=(
            "memline queue dead",
            "memline queue dead --group 3fa2c1d8",
            "memline queue dead --match '*disk*' --json",
        ),
    ),
    Call(
        name="queue messages",
        title="Count and list messages.",
        text="""\
Count and list messages, a page at a time: dead ones, delayed ones (to be retried), or waiting ones.""",
        run=f"{_VERBS}:list_messages",
        answer="messages",
        rights=OWNER,
        needs_queue=True,
        parameters=(
            _STATE,
            _QUEUE,
            option("limit", "Of a page.", kind="integer", minimum=1, maximum=500, default="50"),
            option("after", "Where the page before said that the next one begins.", python="cursor"),
        ),
        examples=(
            "memline queue messages",
            "memline queue messages --state waiting --queue chunk",
            "memline queue messages --state delayed --json",
        ),
    ),
    Call(
        name="queue requeue",
        title="Put dead messages back on their queues.",
        text="""\
Put dead messages back on their queues. Safe: every actor may run twice. A dead request to embed is removed
instead: its texts are wanted again, and go out by themselves.""",
        rights=OWNER,
        run=f"{_VERBS}:requeue",
        answer="requeued",
        audit="requeue",
        needs_queue=True,
        parameters=(
            option("state", "Dead, or to be retried.", default="dead", choices=("dead", "delayed")),
            _QUEUE,
            _GROUP,
            _MATCH,
            _IDS,
        ),
        examples=(
            "memline queue requeue",
            "memline queue requeue --group 3fa2c1d8",
            "memline queue requeue --state delayed --queue store",
        ),
    ),
    Call(
        name="queue drop",
        title="Remove dead messages for good.",
        text="""\
Remove dead messages for good, or with --state others.

What they were about is in the rows. The exception is an answer that waits to be stored (store_vectors): its
texts are sent, and paid for, again. Say which messages; --match '*' is all of them.""",
        rights=OWNER,
        run=f"{_VERBS}:drop",
        answer="dropped",
        audit="drop",
        is_danger=True,
        needs_queue=True,
        parameters=(_STATE, _QUEUE, _GROUP, _MATCH, _IDS),
        examples=(
            "memline queue drop --group 3fa2c1d8",
            "memline queue drop --match '*unknown agent*'",
            "memline queue drop --state waiting --queue chunk",
        ),
    ),
    Call(
        name="queue drain",
        title="Ask a worker process to end.",
        text="""\
Ask a worker process to take no more messages, finish those in hand, and end with status 0.

A supervisor may start another one in its place.""",
        answer="draining",
        run=f"{_VERBS}:drain",
        audit="drain",
        rights=OWNER,
        needs_queue=True,
        button="Drain",
        is_danger=True,
        parameters=(
            argument("worker", "The process: HOST:PID, or the id of its heartbeat.", metavar="HOST:PID"),
        ),
        examples=("memline queue drain build-7:4211",),
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
        rights=OWNER,
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
        rights=OWNER,
        button="Resume",
        parameters=(_PROVIDER, _MODE),
        examples=(
            "memline queue resume",
            "memline queue resume --mode batch",
            "memline queue resume --provider gemini",
        ),
    ),
    Call(
        name="queue probe",
        title="Try a provider that stopped or asked to wait with one request now.",
        text="""\
Try a provider that stopped, or asked to wait (429), with one request now, without waiting for the end of
that time.

If it fails, the breaker stays open for longer. Exit status 1 when no breaker is open and nothing is waited
for.""",
        answer="probed",
        run=f"{_VERBS}:probe",
        audit="probe",
        rights=OWNER,
        button="Probe now",
        parameters=(_PROVIDER, _MODE),
        examples=("memline queue probe", "memline queue probe --provider openai --mode batch"),
    ),
    Call(
        name="queue retry",
        title="Try failed texts again now.",
        text="""\
Try texts without a vector again: those of a group, those named by --text, or all of the agents meant.

Those that were left alone are tried as well. It costs what their tokens cost; the dashboard lists them by
their error, with file and lines.""",
        answer="texts",
        run=f"{_VERBS}:retry_texts",
        audit="retry",
        button="Retry",
        parameters=(_ERROR, _TEXT),
        examples=("memline queue retry", "memline queue retry --agent work --group 3fa2c1d8"),
    ),
    Call(
        name="queue leave",
        title="Leave failed texts alone.",
        text="""\
Leave texts without a vector alone: those of a group, those named by --text, or all of the agents meant.

They are found by their words, stop being a finding, and are not tried again until `queue retry`. A text
that is changed is a new one.""",
        answer="texts",
        run=f"{_VERBS}:leave_texts",
        audit="leave",
        button="Leave",
        parameters=(_ERROR, _TEXT),
        examples=("memline queue leave", "memline queue leave --agent work --text 5f3a9c21"),
    ),
    Call(
        name="queue providers",
        title="Show the provider accounts.",
        text=(
            "Show the provider accounts: calls, latency and errors of a day, places of the minute, breakers."
        ),
        answer="accounts",
        examples=("memline queue providers", "memline queue providers --agent work --json"),
    ),
)
