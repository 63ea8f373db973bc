"""Taking in what a finished batch brought, and judging what that says of its provider."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from shared.clock import Clock
from shared.embedders.batch import BatchApi, BatchLook, BatchResult
from shared.errors import ProviderBrokenAnswer, ProviderError, ProviderTooBig
from shared.index import batch_tokens
from shared.index.batch_claims import HAND_OUT_S, Claim
from shared.index.batch_over import MAX_TRIES, TIMED_OUT, action_of, over, put_off_s, verdict_of
from shared.index.batches import Batch, Verdict
from shared.index.driver import transaction
from shared.index.rows import VectorRow

if TYPE_CHECKING:
    from sqlite3 import Connection

#: Rows a message brings to the store worker.
PIECE_ROWS = 100

#: Times a file is read again that has fewer rows than its provider made: the answer may have been cut off.
SHORT_TRIES = 2

#: HTTP statuses of a file that will not come back.
_GONE = frozenset({404, 410})

#: Kinds of errors that are the text's own.
_OF_THE_TEXT = ("refused", "too_big")


class Sink(Protocol):
    """Where what a batch brought goes: the store worker."""

    def vectors(self, rows: tuple[VectorRow, ...]) -> None:
        """Keep these. May take its time; raises Interrupted when this process is told to stop."""

    def failures(self, hashes: tuple[bytes, ...], *, kind: str, error: str, action: str) -> None:
        """These texts brought an error: `refused`, `too_big` or `broken`."""


@dataclass(slots=True)
class _Failures:
    """Rows that brought an error. They are told at the end: by then it is known what they say."""

    #: (kind, message, hint) -> hashes
    found: dict[tuple[str, str, str], list[bytes]] = field(default_factory=dict)

    def add(self, digest: bytes, error: ProviderError) -> None:
        # In a batch, a row that may work later goes out in a request, whatever kept it.
        kind = error.kind if error.kind in _OF_THE_TEXT else "broken"
        self.found.setdefault((kind, error.message, error.hint), []).append(digest)

    def send(self, sink: Sink, *, are_of_texts: bool) -> None:
        """`are_of_texts`: False when nothing is as it should be, so that a refusal says nothing of a text."""
        for (kind, message, hint), hashes in self.found.items():
            kind = kind if are_of_texts else "broken"
            for start in range(0, len(hashes), PIECE_ROWS):
                piece = tuple(hashes[start : start + PIECE_ROWS])
                sink.failures(piece, kind=kind, error=message, action=hint)


def collect(
    claim: Claim,
    api: BatchApi,
    connection: Connection,
    sink: Sink,
    *,
    look: BatchLook | None,
    clock: Clock,
) -> int | None:
    """Bring what a finished job has to the store worker; the number of texts it has nothing of.

    None when that broke off and is to be done again: what has been stored by then is skipped. Rows of texts
    that the batch does not hold (any more) are, too: those of another job, and those that come twice.
    """
    batch = claim.batch
    rows = connection.execute("SELECT text_hash FROM vectors WHERE lease = ?", (batch.token,))
    left = {row[0] for row in rows}
    is_empty = not left and not batch.stored
    good, brought, first_error = 0, 0, ""
    try:
        if look is None and batch.job_id and batch.outcome != "lost":
            look = api.look(batch.job_id)
        piece: list[VectorRow] = []
        failures = _Failures()
        for result in api.results(look) if look and (look.output or look.errors) else ():
            digest = _digest(result.key)
            claim.renew()
            good += result.vector is not None
            if digest not in left:
                continue
            if _was_not_reached(batch.outcome, result):
                continue
            left.discard(digest)
            if result.vector is None:
                error = result.error or ProviderBrokenAnswer("the row has neither a vector nor an error")
                first_error = first_error or error.message
                failures.add(digest, error)
                continue
            brought += 1
            piece.append(VectorRow(hash=digest, vector=result.vector))
            if len(piece) >= PIECE_ROWS:
                sink.vectors(tuple(piece))
                piece = []
        if piece:
            sink.vectors(tuple(piece))
        if look is not None and good < look.rows_done and batch.attempts < SHORT_TRIES:
            raise ProviderBrokenAnswer(f"of the {look.rows_done} rows of job {look.id} {good} came")
        failures.send(sink, are_of_texts=bool(brought or batch.stored))
    except ProviderError as error:
        attempts = batch.attempts + 1
        is_given_up = batch.cancel_asked and not batch.cancelled_at
        if not is_given_up and (attempts < MAX_TRIES or _is_worth_waiting(batch, error, clock.now())):
            due = clock.now() + put_off_s(attempts, error)
            claim.record(attempts=attempts, error=error.message, action=action_of(error), due=due)
            return None
        if is_given_up:
            over(claim, "cancelled", Verdict.NONE, batch.cancel_reason, clock)
        else:
            over(claim, "lost", Verdict.FAILED, error.message, clock, action=error.hint)
        return len(left)
    if batch.verdict:
        claim.record(due=clock.now() + HAND_OUT_S)
    elif is_empty:
        over(claim, batch.outcome, Verdict.NONE, "its texts are gone", clock)
    else:
        _judge(claim, connection, look, brought or batch.stored, first_error, clock)
    return len(left)


def _is_worth_waiting(batch: Batch, error: ProviderError, now: float) -> bool:
    """Whether what a job made is still to be had: it is paid for, so nobody gives it up before its time."""
    return error.status not in _GONE and not batch.cancel_asked and now < batch.deadline


def _judge(
    claim: Claim,
    connection: Connection,
    look: BatchLook | None,
    brought: int,
    first_error: str,
    clock: Clock,
) -> None:
    """Write down what a job that is over says of its provider."""
    batch = claim.batch
    reason = (look.reason if look else "") or batch.error
    if batch.outcome == "done":
        verdict = Verdict.WORKED if brought else Verdict.FAILED
        error = "" if brought else first_error or "the job brought no row of ours"
        over(claim, "done" if brought else "failed", verdict, error, clock)
    elif batch.outcome == "cancelled":
        over(claim, "cancelled", Verdict.NONE, batch.cancel_reason or "cancelled at the provider", clock)
    elif batch.outcome == TIMED_OUT:
        error = reason or f"job {batch.job_id} was not done in time ({batch.said})"
        hint = "set remote.batch.timeoutMinutes higher, or remote.batch.wait to false"
        over(claim, batch.outcome, Verdict.FAILED, error, clock, action=hint)
    else:
        error = reason or first_error or f"job {batch.job_id}: {batch.outcome}"
        verdict = _verdict_of_job(connection, batch, look.error if look else None, clock.now())
        action = look.error.hint if look and look.error else ""
        over(claim, batch.outcome, verdict, error, clock, action=action)


def _verdict_of_job(connection: Connection, batch: Batch, error: ProviderError | None, now: float) -> str:
    """What the failure of a job as a whole says of its provider."""
    if not isinstance(error, ProviderTooBig):
        return verdict_of(error) if error is not None else Verdict.FAILED
    if not error.max_tokens:
        return Verdict.TOO_BIG
    with transaction(connection):
        is_smaller = batch_tokens.learn(connection, batch, error.max_tokens, now)
    # Others fill the account, or it takes next to nothing: requests are the better way.
    return Verdict.NONE if is_smaller else Verdict.FAILED


def _was_not_reached(outcome: str, result: BatchResult) -> bool:
    """Whether the row only says that its job ended before its turn came: nothing is wrong with the text."""
    return outcome != "done" and result.error is not None and result.error.kind not in _OF_THE_TEXT


def _digest(key: str) -> bytes:
    try:
        return bytes.fromhex(key)
    except ValueError:
        return b""
