"""Decide when a provider may be called: cooldowns, and budgets of requests and tokens a minute.

In one process the limits are in memory; a fleet shares them in Redis, where one script decides and takes in
one step, so that workers on different hosts cannot both take the last place.

A budget is a sliding window: what was taken lately counts, nothing earlier, so no minute, wherever it begins,
holds more than the limit. (A token bucket lets a full bucket and a minute's refill go out within one minute:
twice the limit.) Places are given ahead, in order, to those who will wait for them.

    <fleet>:limit:<provider>:cooldown   string, until (ms since the epoch); expires by itself
    <fleet>:limit:<provider>:requests   sorted set: member "<n>:<tokens>" -> when it is called (ms)
    <fleet>:limit:<provider>:tokens     string: sum of tokens in the set above
"""

from __future__ import annotations

import threading
import uuid
from collections import deque
from typing import Any

from memline.shared.clock import Clock, SystemClock
from memline.shared.queue import redis_client
from memline.shared.queue.redis_client import RetryPolicy

#: Seconds that a budget counts for: the provider's minute, and two more. A place is taken here before the
#: request is on its way, and the provider counts when it has come: what is sent slowly and what is sent fast
#: are nearer to each other there. Without them a fleet made 61 requests in a minute that allowed 60.
WINDOW_S = 62.0


class InProcessLimits:
    """Limits the calls of all embed workers of a provider in one process."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._retry_at: dict[str, float] = {}
        #: When each place is, and its tokens; in order, some of them still to come.
        self._places: dict[str, deque[tuple[float, int]]] = {}

    def take(
        self, provider: str, *, tokens: int, max_requests: int = 0, max_tokens: int = 0, max_wait_s: float = 0
    ) -> float:
        """Take a place for a request of so many tokens; limits are per minute, 0 for none.

        Returns the seconds until the place, 0 for now. Longer than `max_wait_s`, nothing was taken. Places
        are given in the order in which they are asked for, so that of many who wait none waits in vain.
        """
        now = self._clock.now()
        with self._lock:
            places = self._places.setdefault(provider, deque())
            while places and places[0][0] <= now - WINDOW_S:
                places.popleft()
            next_place = _next_place(places, tokens, max_requests, max_tokens)
            at = max(now, self._retry_at.get(provider, 0.0), next_place)
            if at - now <= max_wait_s:
                places.append((at, tokens))
            return at - now

    def cooldown_s(self, provider: str) -> float:
        """Tell the seconds until the provider may be called; 0 when there is no cooldown."""
        with self._lock:
            return max(0.0, self._retry_at.get(provider, 0.0) - self._clock.now())

    def cool_down(self, provider: str, seconds: float) -> None:
        """Let no worker call for so long; a shorter time never cuts a longer one."""
        with self._lock:
            retry_at = self._clock.now() + seconds
            self._retry_at[provider] = max(retry_at, self._retry_at.get(provider, 0.0))


def _next_place(places: deque[tuple[float, int]], tokens: int, max_requests: int, max_tokens: int) -> float:
    """Compute when the next place is; never before the last one that was given."""
    if not places:
        return 0.0
    at = places[-1][0]
    if max_requests and len(places) >= max_requests:
        at = max(at, places[len(places) - max_requests][0] + WINDOW_S)
    excess = sum(used for _, used in places) + tokens - max_tokens
    if max_tokens and excess > 0:
        for earlier, used in places:
            excess -= used
            at = max(at, earlier + WINDOW_S)
            # A request above the whole budget goes alone rather than never: when all others are over.
            if excess <= 0:
                break
    return at


_TAKE = """
local cooldown, requests, sum = KEYS[1], KEYS[2], KEYS[3]
local window, max_requests, max_tokens = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local tokens, name, max_wait = tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])
-- The server's clock, so that workers need not agree on theirs.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local old = redis.call('ZRANGEBYSCORE', requests, '-inf', now - window)
local used = tonumber(redis.call('GET', sum) or '0')
for _, member in ipairs(old) do
    used = used - tonumber(string.match(member, ':(%d+)$'))
    redis.call('ZREM', requests, member)
end
local count = redis.call('ZCARD', requests)
if count == 0 then used = 0 end

local at = math.max(now, tonumber(redis.call('GET', cooldown) or '0'))
if count > 0 then
    -- Never before the last place that was given: then looking back is enough.
    at = math.max(at, tonumber(redis.call('ZRANGE', requests, -1, -1, 'WITHSCORES')[2]))
    if max_requests > 0 and count >= max_requests then
        local first = redis.call('ZRANGE', requests, count - max_requests, count - max_requests, 'WITHSCORES')
        at = math.max(at, tonumber(first[2]) + window)
    end
    if max_tokens > 0 and used + tokens > max_tokens then
        local left = used + tokens - max_tokens
        local taken = redis.call('ZRANGE', requests, 0, -1, 'WITHSCORES')
        for i = 1, #taken, 2 do
            left = left - tonumber(string.match(taken[i], ':(%d+)$'))
            at = math.max(at, tonumber(taken[i + 1]) + window)
            -- A request above the whole budget goes alone rather than never: when all others are over.
            if left <= 0 then break end
        end
    end
end
if at - now <= max_wait then
    redis.call('ZADD', requests, at, name .. ':' .. tokens)
    redis.call('PEXPIRE', requests, window * 2 + max_wait)
    used = used + tokens
end
redis.call('SET', sum, used, 'PX', window * 2 + max_wait)
return at - now
"""

_COOL_DOWN = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local retry_at = now + tonumber(ARGV[1])
if retry_at > tonumber(redis.call('GET', KEYS[1]) or '0') then
    redis.call('SET', KEYS[1], retry_at, 'PX', ARGV[1])
end
return 0
"""


class RedisLimits:
    """The same for all processes of a fleet."""

    def __init__(self, url: str, retry: RetryPolicy | None = None) -> None:
        """`retry`: while Redis is away a caller waits here, for what it holds, or is about to pay for, could
        not be delivered either."""
        self._client = redis_client.client(url)
        self._retry = retry or RetryPolicy(url)
        self._take: Any = self._client.register_script(_TAKE)
        self._cool_down: Any = self._client.register_script(_COOL_DOWN)

    def take(
        self, provider: str, *, tokens: int, max_requests: int = 0, max_tokens: int = 0, max_wait_s: float = 0
    ) -> float:
        window_ms, max_wait_ms = int(WINDOW_S * 1000), int(max_wait_s * 1000)
        keys = [self._key(provider, part) for part in ("cooldown", "requests", "tokens")]
        args = [window_ms, max_requests, max_tokens, tokens, uuid.uuid4().hex, max_wait_ms]
        wait_ms: Any = self._retry(self._take, keys=keys, args=args)
        return float(wait_ms) / 1000

    def cooldown_s(self, provider: str) -> float:
        wait_ms: Any = self._retry(self._client.pttl, self._key(provider, "cooldown"))
        return max(0.0, float(wait_ms) / 1000)

    def cool_down(self, provider: str, seconds: float) -> None:
        if seconds > 0:
            key = self._key(provider, "cooldown")
            self._retry(self._cool_down, keys=[key], args=[max(1, int(seconds * 1000))])

    def _key(self, provider: str, part: str) -> str:
        return redis_client.key(self._client, f"limit:{{{provider}}}:{part}")


Limits = InProcessLimits | RedisLimits
