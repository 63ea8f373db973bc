"""When a batch is over: what it then says of the provider, and how long a step that failed is put off."""

from __future__ import annotations

from shared.clock import Clock
from shared.embedders.classify import is_bad_key
from shared.errors import MemlineError, ProviderError
from shared.index.batch_claims import HAND_OUT_S, Claim
from shared.index.batches import Verdict

#: The outcome of a batch that took longer than somebody waits.
TIMED_OUT = "timed out"

#: Times in a row a step fails before the batch is given up. With the waits between them, half a minute.
MAX_TRIES = 5

#: Seconds until a step that failed is tried again; doubled each further time.
FIRST_WAIT_S, LONGEST_WAIT_S = 2.0, 60.0

#: HTTP statuses that speak of the account, so of requests as well.
_OF_THE_ACCOUNT = frozenset({402, 429})


class Interrupted(MemlineError):
    """This process was told to stop in the middle of a long step; the next one goes on."""


def over(claim: Claim, outcome: str, verdict: str, error: str, clock: Clock, *, action: str = "") -> bool:
    """Write down that nothing more comes of a batch; always True. The store worker ends it from here."""
    claim.record(
        state="collecting",
        outcome=outcome,
        verdict=verdict,
        error=error,
        action=action,
        # Should the message to the store worker be lost, the batch is looked at again.
        due=clock.now() + HAND_OUT_S,
        attempts=0,
    )
    return True


def stumble(claim: Claim, error: str, clock: Clock) -> bool:
    """A step ended with an error of our own; True when it has done so too often, and the batch is over."""
    batch = claim.batch
    attempts = batch.attempts + 1
    if batch.state == "cleaning" or attempts < MAX_TRIES:
        claim.record(attempts=attempts, error=error, due=clock.now() + LONGEST_WAIT_S)
        return False
    return over(claim, batch.outcome or "failed", Verdict.FAILED, error, clock)


def verdict_of(error: ProviderError) -> str:
    """What a definite no to an upload or a create says of the provider."""
    if error.kind == "too_big":
        return Verdict.TOO_BIG
    if error.kind != "stop":
        return Verdict.FAILED
    if error.status is None:
        # Nobody was asked: this process's settings do not lead to the provider.
        return Verdict.FAILED
    # A key may be good for requests only: those go on, and if it is bad for all they are told so.
    is_for_all = error.status in _OF_THE_ACCOUNT or is_bad_key(error)
    return Verdict.STOP if is_for_all else Verdict.UNAVAILABLE


def action_of(error: ProviderError) -> str:
    """What somebody has to do before the step can work; empty when it may work by itself."""
    return error.hint if error.kind == "stop" else ""


def put_off_s(attempts: int, error: ProviderError) -> float:
    """Seconds until a step that failed `attempts` times in a row is tried again."""
    wait_s = min(FIRST_WAIT_S * 2.0 ** min(max(attempts - 1, 0), 30), LONGEST_WAIT_S)
    return max(wait_s, error.retry_after_s or 0.0)
