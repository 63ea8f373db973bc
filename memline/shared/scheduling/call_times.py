"""Count how calls of a provider end, for the metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from memline.shared.digests import shake_256
from memline.shared.embedders.protocol import Attempt
from memline.shared.figures import counters
from memline.shared.index.accounts import AccountFile, note_settled


def ended(attempts: Sequence[Attempt]) -> tuple[tuple[str, int], ...]:
    """Return what `record` takes of attempts."""
    return tuple((each.end, round(1000 * each.took_s)) for each in attempts)


def record(file: AccountFile, account: str, calls: Iterable[tuple[str, int]], *, of: str = "") -> None:
    """Count attempts of calls of an account: how each ended. One transaction, none without.

    `of`: the request whose calls they are; the same ones of it count once, whatever message comes twice.
    """
    calls = tuple(calls)
    if not calls:
        return
    provider = account.partition(":")[0]
    with file.writing() as connection:
        if of and not note_settled(connection, f"{of} {shake_256(repr(calls).encode(), 8).hex()}"):
            return
        for kind, count in Counter(kind for kind, _ in calls).items():
            counters.write(connection, [(counters.ASKED, {"provider": provider, "kind": kind}, count)])
