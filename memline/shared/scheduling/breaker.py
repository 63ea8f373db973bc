"""Decide what a circuit breaker of a provider does next: a value in, a value out, the time an argument.

    closed     texts are sent; after a failure one request at a time, with growing cooldowns between
       |  `Rules.max_failures` failures in a row, or a definite stop (bad key, no quota)
       v
    open       no process calls; the breaker's cooldown runs
       |  the cooldown is over and texts are wanted: exactly one request is sent, the probe
       v
    half_open  the probe is in flight and no other process calls
       |- the probe worked:   closed
       |- the probe failed:   open, for twice as long, up to `Rules.max_open_s`
       `- the probe was lost: open, and the next one may be sent at once

An answer from before the breaker opened changes nothing until it is closed again. `shared.scheduling.health`
keeps the values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memline.shared.values import replace, value

if TYPE_CHECKING:
    from memline.shared.config.schema import Batch
    from memline.shared.index.rows import LearnedCaps

CLOSED = "closed"
OPEN = "open"
HALF_OPEN = "half_open"


@value
class Rules:
    """When a breaker opens, and for how long."""

    #: Failures in a row that open it.
    max_failures: int
    #: Seconds it stays open the first time; doubled by each probe that fails.
    open_s: float
    #: Longest of these, in seconds.
    max_open_s: float
    #: Seconds of cooldown after the first failure, while it is closed and the provider named no time; doubled
    #: by each further failure. A shorter `Retry-After` is not trusted: a provider that says "at once" and
    #: never answers would be asked for ever. 0: no cooldowns.
    first_cooldown_s: float = 0.0
    #: Longest of these cooldowns, in seconds.
    max_cooldown_s: float = 60.0


#: A breaker of requests opens after half a minute of trouble: six failures with cooldowns of 1, 2, 4, 8 and
#: 16 s between them. Its probe is one request, so it is sent early and often.
REQUEST_RULES = Rules(max_failures=6, open_s=300.0, max_open_s=3_600.0, first_cooldown_s=1.0)


#: Quick answers to full requests after which a shrunk size doubles. An answer is quick within a quarter of
#: the time limit, so that twice the texts come within half of it; and a minute's limit that allows no more
#: than this size has refused one by then.
GROW_AFTER = 4

#: The same after requests that failed for no reason that is known: what is sent to try may be paid for.
GROW_AFTER_FAILURES = 100

#: A shrunk size that would grow to this is forgotten: no provider takes larger requests.
MAX_SHRUNK_ROWS = 4_096


def batch_rules(batch: Batch) -> Rules:
    """Return the rules of batches by the settings `remote.batch`.

    A batch takes minutes to a day to fail, and costs nothing but time while requests go on instead.
    """
    open_s = 60.0 * batch.cool_down_minutes
    return Rules(max_failures=batch.failure_limit, open_s=open_s, max_open_s=12 * open_s)


@value
class Health:
    """The state of a provider in one mode; the defaults are those of one that never failed."""

    state: str = CLOSED
    reason: str = ""
    action: str = ""
    #: In a row.
    failures: int = 0
    #: No process calls before this time (seconds since the epoch), whatever the state.
    retry_at: float = 0.0
    #: When the breaker opened; 0 while it is closed.
    since: float = 0.0
    #: When the next probe may be sent, while it is open.
    probe_at: float = 0.0
    #: Times it opened since it was closed last.
    opens: int = 0
    #: What names the probe in flight: the token of a lease, the tag of a batch.
    probe: str = ""
    #: The index that it is of, and when it counts as lost at the latest (seconds since the epoch).
    probe_index: str = ""
    probe_until: float = 0.0
    #: Whether an operator paused it, for this agent.
    manual: bool = False
    #: Caps the provider taught; 0 is none. Tokens: of a request, or of all open batches together. They are
    #: stored, since each run of `memline index` would meet them again; `queue resume` forgets them.
    max_rows: int = 0
    max_tokens: int = 0
    #: Texts of a request since one took too long, met a limit of texts a minute twice, or failed twice; 0: no
    #: such cap. It grows again with quick answers.
    shrunk_rows: int = 0
    #: Quick answers to requests of that size, since it changed last; below 0: so many more are needed.
    quick_answers: int = 0
    #: Texts of the request that met a limit of texts a minute last, while nothing has been embedded since.
    limited_rows: int = 0

    @property
    def paused(self) -> bool:
        """Whether the provider is not to be called, but for a probe."""
        return self.state != CLOSED

    @property
    def is_stopped(self) -> bool:
        """Whether nothing is sent but a probe: the breaker is not closed, or a person has paused it."""
        return self.paused or self.manual

    def is_stuck(self, now: float) -> bool:
        """Tell whether nothing moves by itself now."""
        return self.manual or (self.state == OPEN and self.probe_at > now)


#: The fields of a probe while none is in flight.
_NO_PROBE: dict[str, Any] = {"probe": "", "probe_index": "", "probe_until": 0.0}


def after_failure(
    health: Health, rules: Rules, error: str, action: str, now: float, *, probe: str = ""
) -> Health:
    """Return the health after a failure that may pass; `probe` names the request or batch that failed."""
    if _is_outdated(health, probe):
        return health
    if health.state == HALF_OPEN:
        return _opened(health, rules, error, action, now)
    if rules.first_cooldown_s and health.retry_at > now:
        # It was in flight together with the one that began the cooldown: the same trouble, counted once.
        return health
    failures = health.failures + 1
    if failures >= rules.max_failures:
        return _opened(health, rules, error, action, now)
    cooldown_s = min(rules.first_cooldown_s * 2.0 ** (failures - 1), rules.max_cooldown_s)
    retry_at = now + cooldown_s if cooldown_s else health.retry_at
    return replace(health, reason=error, action=action, failures=failures, retry_at=retry_at)


def after_stop(
    health: Health, rules: Rules, error: str, action: str, now: float, *, probe: str = ""
) -> Health:
    """Return the health after a definite no (bad key, no quota): the breaker opens at once."""
    return health if _is_outdated(health, probe) else _opened(health, rules, error, action, now)


#: How the words of a worker end that asked no provider: at a configured limit, or while one is waited for.
WAITS = (AT_LIMIT, ASKED_TO_WAIT, HAS_COOLDOWN) = (
    "is at the limits of this configuration",
    "asked to wait (429)",
    "has a cooldown",
)


def after_trouble(
    health: Health, error: str, action: str, retry_after_s: float | None, now: float, *, probe: str = ""
) -> Health:
    """Return the health after a request that may work later: the cooldown it asked for, else a failure."""
    if retry_after_s is None or retry_after_s < REQUEST_RULES.first_cooldown_s:
        action = action or "memline index   (when the provider is well again)"
        return after_failure(health, REQUEST_RULES, error, action, now, probe=probe)
    if _is_outdated(health, probe):
        return health
    # A time to wait is not a failure.
    retry_at = max(health.retry_at, now + retry_after_s)
    if health.state == HALF_OPEN:
        return replace(health, state=OPEN, probe_at=retry_at, **_NO_PROBE)
    # The provider's own words stay: a worker that only waits meanwhile has none. A limit of the configuration
    # is a reason of its own, once their time is over.
    is_of_worker = error.endswith(WAITS if health.retry_at > now else (ASKED_TO_WAIT, HAS_COOLDOWN))
    is_held = bool(health.reason) and is_of_worker
    return replace(health, reason=health.reason if is_held else error, retry_at=retry_at)


def after_sizes(health: Health, learned: LearnedCaps) -> Health:
    """Return the health with what a request taught about the size of the next ones."""
    health = replace(
        health,
        max_rows=tighter(health.max_rows, learned.max_rows),
        max_tokens=tighter(health.max_tokens, learned.max_tokens),
    )
    if learned.slow_rows:
        rows = tighter(health.shrunk_rows, learned.slow_rows)
        return replace(health, shrunk_rows=rows, quick_answers=0)
    if not health.shrunk_rows or learned.quick_rows < health.shrunk_rows:
        return health
    if health.quick_answers + 1 < GROW_AFTER:
        return replace(health, quick_answers=health.quick_answers + 1)
    rows = 2 * health.shrunk_rows
    return replace(health, shrunk_rows=rows if rows < MAX_SHRUNK_ROWS else 0, quick_answers=0)


def after_text_limit(
    health: Health, rows: int, error: str, action: str, retry_after_s: float | None, now: float, probe: str
) -> Health:
    """Return the health after a request of so many texts met a limit of texts a minute.

    The first time only the limit is waited for. If a request of that size is refused again, with nothing
    embedded in between, it may be more than the limit allows at all: the next ones have half its texts. A
    single text that is refused again is a failure, or it would be sent for ever.
    """
    after = after_trouble(health, error, action, retry_after_s, now, probe=probe)
    if health.state != CLOSED or health.retry_at > now:
        # It was in flight together with the one that began the cooldown.
        return after
    after = replace(after, quick_answers=0, limited_rows=rows)
    if not 0 < health.limited_rows <= rows:
        return after
    if rows > 1:
        return replace(after, shrunk_rows=tighter(health.shrunk_rows, rows // 2), limited_rows=0)
    failed = after_failure(replace(health, limited_rows=1), REQUEST_RULES, error, action, now, probe=probe)
    return failed if failed.paused else replace(failed, retry_at=max(failed.retry_at, after.retry_at))


def after_failed_texts(
    health: Health, rows: int, error: str, action: str, retry_after_s: float | None, now: float, probe: str
) -> Health:
    """Return the health after a request of so many texts failed that may work later.

    A server that fails at large requests, as without memory for them, says no more than one that is away, and
    answers a probe: the same request would be sent for ever. So the second failure in a row halves the next.
    """
    after = after_trouble(health, error, action, retry_after_s, now, probe=probe)
    is_counted = health.state == CLOSED and after.failures > health.failures
    if rows < 2 or not is_counted or not health.failures:
        return after
    shrunk = tighter(health.shrunk_rows, rows // 2)
    return replace(after, shrunk_rows=shrunk, quick_answers=GROW_AFTER - GROW_AFTER_FAILURES)


def after_success(health: Health, *, probe: str = "") -> Health:
    """Return the health after a good answer."""
    if _is_outdated(health, probe):
        return health
    return replace(
        health,
        state=CLOSED,
        reason="",
        action="",
        failures=0,
        since=0.0,
        probe_at=0.0,
        opens=0,
        limited_rows=0,
        **_NO_PROBE,
    )


def after_refused_text(health: Health, *, probe: str = "") -> Health:
    """Return the health after a refused text: neither success nor fault, but a provider that judges works."""
    return after_success(health, probe=probe) if health.state == HALF_OPEN else health


def begin_probe(
    health: Health, probe: str, now: float, *, index: str = "", until: float = 0.0
) -> Health | None:
    """Return the health once `probe` is sent; None when no probe may be sent."""
    if health.state != OPEN or health.manual or health.probe_at > now:
        return None
    return replace(health, state=HALF_OPEN, probe=probe, probe_index=index, probe_until=until)


def after_lost_probe(health: Health, probe: str, now: float) -> Health:
    """Return the health when the probe will never be answered: it was cancelled, or its worker died."""
    if health.state != HALF_OPEN or _is_outdated(health, probe):
        return health
    return replace(health, state=OPEN, probe_at=now, **_NO_PROBE)


def on_trial(health: Health, rules: Rules) -> Health:
    """Return the health when an operator says that it works again: closed, but the next failure opens it."""
    if health.state == CLOSED:
        return health
    return replace(
        after_success(replace(health, state=CLOSED)), failures=max(rules.max_failures - 1, 0), retry_at=0.0
    )


def tried_now(health: Health, now: float) -> Health:
    """Return the health when an operator ends the wait that a provider asked for: one request tries.

    The others follow it when it works. The provider's words stay until then.
    """
    if health.state != CLOSED or health.retry_at <= now:
        return health
    return replace(health, failures=max(health.failures, 1), retry_at=0.0)


def tighter(cap: int, other: int) -> int:
    """Return the smaller of two caps, 0 meaning none."""
    return min(cap, other) if cap and other else cap or other


def _is_outdated(health: Health, probe: str) -> bool:
    """Tell whether an outcome was sent before the breaker opened, or before the probe that is in flight."""
    is_older = health.state == HALF_OPEN and bool(probe) and bool(health.probe) and probe != health.probe
    return health.state == OPEN or is_older


def _opened(health: Health, rules: Rules, error: str, action: str, now: float) -> Health:
    opens = health.opens + 1
    # An exponent with a limit: a provider that is dead for a year must not overflow a float.
    open_s = min(rules.open_s * 2.0 ** min(opens - 1, 30), rules.max_open_s)
    return replace(
        health,
        state=OPEN,
        reason=error,
        action=action,
        failures=health.failures + 1,
        # What was deferred meanwhile waits for the probe, not for a time.
        retry_at=0.0,
        since=health.since or now,
        probe_at=now + open_s,
        opens=opens,
        **_NO_PROBE,
    )
