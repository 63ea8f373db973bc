"""Limits of a provider for a whole fleet: holds, and budgets of requests and tokens a minute, in Redis.

One script decides and takes in one step, so that workers on different hosts cannot both take the last place.
A budget is a sliding window (`limits.WINDOW_S`): what was taken lately counts, nothing earlier, so no minute,
wherever it begins, holds more than the limit. (A token bucket lets a full bucket and a minute's refill go
out within one minute: twice the limit.) Places are given ahead, in order, to those who will wait for them.

    memline:limit:<provider>:hold       string, until (ms since the epoch); expires by itself
    memline:limit:<provider>:requests   sorted set: member "<n>:<tokens>" -> when it goes (ms), maybe to come
    memline:limit:<provider>:tokens     string: sum of tokens in the set above
"""

from __future__ import annotations

import uuid
from typing import Any

from shared.queue import server
from shared.queue.fleet import NAMESPACE
from shared.queue.limits import WINDOW_S
from shared.queue.patience import Patience

_TAKE = """
local hold, requests, sum = KEYS[1], KEYS[2], KEYS[3]
local window, max_requests, max_tokens = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local tokens, name, patience = tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])
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

local at = math.max(now, tonumber(redis.call('GET', hold) or '0'))
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
if at - now <= patience then
    redis.call('ZADD', requests, at, name .. ':' .. tokens)
    redis.call('PEXPIRE', requests, window * 2 + patience)
    used = used + tokens
end
redis.call('SET', sum, used, 'PX', window * 2 + patience)
return at - now
"""

_HOLD = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local until_ms = now + tonumber(ARGV[1])
if until_ms > tonumber(redis.call('GET', KEYS[1]) or '0') then
    redis.call('SET', KEYS[1], until_ms, 'PX', ARGV[1])
end
return 0
"""


class RedisLimits:
    """Limits shared by all processes on one Redis; see `shared.queue.limits.Limits`."""

    def __init__(self, url: str, patience: Patience | None = None) -> None:
        """`patience`: while Redis is away a caller waits here: what it holds, or is about to pay for, could
        not be delivered either."""
        self._client = server.client(url)
        self._patience = patience or Patience(url)
        self._take: Any = self._client.register_script(_TAKE)
        self._hold: Any = self._client.register_script(_HOLD)

    def take(
        self,
        provider: str,
        *,
        tokens: int,
        max_requests: int = 0,
        max_tokens: int = 0,
        patience_s: float = 0.0,
    ) -> float:
        """Take a place for a request; the seconds until it, and nothing taken if those are too many."""
        wait_ms: Any = self._patience(
            self._take,
            keys=[_key(provider, part) for part in ("hold", "requests", "tokens")],
            args=[
                int(WINDOW_S * 1000),
                max_requests,
                max_tokens,
                tokens,
                uuid.uuid4().hex,
                int(patience_s * 1000),
            ],
        )
        return float(wait_ms) / 1000

    def held(self, provider: str) -> float:
        """Seconds until anybody may call; 0 when nothing holds."""
        wait_ms: Any = self._patience(self._client.pttl, _key(provider, "hold"))
        return max(0.0, float(wait_ms) / 1000)

    def hold(self, provider: str, seconds: float) -> None:
        """Keep everybody from calling for so long; a shorter time never cuts a longer one."""
        if seconds > 0:
            self._patience(self._hold, keys=[_key(provider, "hold")], args=[max(1, int(seconds * 1000))])


def _key(provider: str, part: str) -> str:
    return f"{NAMESPACE}:limit:{{{provider}}}:{part}"
