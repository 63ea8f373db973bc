"""Decide which wanted texts wait for a batch, and make the batches.

A batch takes minutes to a day, so a few texts never wait for one: they are sent in requests. The rule,
for live edits and for a backfill each by itself:

    texts are still coming       hold them; a batch that is full is made at once
    `minTexts` or more wanted    make a batch up to the provider's caps; hold what finds no place
    fewer                        send them in requests
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from memline.shared.index import batches
from memline.shared.index.accounts import Accounts
from memline.shared.index.driver import scalar, transaction
from memline.shared.index.identities import IdentityRow
from memline.shared.index.vectors import BACKFILL, LIVE_EDIT
from memline.shared.scheduling import breaker, health
from memline.shared.scheduling.budget import BATCH, Budget, Charge, Refusal
from memline.shared.values import value

#: The largest job: OpenAI's own caps. Voyage takes twice the rows and Gemini ten times the bytes, but a job
#: is lost, late or looked for as a whole.
MAX_ROWS, MAX_BYTES = 50_000, 200_000_000

if TYPE_CHECKING:
    from sqlite3 import Connection

#: Seconds without a new text after which a backlog counts as whole. Files that are still on their way are
#: told by `has_pending_files`; this covers the moment between two windows of them (30 ms to 0.3 s).
LINGER_S = 1.0

#: Seconds that texts are held at most while more of them come: a few, and many.
HOLD_FEW_S, HOLD_MANY_S = 2.0, 60.0

#: Seconds for which "everything is held" holds without planning again: hundreds of files come in a
#: second.
PLAN_EVERY_S = 0.1

#: Texts leased in one transaction, some 10 ms: another process's write waits no longer.
SLICE_ROWS = 1_000

#: Bytes of the uploaded file by the estimate of tokens. English has 4 bytes a token, Cyrillic 8. A file that
#: turns out too big for the provider is a failure.
BYTES_PER_TOKEN, BYTES_PER_ROW = 6, 256

#: Seconds in which a process fills a batch; after that the batch goes with the texts it has.
FILL_S = 60.0


@value
class BatchRules:
    """What the settings and the provider say of batches."""

    #: Batches open at a time.
    concurrency: int
    #: Texts that are worth one.
    min_texts: int
    #: The largest batch.
    max_rows: int = MAX_ROWS
    max_bytes: int = MAX_BYTES


@value
class BatchPlan:
    """What the dispatcher may do now."""

    #: Priorities whose texts wait for a batch; all others are sent in requests.
    held: tuple[int, ...] = ()
    #: Whether more texts are coming, so that it should plan again in `LINGER_S`.
    is_growing: bool = False
    #: Batches made just now.
    made: int = 0


class BatchPlanner:
    """Plans the batches of one index, from its rows and from what this process has seen of its growth."""

    def __init__(self, accounts: Accounts, budget: Callable[[], Budget], owner: str) -> None:
        self._accounts = accounts
        self._budget = budget
        self._connection = accounts.index
        self._owner = owner
        self._plan = BatchPlan()
        self._planned_at = 0.0
        #: The newest row of `vectors`, when it came, and since when texts are held for more to come.
        self._last_id = -1
        self._grew_at = 0.0
        self._held_since = 0.0

    def plan(
        self, target: IdentityRow, rules: BatchRules, *, has_pending_files: bool, now: float
    ) -> BatchPlan:
        """Make the batches there are texts and places for, and say which texts wait.

        `has_pending_files`: files whose texts are not in the index yet are being chunked.
        """
        if not (self._plan.is_growing and 0 <= now - self._planned_at < PLAN_EVERY_S):
            self._plan = self._plan_now(target, rules, has_pending_files, now)
            self._planned_at = now
        return self._plan

    def _plan_now(
        self, target: IdentityRow, rules: BatchRules, has_pending_files: bool, now: float
    ) -> BatchPlan:
        state = health.read(self._accounts, target.identity.provider, health.BATCH)
        is_probing = state.state == breaker.OPEN and state.probe_at <= now
        if state.manual or not (state.state == breaker.CLOSED or is_probing):
            return BatchPlan()
        counts = _count_wanted(self._connection, target.id, limit=rules.min_texts)
        is_growing = self._is_growing(counts, rules.min_texts, has_pending_files, now)
        smallest = rules.max_rows if is_growing else min(rules.min_texts, rules.max_rows)
        made = 0
        while batches.count_unfinished(self._connection) < rules.concurrency:
            counts = _count_wanted(self._connection, target.id, limit=smallest)
            # A few live edits never go with a large backfill.
            ripe = [each for each, count in counts.items() if count >= min(rules.min_texts, rules.max_rows)]
            if sum(counts[each] for each in ripe) < smallest:
                break
            if not self._make(target, rules, ripe, now):
                break
            made += 1
        if made and is_probing:
            # The others do not wait for the probe.
            return BatchPlan(made=made)
        counts = _count_wanted(self._connection, target.id, limit=rules.min_texts)
        # Nor do they wait while it comes in.
        is_new = now - (self._held_since or now) < HOLD_FEW_S
        held = tuple(
            each
            for each, count in counts.items()
            if count >= rules.min_texts or (is_growing and (is_new or each == BACKFILL))
        )
        return BatchPlan(held=held, is_growing=is_growing, made=made)

    def _is_growing(
        self, counts: Mapping[int, int], min_texts: int, has_pending_files: bool, now: float
    ) -> bool:
        """Tell whether to hold what is wanted because more texts are coming; not for ever."""
        # It grows with every text that is wanted for the first time.
        last_id = scalar(self._connection, "SELECT seq FROM sqlite_sequence WHERE name = 'vectors'") or 0
        if last_id != self._last_id:
            self._last_id, self._grew_at = last_id, now
        self._held_since = self._held_since or now
        is_few = max(counts.values()) < min_texts and not has_pending_files
        is_coming = has_pending_files or now - self._grew_at < LINGER_S
        is_growing = is_coming and now - self._held_since < (HOLD_FEW_S if is_few else HOLD_MANY_S)
        if not is_growing or not any(counts.values()):
            self._held_since = 0.0
        return is_growing

    def _make(self, target: IdentityRow, rules: BatchRules, priorities: Sequence[int], now: float) -> bool:
        """Write the intent of a batch down and lease its texts; False when none may be made."""
        token, budget = uuid.uuid4().hex, self._budget()
        account = self._accounts.of(target.identity.provider)
        charge = Charge(identity=target.identity, account=account, mode=BATCH)
        max_tokens = rules.max_bytes
        if budget.has_ceilings:
            # Before it is filled, so that no other process takes the same; set right when it is.
            sizes = self._sizes(target.id, priorities, rules)
            granted = budget.reserve(charge, token, sum(sizes), now, at_least=max(1, *sizes[:1]))
            if isinstance(granted, Refusal):
                return False
            max_tokens = granted
        is_made = False
        try:
            is_made = self._fill_new(target, token, rules, priorities, max_tokens, now)
        finally:
            if not is_made:
                budget.settle(token, 0)
        if is_made:
            budget.resize(charge, token, batches.tokens_left(self._connection, token), now)
        return is_made

    def _sizes(self, identity_id: int, priorities: Sequence[int], rules: BatchRules) -> list[int]:
        """List the tokens of the texts that a batch would take, but for its cap of bytes.

        In the order of `_fill`: it takes the first one, however little is granted.
        """
        sizes: list[int] = []
        for priority in sorted(priorities):
            rows = self._connection.execute(
                "SELECT tokens FROM vectors WHERE identity_id = ? AND state = 'wanted'"
                " AND state <> 'ready' AND priority = ? AND by_request = 0 ORDER BY job, id LIMIT ?",
                (identity_id, priority, rules.max_rows - len(sizes)),
            )
            sizes += [tokens for (tokens,) in rows]
        return sizes

    def _fill_new(
        self,
        target: IdentityRow,
        token: str,
        rules: BatchRules,
        priorities: Sequence[int],
        max_tokens: int,
        now: float,
    ) -> bool:
        with transaction(self._connection):
            if batches.count_unfinished(self._connection) >= rules.concurrency:
                return False
            if not health.may_batch(self._accounts, target.identity.provider, now, tag=token):
                return False
            self._connection.execute(
                "INSERT INTO batches (token, identity_id, state, created_at, owner, owner_until)"
                " VALUES (?, ?, 'intent', ?, ?, ?)",
                (token, target.id, now, self._owner, now + FILL_S),
            )
        self._fill(target.id, token, priorities, rules, max_tokens)
        with transaction(self._connection):
            # From here on a worker may take it. If this process dies before, or takes longer than its claim
            # holds, the batch goes with the texts it has.
            rows = batches.texts_left(self._connection, token)
            if not rows and self._drop_empty(target, token, now):
                return False
            self._connection.execute(
                "UPDATE batches SET rows = ?, due = ?, owner = '', owner_until = 0"
                " WHERE token = ? AND owner = ?",
                (rows, now, token, self._owner),
            )
        return True

    def _drop_empty(self, target: IdentityRow, token: str, now: float) -> bool:
        """Forget a batch that found no text, as they went elsewhere meanwhile; False when a worker has it."""
        dropped = self._connection.execute(
            "DELETE FROM batches WHERE token = ? AND owner = ?", (token, self._owner)
        ).rowcount
        if dropped:
            lost = partial(breaker.after_lost_probe, probe=token, now=now)
            health.update(self._accounts, target.identity.provider, health.BATCH, now, lost)
        return bool(dropped)

    def _fill(
        self, identity_id: int, token: str, priorities: Sequence[int], rules: BatchRules, max_tokens: int
    ) -> None:
        """Lease texts up to the caps, a slice a transaction; live edits first, then the oldest job."""
        rows = size = all_tokens = 0
        for priority in sorted(priorities):
            is_more = True
            while is_more and rows < rules.max_rows:
                with transaction(self._connection):
                    found = self._connection.execute(
                        "SELECT job, id, tokens FROM vectors WHERE identity_id = ? AND state = 'wanted'"
                        " AND state <> 'ready' AND priority = ? AND by_request = 0 ORDER BY job, id LIMIT ?",
                        (identity_id, priority, min(rules.max_rows - rows, SLICE_ROWS)),
                    ).fetchall()
                    last_job = last_id = taken = 0
                    for job, row_id, tokens in found:
                        size += tokens * BYTES_PER_TOKEN + BYTES_PER_ROW
                        all_tokens += tokens
                        if (size > rules.max_bytes and rows + taken) or all_tokens > max_tokens:
                            break
                        last_job, last_id, taken = job, row_id, taken + 1
                    # One statement for all of them: by their ids one by one it took three times as long.
                    self._connection.execute(
                        "UPDATE vectors SET state = 'leased', lease = ? WHERE identity_id = ?"
                        " AND state = 'wanted' AND state <> 'ready' AND priority = ? AND by_request = 0"
                        " AND (job, id) <= (?, ?)",
                        (token, identity_id, priority, last_job, last_id),
                    )
                rows += taken
                is_more = bool(found) and taken == len(found)


def count_waiting(connection: Connection, identity_id: int, min_texts: int) -> int:
    """Count the texts that go by batch as soon as there is a place for one more."""
    counts = _count_wanted(connection, identity_id, limit=2**62)
    return sum(count for count in counts.values() if count >= min_texts)


def _count_wanted(connection: Connection, identity_id: int, *, limit: int) -> dict[int, int]:
    """Count the texts of each priority that may go by batch, up to `limit`."""
    counts: dict[int, int] = {}
    for priority in (LIVE_EDIT, BACKFILL):
        # Both by an index alone: a backlog has a million rows. The + keeps SQLite from the index of all
        # that is wanted, of which it would read every row.
        by_request = connection.execute(
            "SELECT count(*) FROM vectors WHERE identity_id = ? AND by_request = 1 AND state <> 'ready'"
            " AND +state = 'wanted' AND priority = ?",
            (identity_id, priority),
        ).fetchone()[0]
        wanted = connection.execute(
            "SELECT count(*) FROM (SELECT 1 FROM vectors WHERE identity_id = ? AND state = 'wanted'"
            " AND state <> 'ready' AND priority = ? LIMIT ?)",
            (identity_id, priority, limit + by_request),
        ).fetchone()[0]
        counts[priority] = wanted - by_request
    return counts
