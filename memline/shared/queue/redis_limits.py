"""Share the limits of provider accounts among all hosts of a fleet, in Redis.

    <fleet>:limit:<account> <model>:hold        string, until (s since the epoch): nobody calls
    <fleet>:limit:<account> <model>:<unit>      string: when the next call may go (s)

The clock is that of Redis, and one script decides and takes in one step. All keys expire by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from memline.shared.config.installation import QueueAddress
from memline.shared.queue import redis_client
from memline.shared.scheduling.limits import HOLD, UNITS, WINDOW_S, Limits

#: KEYS: the hold, then one a unit. ARGV: the longest wait (s), the window (s) of a question or 0, then the
#: seconds that the call moves each unit on by. `Limits.take` says how.
_TAKE = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1e6
local window = tonumber(ARGV[2])
local at = now
for i = 1, window > 0 and 1 or #KEYS do
    at = math.max(at, tonumber(redis.call('GET', KEYS[i]) or '0'))
end
if at - now <= tonumber(ARGV[1]) then
    for i = 2, #KEYS do
        local was = tonumber(redis.call('GET', KEYS[i]) or '0')
        local next_at = math.max(at, was) + tonumber(ARGV[i + 1])
        if window > 0 then
            next_at = math.max(was, math.min(next_at, now + window))
        end
        redis.call('SET', KEYS[i], string.format('%.3f', next_at), 'EX', math.ceil(next_at - now) + 1)
    end
end
return string.format('%.3f', at - now)
"""

#: KEYS: the hold. ARGV: how long (s). A shorter time never cuts a longer one.
_HOLD = """
local time = redis.call('TIME')
local hold_until = time[1] + time[2] / 1e6 + ARGV[1]
if hold_until > tonumber(redis.call('GET', KEYS[1]) or '0') then
    redis.call('SET', KEYS[1], string.format('%.3f', hold_until), 'PX', math.ceil(ARGV[1] * 1000))
end
"""


class RedisLimits(Limits):
    """The limits of accounts, the same for all processes of a fleet."""

    def __init__(self, address: QueueAddress, retry: Callable[..., Any] | None = None) -> None:
        """`retry` calls what asks Redis: while it is away a worker waits here, since what it is about to pay
        for could not be delivered. None tries once: a question waits neither for a place nor for Redis.
        """
        self._client = redis_client.client(address)
        self._retry = retry or (lambda function, *args, **kwargs: function(*args, **kwargs))
        self._take: Any = self._client.register_script(_TAKE)
        self._hold: Any = self._client.register_script(_HOLD)

    def take(
        self, account: str, moves: Mapping[str, float], *, max_wait_s: float = 0, is_question: bool = False
    ) -> float:
        keys = [self._key(account, part) for part in (HOLD, *moves)]
        args = [max_wait_s, WINDOW_S if is_question else 0, *moves.values()]
        return float(self._retry(self._take, keys=keys, args=args))

    def close(self) -> None:
        self._client.close()

    def cool_down(self, account: str, seconds: float) -> None:
        if seconds > 0:
            self._retry(self._hold, keys=[self._key(account, HOLD)], args=[seconds])

    def end_cooldown(self, account: str) -> None:
        self._retry(self._client.delete, *(self._key(account, part) for part in (HOLD, *UNITS)))

    def _key(self, account: str, part: str) -> str:
        return self._client.key(f"limit:{{{account}}}:{part}")
