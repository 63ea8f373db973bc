"""Decide when a model of a provider account may be called: cooldowns, and limits of a minute.

All agents, processes and questions share them; providers count by account and model. It is the generic cell
rate algorithm: each unit (requests, tokens) has one number, the time from which the next call may go, and a
call moves it on by its part of a minute's limit. Texts get places ahead, in order, when they will wait for
them. A question goes at once but for a cooldown, and texts after it wait the longer, for a minute at most;
they leave a tenth of each limit to questions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from memline.shared.clock import Clock
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import Choice
from memline.shared.index.accounts import AccountFile
from memline.shared.providers import LOCAL

#: Seconds that a limit counts for: the provider's minute, and two more, since it counts requests when they
#: have come. Without them a fleet made 61 requests in a minute that allowed 60.
WINDOW_S = 62.0

#: Part of a limit that is left to questions.
QUESTION_SHARE = 10

#: The row or key of a cooldown, and those of what a minute has a limit of.
HOLD = "hold"
UNITS = REQUESTS, TOKENS = "requests", "tokens"

#: Seconds no worker calls a provider after a definite no, and after another request that failed as a whole:
#: longer than a worker waits for its place, so what others have in hand goes back without a call.
STOP_COOLDOWN_S, FAILURE_COOLDOWN_S = 10.0, 6.0


def minute_limits(settings: AgentSettings, choice: Choice) -> tuple[int, int]:
    """Return requests and tokens a minute; what is configured is meant for the requested provider."""
    remote = settings.memory.remote
    has_none = choice.fallback_from or choice.provider == LOCAL
    return (0, 0) if has_none else (remote.requests_per_minute, remote.tokens_per_minute)


def limit_key(account: str, model: str) -> str:
    """Name what has limits of its own, a model of an account: while one is refused, another may be asked."""
    return f"{account} {model}"


def costs(*, tokens: int, requests: int = 1, max_requests: int = 0, max_tokens: int = 0) -> dict[str, float]:
    """Return by how many seconds a call moves on each unit with a limit; limits are per minute, 0 for none.

    `requests`: what the provider counts the call as: its texts, with some.
    """
    moves: dict[str, float] = {}
    for unit, amount, limit in ((REQUESTS, requests, max_requests), (TOKENS, tokens, max_tokens)):
        if limit:
            of_texts = limit - max(1, limit // QUESTION_SHARE)
            # Of calls that are a large part of the limit, a minute may hold one more than their sum says.
            moves[unit] = WINDOW_S * amount / max(1, min(of_texts, limit - amount), amount)
    return moves


class Limits:
    """The limits of accounts, named by `limit_key`, by rows of the account file of a home.

    Safe to use from several threads.
    """

    def __init__(self, file: AccountFile, clock: Clock) -> None:
        self._file = file
        self._clock = clock

    def close(self) -> None:
        self._file.close()

    def take(
        self, account: str, moves: Mapping[str, float], *, max_wait_s: float = 0, is_question: bool = False
    ) -> float:
        """Take a place for a call that costs so much (`costs`); for one without costs nothing is taken.

        Returns the seconds until the place, 0 for now. Longer than `max_wait_s`, nothing was taken. Places
        are given in the order in which they are asked for, so that of many who wait none waits in vain. A
        question waits for a cooldown alone; many of them keep texts waiting for `WINDOW_S` at most.
        """
        # Without costs most calls of most accounts: they write nothing.
        with self._file.writing() if moves else self._file.reading() as connection:
            # Read here: another process may have held the file.
            now = self._clock.now()
            query = "SELECT unit, next_at FROM limits WHERE account = ?"
            times = dict(connection.execute(query, (account,)) if connection else ())
            at = max(now, *(times.get(unit, now) for unit in (HOLD, *(() if is_question else moves))))
            latest = now + WINDOW_S if is_question else math.inf
            if connection and at - now <= max_wait_s:
                for unit, seconds in moves.items():
                    was = times.get(unit, now)
                    connection.execute(
                        "INSERT OR REPLACE INTO limits (account, unit, next_at) VALUES (?, ?, ?)",
                        (account, unit, max(was, min(max(at, was) + seconds, latest))),
                    )
            return float(at - now)

    def cool_down(self, account: str, seconds: float) -> None:
        """Let no process call for so long; a shorter time never cuts a longer one."""
        with self._file.writing() as connection:
            connection.execute(
                "INSERT INTO limits (account, unit, next_at) VALUES (?, ?, ?)"
                " ON CONFLICT (account, unit) DO UPDATE SET next_at = max(next_at, excluded.next_at)",
                (account, HOLD, self._clock.now() + seconds),
            )

    def end_cooldown(self, account: str) -> None:
        """Let processes call at once, whatever was counted, since an operator has asked for it."""
        with self._file.writing() as connection:
            connection.execute("DELETE FROM limits WHERE account = ?", (account,))
