"""Decide when a provider account may be called: cooldowns, and limits of requests and tokens a minute.

All agents, processes and questions of an account share them. Here they are rows of the account file; a fleet,
whose embed workers may be on other hosts, has the same in Redis (`shared.queue.redis_limits`).

A limit is a sliding window: what was taken lately counts, nothing earlier, so no minute, wherever it begins,
holds more than the limit. (A token bucket lets a full bucket and a minute's refill go out within one minute:
twice the limit.) Texts get places ahead, in order, when they will wait for them. A question never waits: it
takes a place at once or goes without its vector. So texts leave a tenth of each limit free for questions.
"""

from __future__ import annotations

from sqlite3 import Connection
from typing import Protocol

from memline.shared.clock import Clock
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import Choice
from memline.shared.index.accounts import AccountFile
from memline.shared.index.driver import scalar

#: Seconds that a limit counts for: the provider's minute, and two more. A place is taken here before the
#: request is on its way, and the provider counts when it has come: what is sent slowly and what is sent fast
#: are nearer to each other there. Without them a fleet made 61 requests in a minute that allowed 60.
WINDOW_S = 62.0

#: Seconds ahead that a place is given at most. One further ahead was given before the clock was set back, and
#: texts would wait for all of that time, also without any limit.
MAX_AHEAD_S = 2 * WINDOW_S

#: Part of a limit that only questions use.
QUESTION_SHARE = 10


def for_texts(limit: int) -> int:
    """Return how much of a limit texts may use; 0 is none, as everywhere."""
    return limit - limit // QUESTION_SHARE


def minute_limits(settings: AgentSettings, choice: Choice) -> tuple[int, int]:
    """Return requests and tokens a minute; what is configured is meant for the requested provider."""
    remote = settings.memory.remote
    return (0, 0) if choice.fallback_from else (remote.requests_per_minute, remote.tokens_per_minute)


#: Seconds no worker calls a provider that said a definite no; by then the store worker has paused it. Longer
#: than a worker waits for its place (`workers.embed`): what was in flight then goes back to the rows without
#: a call. So nothing ends it earlier.
STOP_COOLDOWN_S = 10.0

#: Seconds no worker calls after a request that failed as a whole: what others have in hand goes back.
FAILURE_COOLDOWN_S = 6.0


class Limits(Protocol):
    """The limits of accounts, named as in `shared.index.accounts`. Safe to use from several threads."""

    def take(
        self,
        account: str,
        *,
        tokens: int,
        requests: int = 1,
        max_requests: int = 0,
        max_tokens: int = 0,
        max_wait_s: float = 0,
        is_question: bool = False,
    ) -> float:
        """Take a place for a call of so many tokens; limits are per minute, 0 for none.

        `requests`: what the provider counts the call as: its texts, with some.

        Returns the seconds until the place, 0 for now. Longer than `max_wait_s`, nothing was taken. Places
        are given in the order in which they are asked for, so that of many who wait none waits in vain.
        """
        ...

    def cooldown_s(self, account: str) -> float:
        """Tell the seconds until the account may be used; 0 when there is no cooldown."""
        ...

    def cool_down(self, account: str, seconds: float) -> None:
        """Let no process call for so long; a shorter time never cuts a longer one."""
        ...

    def end_cooldown(self, account: str) -> None:
        """Let processes call again, since an operator has asked for it.

        A cooldown after a definite no stays, which is over soon: requests that workers have in hand would
        go out with a key that was replaced.
        """
        ...


class FileLimits:
    """Limits the calls of all processes of a home, by rows of its account file."""

    def __init__(self, file: AccountFile, clock: Clock) -> None:
        self._file = file
        self._clock = clock

    def close(self) -> None:
        self._file.close()

    def take(
        self,
        account: str,
        *,
        tokens: int,
        requests: int = 1,
        max_requests: int = 0,
        max_tokens: int = 0,
        max_wait_s: float = 0,
        is_question: bool = False,
    ) -> float:
        if not is_question:
            max_requests, max_tokens = for_texts(max_requests), for_texts(max_tokens)
        with self._file.writing() as connection:
            # Read here: another process may have held the file.
            now = self._clock.now()
            connection.execute(
                "DELETE FROM places WHERE at <= ? OR at > ?", (now - WINDOW_S, now + MAX_AHEAD_S)
            )
            at = max(now, _retry_at(connection, account))
            at = max(at, _next_place(connection, account, "requests", requests, max_requests))
            at = max(at, _next_place(connection, account, "tokens", tokens, max_tokens))
            if not is_question:
                # Never before the last place that was given: then looking back is enough.
                last = scalar(connection, "SELECT max(at) FROM places WHERE account = ?", account)
                at = max(at, last or 0.0)
            if at - now <= max_wait_s:
                connection.execute("INSERT INTO places VALUES (?, ?, ?, ?)", (account, at, requests, tokens))
            return float(at - now)

    def cooldown_s(self, account: str) -> float:
        with self._file.reading() as connection:
            retry_at = _retry_at(connection, account) if connection is not None else 0.0
        return max(0.0, retry_at - self._clock.now())

    def cool_down(self, account: str, seconds: float) -> None:
        with self._file.writing() as connection:
            connection.execute(
                "INSERT INTO cooldowns VALUES (?, ?)"
                " ON CONFLICT (account) DO UPDATE SET until = max(until, excluded.until)",
                (account, self._clock.now() + seconds),
            )

    def end_cooldown(self, account: str) -> None:
        with self._file.writing() as connection:
            connection.execute(
                "DELETE FROM cooldowns WHERE account = ? AND until > ?",
                (account, self._clock.now() + STOP_COOLDOWN_S),
            )


def _retry_at(connection: Connection, account: str) -> float:
    return float(scalar(connection, "SELECT until FROM cooldowns WHERE account = ?", account) or 0.0)


def _next_place(connection: Connection, account: str, column: str, amount: int, limit: int) -> float:
    """Compute when there is room for an amount beside all places that were given, also those still to come.

    `column`: what the amount is of, `requests` or `tokens`; 0 is no limit.
    """
    if not limit:
        return 0.0
    used = scalar(connection, f"SELECT sum({column}) FROM places WHERE account = ?", account) or 0
    excess, at = used + amount - limit, 0.0
    oldest = f"SELECT at, {column} FROM places WHERE account = ? ORDER BY at"
    for earlier, freed in connection.execute(oldest, (account,)) if excess > 0 else ():
        excess -= freed
        at = max(at, earlier + WINDOW_S)
        # A call above the whole limit goes alone rather than never: when all others are over.
        if excess <= 0:
            break
    return at
