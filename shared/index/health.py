"""Health of a provider as rows, one a mode: its circuit breaker, holds, and caps it taught us.

Beside the index and not in a worker, so that it survives restarts and every process that sends texts out
sees the same. All functions that write run inside the caller's transaction.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shared.index import breaker, meta
from shared.index.breaker import Health as Health
from shared.index.breaker import Rules

if TYPE_CHECKING:
    from sqlite3 import Connection

    from shared.config.schema import Batch

#: The modes of a provider.
REQUESTS = "requests"
BATCH = "batch"
MODES = (REQUESTS, BATCH)

#: A breaker of requests opens after half a minute of trouble: six failures with holds of 1, 2, 4, 8 and 16 s
#: between them. Its probe is one request, so it goes early and often.
REQUEST_RULES = Rules(limit=6, cool_down_s=300.0, max_cool_down_s=3_600.0, first_hold_s=1.0)

#: A batch takes minutes to a day to fail, and costs nothing but time while requests go on instead.
BATCH_RULES = Rules(limit=2, cool_down_s=1_800.0, max_cool_down_s=6 * 3_600.0)

#: The longest cool-down of batches, in first ones.
_MAX_COOL_DOWNS = 12

#: Seconds a cap is believed that a provider taught: to meet it again costs one refused request a week.
CAPS_S = 7 * 86_400.0

#: What a person can do when the provider did not say.
WHEN_WELL = "memline index   (when the provider is well again)"

#: The schema since which there are modes; a reader may look at an older index.
_SINCE_SCHEMA = 3

_COLUMNS = (
    "state, reason, action, failures, hold_until, since, probe_at, opens, probe, by_hand,"
    " max_rows, max_tokens"
)


def batch_rules(batch: Batch) -> Rules:
    """The rules of batches by the settings `remote.batch`."""
    cool_down_s = 60.0 * batch.cool_down_minutes
    return Rules(
        limit=batch.failure_limit, cool_down_s=cool_down_s, max_cool_down_s=_MAX_COOL_DOWNS * cool_down_s
    )


def read(connection: Connection, provider: str, mode: str = REQUESTS) -> Health:
    """The health of `provider` in a mode; of one that was never in trouble, before the writer was here."""
    if connection.execute("PRAGMA user_version").fetchone()[0] < _SINCE_SCHEMA:
        return Health()
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM providers WHERE name = ? AND mode = ?", (provider, mode)
    ).fetchone()
    if row is None:
        return Health()
    values = dict(zip(_COLUMNS.split(", "), row, strict=True))
    return Health(**{**values, "by_hand": bool(values["by_hand"])})


def write(connection: Connection, provider: str, health: Health, now: float, mode: str = REQUESTS) -> None:
    """Keep the health of `provider` in a mode."""
    columns = _COLUMNS.split(", ")
    connection.execute(
        f"INSERT INTO providers (name, mode, {_COLUMNS}, updated_at)"
        f" VALUES (?, ?, {', '.join('?' * len(columns))}, ?) ON CONFLICT (name, mode) DO UPDATE SET "
        + ", ".join(f"{column} = excluded.{column}" for column in (*columns, "updated_at")),
        (provider, mode, *(getattr(health, column) for column in columns), now),
    )


def put_off(
    was: Health, error: str, action: str, retry_after_s: float | None, now: float, *, probe: str = ""
) -> Health:
    """The health after a request that may work later: a hold as long as we were told, else a failure."""
    if retry_after_s is not None and retry_after_s >= REQUEST_RULES.first_hold_s:
        return breaker.told_to_wait(was, REQUEST_RULES, error, retry_after_s, now, probe=probe)
    return breaker.failed(was, REQUEST_RULES, error, action or WHEN_WELL, now, probe=probe)


def batch_failed(
    connection: Connection,
    provider: str,
    error: str,
    action: str,
    now: float,
    *,
    tag: str = "",
    for_good: bool = False,
    rules: Rules = BATCH_RULES,
) -> Health:
    """Note that a batch failed, and return what follows. `tag` names it, as in `may_batch`.

    `for_good`: the provider has no Batch API here, or refuses it; the breaker opens at once.
    """
    was = read(connection, provider, BATCH)
    after = (breaker.stopped if for_good else breaker.failed)(was, rules, error, action, now, probe=tag)
    if after != was:
        write(connection, provider, after, now, BATCH)
    return after


def batch_worked(connection: Connection, provider: str, now: float, *, tag: str = "") -> None:
    """Note that a batch brought vectors."""
    was = read(connection, provider, BATCH)
    after = breaker.worked(was, probe=tag)
    if after != was:
        write(connection, provider, after, now, BATCH)


def batch_lost(connection: Connection, provider: str, now: float, *, tag: str = "") -> None:
    """Note that a batch ended without telling anything of the provider: somebody cancelled it."""
    was = read(connection, provider, BATCH)
    after = breaker.lost_probe(was, tag, now)
    if after != was:
        write(connection, provider, after, now, BATCH)


def may_batch(connection: Connection, provider: str, now: float, *, tag: str = "") -> bool:
    """Whether a batch may be made now; with the breaker open True once, for the probe that `tag` names.

    To be asked in the transaction that writes the intent down, or a crash between the two loses the probe.
    """
    was = read(connection, provider, BATCH)
    if meta.get(connection, meta.PAUSED, False):
        return False
    if was.state == breaker.CLOSED:
        return not was.by_hand
    after = breaker.began_probe(was, tag, now)
    if after is None:
        return False
    write(connection, provider, after, now, BATCH)
    return True


def all_of(connection: Connection) -> dict[tuple[str, str], Health]:
    """All that is known, by provider and mode."""
    if connection.execute("PRAGMA user_version").fetchone()[0] < _SINCE_SCHEMA:
        return {}
    keys = connection.execute("SELECT name, mode FROM providers ORDER BY name, mode DESC").fetchall()
    return {(name, mode): read(connection, name, mode) for name, mode in keys}


def forget(connection: Connection, provider: str) -> None:
    """Forget all that is known of a provider, but for what a person said."""
    for mode in MODES:
        was = read(connection, provider, mode)
        write(connection, provider, Health(by_hand=was.by_hand), 0.0, mode)


def note_caps(connection: Connection, provider: str, now: float) -> None:
    """Note that a provider has taught a cap."""
    meta.put(connection, meta.CAPS_LEARNED, {**meta.get(connection, meta.CAPS_LEARNED, {}), provider: now})


def forget_old_caps(connection: Connection, now: float) -> None:
    """Forget caps learned `CAPS_S` ago: a provider that has raised them is asked for more again."""
    learned: dict[str, float] = meta.get(connection, meta.CAPS_LEARNED, {})
    if old := [provider for provider, at in learned.items() if at + CAPS_S <= now]:
        for provider in old:
            forget_caps(connection, provider)
        left = {provider: at for provider, at in learned.items() if provider not in old}
        meta.put(connection, meta.CAPS_LEARNED, left or None)


def forget_caps(connection: Connection, provider: str) -> None:
    """Forget the caps a provider taught."""
    connection.execute("UPDATE providers SET max_rows = 0, max_tokens = 0 WHERE name = ?", (provider,))


def try_again(
    connection: Connection,
    provider: str,
    now: float,
    mode: str = REQUESTS,
    *,
    rules: Rules | None = None,
) -> None:
    """Somebody says that the provider works again: it is on trial, whatever its cool-down."""
    was = read(connection, provider, mode)
    after = breaker.on_trial(was, rules or (REQUEST_RULES if mode == REQUESTS else BATCH_RULES))
    if after != was:
        write(connection, provider, after, now, mode)


def set_by_hand(connection: Connection, provider: str, is_paused: bool, now: float, mode: str) -> None:
    """Pause a provider in one mode, or end that pause."""
    was = read(connection, provider, mode)
    if was.by_hand != is_paused:
        write(connection, provider, replace(was, by_hand=is_paused), now, mode)


def tighter(cap: int, other: int) -> int:
    """The smaller of two caps, 0 meaning none."""
    return min(cap, other) if cap and other else cap or other
