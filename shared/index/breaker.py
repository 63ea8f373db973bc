"""The circuit breaker of a provider, one state machine for both of its modes: requests and batches.

    closed     what is wanted goes out; after a failure one request at a time, with growing holds between
       |  `Rules.limit` failures in a row, or a definite stop (bad key, no quota)
       v
    open       nobody calls; the cool-down runs
       |  the cool-down is over and somebody has something to send: exactly one goes, the probe
       v
    half_open  the probe is out and nobody else calls
       |- the probe worked:   closed
       |- the probe failed:   open, for twice as long, up to `Rules.max_cool_down_s`
       `- the probe was lost: open, and the next one may go at once

Here the state is only computed: a value in, a value out, the time an argument. `health` keeps it as rows,
inside the transaction of whoever sends or writes down an answer, so that of any number of processes one
gets the probe. What comes back late, from before the breaker opened, changes nothing while it is not closed.
"""

from __future__ import annotations

from dataclasses import replace

from shared.values import value

CLOSED = "closed"
OPEN = "open"
HALF_OPEN = "half_open"


@value
class Rules:
    """When a breaker opens, and for how long."""

    #: Failures in a row that open it.
    limit: int
    #: Seconds it stays open the first time; doubled by each probe that fails.
    cool_down_s: float
    #: Longest of these, in seconds.
    max_cool_down_s: float
    #: Seconds nobody calls after the first failure that came without a word about when, while it is closed;
    #: doubled by each further. A told wait of less is none: a provider that says "retry at once" and never
    #: answers would be asked for ever. 0: no holds.
    first_hold_s: float = 0.0
    #: Longest of these holds, in seconds.
    max_hold_s: float = 60.0


@value
class Health:
    """What is known of a provider in one mode; the defaults are those of one that was never in trouble."""

    state: str = CLOSED
    reason: str = ""
    action: str = ""
    #: In a row.
    failures: int = 0
    #: Nobody calls before this time (seconds since the epoch), for what makes the provider wait.
    hold_until: float = 0.0
    #: When the breaker opened; 0 while it is closed.
    since: float = 0.0
    #: When the next probe may go, while it is open.
    probe_at: float = 0.0
    #: Times it opened since it was closed last.
    opens: int = 0
    #: What names the probe that is out: the token of a lease, the tag of a batch.
    probe: str = ""
    #: Whether a person paused it.
    by_hand: bool = False
    #: Caps the provider taught; 0 is none. Tokens: of a request, or of all open batches together.
    max_rows: int = 0
    max_tokens: int = 0

    @property
    def paused(self) -> bool:
        """Whether the provider is not to be called, but for a probe."""
        return self.state != CLOSED

    def is_stuck(self, now: float) -> bool:
        """Whether nothing moves by itself now."""
        return self.by_hand or (self.state == OPEN and self.probe_at > now)


def failed(was: Health, rules: Rules, error: str, action: str, now: float, *, probe: str = "") -> Health:
    """The health after a failure that may pass; `probe` names what failed."""
    if was.state == OPEN or _is_late(was, probe):
        return was
    if was.state == HALF_OPEN:
        return _opened(was, rules, error, action, now)
    if rules.first_hold_s and was.hold_until > now:
        # It was out together with the one that brought the hold: the same trouble, counted once.
        return was
    failures = was.failures + 1
    if failures >= rules.limit:
        return _opened(was, rules, error, action, now)
    hold_s = min(rules.first_hold_s * 2.0 ** (failures - 1), rules.max_hold_s)
    held_until = now + hold_s if hold_s else was.hold_until
    return replace(was, reason=error, action=action, failures=failures, hold_until=held_until)


def stopped(was: Health, rules: Rules, error: str, action: str, now: float, *, probe: str = "") -> Health:
    """The health after a definite no: it opens at once."""
    if was.state == OPEN or _is_late(was, probe):
        return was
    return _opened(was, rules, error, action, now)


def told_to_wait(
    was: Health, rules: Rules, error: str, wait_s: float, now: float, *, probe: str = ""
) -> Health:
    """The health after a provider said how long to leave it alone; to do so is no failure."""
    if was.state == OPEN or _is_late(was, probe):
        return was
    until = max(was.hold_until, now + wait_s)
    if was.state == HALF_OPEN:
        return replace(was, state=OPEN, probe="", probe_at=until)
    return replace(was, reason=error, hold_until=until)


def worked(was: Health, *, probe: str = "") -> Health:
    """The health after something good came back."""
    if was.state == OPEN or _is_late(was, probe):
        return was
    return replace(
        was, state=CLOSED, reason="", action="", failures=0, since=0.0, probe_at=0.0, opens=0, probe=""
    )


def answered(was: Health, *, probe: str = "") -> Health:
    """The health after an answer that is no success and no fault of the provider: it refused a text."""
    return worked(was, probe=probe) if was.state == HALF_OPEN else was


def began_probe(was: Health, probe: str, now: float) -> Health | None:
    """The health once `probe` is on its way; None when it may not go."""
    if was.state != OPEN or was.by_hand or was.probe_at > now:
        return None
    return replace(was, state=HALF_OPEN, probe=probe)


def lost_probe(was: Health, probe: str, now: float) -> Health:
    """The health when nobody will ever hear of the probe: withdrawn, or its worker died."""
    if was.state != HALF_OPEN or _is_late(was, probe):
        return was
    return replace(was, state=OPEN, probe="", probe_at=now)


def on_trial(was: Health, rules: Rules) -> Health:
    """The health when a person says that it works again: closed, but the next failure opens it."""
    if was.state == CLOSED:
        return was
    return replace(worked(replace(was, state=CLOSED)), failures=max(rules.limit - 1, 0), hold_until=0.0)


def _is_late(was: Health, probe: str) -> bool:
    """Whether this is the outcome of something older than the probe that is out."""
    return was.state == HALF_OPEN and bool(probe) and bool(was.probe) and probe != was.probe


def _opened(was: Health, rules: Rules, error: str, action: str, now: float) -> Health:
    opens = was.opens + 1
    # An exponent of its own limit: a provider that is dead for a year must not overflow a float.
    cool_down_s = min(rules.cool_down_s * 2.0 ** min(opens - 1, 30), rules.max_cool_down_s)
    return replace(
        was,
        state=OPEN,
        reason=error,
        action=action,
        failures=was.failures + 1,
        # What was held back meanwhile waits for the probe, not for a time.
        hold_until=0.0,
        since=was.since or now,
        probe_at=now + cool_down_s,
        opens=opens,
        probe="",
    )
