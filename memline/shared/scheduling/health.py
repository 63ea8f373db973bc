"""Keep how a provider is doing: a circuit breaker for each account, model and mode, as one row.

    closed ── 3 failures in a row, or a definite no ──► open ── `retry_at` is over ──► one request goes out
       ▲                                                 ▲                                │
       └───────────────────── it worked ─────────────────┴─ it failed: the rest doubles ──┘

Who moves `retry_at` of an open breaker on may send that request, the probe. If its answer never comes, the
next may go when that time is over. The rows are in the account file; a pause by a person is in its index.
"""

from __future__ import annotations

from collections.abc import Callable
from sqlite3 import Connection

import msgspec

from memline.shared.config.schema import Batch
from memline.shared.index import meta
from memline.shared.index.accounts import Accounts

#: The modes of a provider.
MODES = REQUESTS, BATCH = "requests", "batch"

#: Seconds of the pause after a first failure, and after the second.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 2.0

#: Opens in a row after which a provider fails for good: its fallback takes over, and `memline index` ends.
FOR_GOOD = 2

#: Requests of the largest size that work until it doubles, and a size that no provider passes.
GROW_AFTER, MAX_ROWS = 32, 2_048

#: Seconds that a provider may ask to wait, and that the probe of a breaker for batches may last.
LONGEST_S = 86_400.0

#: What is said of a pause that a person asked for.
PAUSED = "embedding is paused"


class Rules(msgspec.Struct, frozen=True):
    """When a breaker opens, and for how long."""

    #: Failures in a row that open it.
    max_failures: int
    #: Seconds of the first rest. Each probe that fails doubles it, up to ten times as long.
    open_s: float
    #: Whether a failure before that is followed by a pause.
    pauses: bool = True


REQUEST_RULES = Rules(max_failures=3, open_s=30.0)


def batch_rules(batch: Batch) -> Rules:
    """Return the rules of batches by the settings `remote.batch`: requests go on meanwhile."""
    return Rules(batch.failure_limit, 60.0 * batch.cool_down_minutes, pauses=False)


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a provider in one mode; the defaults are those of one that never failed."""

    #: In a row.
    failures: int = 0
    #: Times that it opened in a row; 0: it is closed.
    opens: int = 0
    #: No process calls before this time (seconds since the epoch); of an open one the next probe may go then.
    retry_at: float = 0.0
    reason: str = ""
    action: str = ""
    #: Texts of a request at most, as answers taught; 0: what the provider documents.
    max_rows: int = 0
    #: Requests of `max_rows` texts that worked since that changed.
    full_answers: int = 0
    #: Whether a person paused it, for this index.
    manual: bool = False

    @property
    def paused(self) -> bool:
        """Whether the breaker is open: the provider is not to be called, but for a probe."""
        return self.opens > 0

    @property
    def has_given_up(self) -> bool:
        """Whether it fails for good: a definite no, or a probe that failed as well."""
        return self.opens >= FOR_GOOD

    @property
    def is_stopped(self) -> bool:
        """Whether nothing is sent but a probe: the breaker is open, or a person has paused it."""
        return self.paused or self.manual

    def is_stuck(self, now: float) -> bool:
        """Tell whether nothing moves by itself now."""
        return self.manual or (self.paused and self.wait_s(now) > 0)

    def wait_s(self, now: float) -> float:
        """Return the seconds until the provider may be called."""
        return max(0.0, self.retry_at - now)


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Texts of a request that got no vector, and why."""

    hashes: tuple[bytes, ...] = ()
    #: later, split, too_big, refused, stop, broken (`shared.errors.ProviderError.kind`), or unsent.
    kind: str
    error: str
    #: What an operator can do about it.
    action: str = ""
    #: Seconds the provider asked for; None when it did not.
    retry_after_s: float | None = None
    #: The request returned no vector at all, so the provider may be what is broken. Said once a request.
    no_results: bool = False
    #: No connection was made, so its size cannot be why.
    is_unreachable: bool = False
    #: It was the one request to a provider that had failed before.
    is_probe: bool = False


def after_failure(
    was: Health, failure: Failure, now: float, *, rules: Rules = REQUEST_RULES, counts_texts: bool = False
) -> Health:
    """Return the health after a request failed; `counts_texts`: whether limits of the provider count texts.

    A definite no (bad key, no quota, unknown model) opens the breaker at once. What came of a request that
    was in flight when it opened changes nothing.
    """
    if was.paused and not failure.is_probe:
        return was
    error, wait_s = failure.error, failure.retry_after_s or 0.0
    match failure.kind:
        case "stop":
            opens, failures = max(was.opens, FOR_GOOD - 1), was.failures + 1
            was = _replace(was, failures=failures, reason=error, action=failure.action, opens=opens)
            return _opened(was, rules, now)
        case "later" if wait_s >= FIRST_PAUSE_S:
            # A 429 with a time is no failure. Where texts are counted, as many may be more than a minute has.
            rows = len(failure.hashes) // 2 if counts_texts and not was.paused else 0
            return learned(_waiting(was, wait_s, error, now), rows)
        case "split" | "unsent":
            return _waiting(was, wait_s, was.reason or error, now) if wait_s or was.paused else was
        case "later" | "broken" if failure.kind == "later" or failure.no_results:
            # A provider that answers nothing but nonsense is not asked for a whole backlog.
            return _failed(was, failure, rules, now)
    # A provider that judges texts works.
    return worked(was) if was.paused else was


def _failed(was: Health, failure: Failure, rules: Rules, now: float) -> Health:
    """Return the health after a failure that may pass.

    A server that fails at large requests, as without memory for them, answers a small probe: so the second
    failure in a row halves the next request.
    """
    if not was.paused and was.wait_s(now):
        # It was in flight together with the one that began the pause: the same trouble.
        return was
    rows = len(failure.hashes)
    is_size = failure.kind == "later" and not failure.is_unreachable
    halved = rows // 2 if rows > 1 and was.failures and is_size else was.max_rows
    reason, action = failure.error, failure.action
    was = _replace(was, failures=was.failures + 1, reason=reason, action=action, full_answers=0)
    if was.paused or was.failures >= rules.max_failures:
        return _opened(was, rules, now)
    pause_s = FIRST_PAUSE_S * 2.0 ** (was.failures - 1) if rules.pauses else 0.0
    return _replace(was, retry_at=now + pause_s, max_rows=tighter(was.max_rows, halved))


def learned(was: Health, max_rows: int) -> Health:
    """Return the health with what a request taught about the texts of the next ones; 0 is nothing."""
    rows = tighter(was.max_rows, max_rows)
    return _replace(was, max_rows=rows, full_answers=was.full_answers if rows == was.max_rows else 0)


def worked(was: Health, rows: int = 0) -> Health:
    """Return the health after a good answer for so many texts."""
    retry_at = 0.0 if was.paused else was.retry_at
    after = _replace(was, failures=0, opens=0, reason="", action="", retry_at=retry_at)
    if not was.max_rows or rows < was.max_rows:
        return after
    if was.full_answers + 1 < GROW_AFTER:
        return _replace(after, full_answers=was.full_answers + 1)
    return _replace(after, max_rows=2 * was.max_rows if 2 * was.max_rows < MAX_ROWS else 0, full_answers=0)


def tighter(cap: int, other: int) -> int:
    """Return the smaller of two caps, 0 meaning none."""
    return min(cap, other) if cap and other else cap or other


def _waiting(was: Health, seconds: float, reason: str, now: float) -> Health:
    """Return the health after a request that is to wait: a probe is followed by the next one after that."""
    retry_at = now + min(seconds, LONGEST_S)
    if was.paused:
        return _replace(was, retry_at=retry_at)
    return _replace(was, retry_at=max(was.retry_at, retry_at), reason=reason)


def _opened(was: Health, rules: Rules, now: float) -> Health:
    # Four times, and ten: a provider that is dead for a year must not overflow a float.
    rest_s = rules.open_s * min(2.0 ** min(was.opens, 4), 10.0)
    return _replace(was, opens=was.opens + 1, retry_at=now + rest_s)


_replace = msgspec.structs.replace


# The rows.

_COLUMNS = tuple(name for name in Health.__struct_fields__ if name != "manual")
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM health WHERE account = ? AND model = ? AND mode = ?"
_WRITE = (
    f"INSERT OR REPLACE INTO health (account, model, mode, {', '.join(_COLUMNS)})"
    f" VALUES (?, ?, ?, {', '.join('?' * len(_COLUMNS))})"
)


def read(accounts: Accounts, provider: str, mode: str = REQUESTS, *, model: str = "") -> Health:
    """Return the health of a provider in a mode, as the index of `accounts` has it.

    `model`: empty for the one that the index has of this provider.
    """
    return reader(accounts, provider, mode, model=model)()


def reader(
    accounts: Accounts, provider: str, mode: str = REQUESTS, *, model: str = ""
) -> Callable[[], Health]:
    """Return what reads that health again and again, right until the index changes."""
    key, is_paused = _key(accounts, provider, mode, model), provider in _manual(accounts)

    def read_again() -> Health:
        with accounts.file.reading() as connection:
            health = _read(connection, key)
        return _replace(health, manual=True) if is_paused else health

    return read_again


def read_all(accounts: Accounts) -> dict[tuple[str, str], Health]:
    """Return the health of every provider of the index that was in trouble, by provider and mode."""
    names = {*meta.get(accounts.index, meta.HEALTH_OF, {}), *_manual(accounts)}
    every = {(name, mode): read(accounts, name, mode) for name in sorted(names) for mode in MODES}
    return {key: health for key, health in every.items() if health != Health()}


def update(accounts: Accounts, provider: str, mode: str, change: Callable[[Health], Health]) -> None:
    """Apply a change to the health of a provider in a mode."""
    key = _key(accounts, provider, mode)
    with accounts.file.reading() as reader:
        before = _read(reader, key)
    if change(before) == before:
        return
    with accounts.file.writing() as connection:
        after = change(_read(connection, key))
        connection.execute(_WRITE, (*key, *(getattr(after, column) for column in _COLUMNS)))


def take_probe(accounts: Accounts, provider: str, mode: str, now: float, until: float) -> bool:
    """Take the right to send the one probe of an open breaker; False when it may not be sent yet.

    `until`: when another may go if this one is never answered.
    """
    change = (
        "UPDATE health SET retry_at = ? WHERE account = ? AND model = ? AND mode = ?"
        " AND opens > 0 AND retry_at <= ?"
    )
    with accounts.file.writing() as connection:
        taken = connection.execute(change, (until, *_key(accounts, provider, mode), now))
        return taken.rowcount > 0


def resume(accounts: Accounts, provider: str, mode: str = REQUESTS) -> None:
    """Put a provider on trial at once, whatever it asked for, since a person wishes it.

    One request tries. As many failures as open a breaker of requests count, so if it fails that opens again.
    """

    def change(was: Health) -> Health:
        enough = REQUEST_RULES.max_failures if was.paused else int(was.retry_at > 0)
        return _replace(was, failures=max(was.failures, enough), opens=0, retry_at=0.0)

    update(accounts, provider, mode, change)


def set_paused(accounts: Accounts, provider: str, is_paused: bool) -> None:
    """Pause a provider for a person, or end that pause, in the caller's transaction."""
    paused = _manual(accounts) | {provider} if is_paused else _manual(accounts) - {provider}
    meta.put(accounts.index, meta.PAUSED_PROVIDERS, sorted(paused) or None)


def action_of(health: Health, provider: str) -> str:
    """Return what ends a pause by a person, or a stop; empty where neither is."""
    resume = f"memline queue resume --provider {provider}"
    return resume if health.manual else health.action or resume * health.paused


def _read(connection: Connection | None, key: tuple[str, str, str]) -> Health:
    row = connection.execute(_SELECT, key).fetchone() if connection else None
    return Health(**dict(zip(_COLUMNS, row, strict=True))) if row else Health()


def _key(accounts: Accounts, provider: str, mode: str, model: str = "") -> tuple[str, str, str]:
    return accounts.of(provider), model or accounts.owner(provider)[0], mode


def _manual(accounts: Accounts) -> set[str]:
    """Read which providers a person paused."""
    return set(meta.get(accounts.index, meta.PAUSED_PROVIDERS, ()))
