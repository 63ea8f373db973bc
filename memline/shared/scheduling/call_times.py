"""Count how calls of a provider end, for the metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from memline.shared.embedders.protocol import Attempt
from memline.shared.figures import counters
from memline.shared.index.accounts import AccountFile


def ended(attempts: Sequence[Attempt]) -> tuple[str, ...]:
    """Return what `record` takes of attempts."""
    return tuple(each.end for each in attempts)


def record(file: AccountFile, account: str, ends: Iterable[str]) -> None:
    """Count the attempts of calls of an account by how they ended: one transaction, none without."""
    if counts := Counter(ends):
        provider = account.partition(":")[0]
        with file.writing() as connection:
            rows = [(counters.ASKED, {"provider": provider, "kind": kind}, n) for kind, n in counts.items()]
            counters.write(connection, rows)
