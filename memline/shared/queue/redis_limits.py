"""Share the limits of provider accounts among all hosts of a fleet, in Redis.

The same as `shared.scheduling.limits`, where the rules are written down. One script decides and takes in one
step, so that workers on different hosts cannot both take the last place.

    <fleet>:limit:<account>:cooldown   string, until (ms since the epoch); expires by itself
    <fleet>:limit:<account>:requests   sorted set: member "<n>:<requests>:<tokens>" -> when it is called (ms)
    <fleet>:limit:<account>:tokens     string: sum of tokens in the set above
"""

from __future__ import annotations

import uuid
from typing import Any

from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import Choice
from memline.shared.queue import redis_client
from memline.shared.queue.redis_client import RetryPolicy
from memline.shared.scheduling.limits import STOP_COOLDOWN_S, WINDOW_S, Limits, for_texts, minute_limits

_TAKE = """
local cooldown, requests, sum = KEYS[1], KEYS[2], KEYS[3]
local window, max_requests, max_tokens = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local tokens, name, max_wait = tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])
local is_question, wanted = ARGV[7] == '1', tonumber(ARGV[8])
-- The server's clock, so that workers need not agree on theirs.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function requests_of(member) return tonumber(string.match(member, ':(%d+):%d+$')) end

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
    if not is_question then
        at = math.max(at, tonumber(redis.call('ZRANGE', requests, -1, -1, 'WITHSCORES')[2]))
    end
    -- A call above the whole limit goes alone rather than never: when all others are over.
    local taken = {}
    if max_requests > 0 or (max_tokens > 0 and used + tokens > max_tokens) then
        taken = redis.call('ZRANGE', requests, 0, -1, 'WITHSCORES')
    end
    if max_requests > 0 then
        local left = wanted - max_requests
        for i = 1, #taken, 2 do left = left + requests_of(taken[i]) end
        for i = 1, #taken, 2 do
            if left <= 0 then break end
            left = left - requests_of(taken[i])
            at = math.max(at, tonumber(taken[i + 1]) + window)
        end
    end
    if max_tokens > 0 then
        local left = used + tokens - max_tokens
        for i = 1, #taken, 2 do
            if left <= 0 then break end
            left = left - tonumber(string.match(taken[i], ':(%d+)$'))
            at = math.max(at, tonumber(taken[i + 1]) + window)
        end
    end
end
if at - now <= max_wait then
    redis.call('ZADD', requests, at, name .. ':' .. wanted .. ':' .. tokens)
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
        window_ms, max_wait_ms = int(WINDOW_S * 1000), int(max_wait_s * 1000)
        keys = [self._key(account, part) for part in ("cooldown", "requests", "tokens")]
        args = [window_ms, max_requests, max_tokens, tokens, uuid.uuid4().hex, max_wait_ms, int(is_question)]
        args.append(requests)
        wait_ms: Any = self._retry(self._take, keys=keys, args=args)
        return float(wait_ms) / 1000

    def close(self) -> None:
        self._client.close()

    def cooldown_s(self, account: str) -> float:
        wait_ms: Any = self._retry(self._client.pttl, self._key(account, "cooldown"))
        return max(0.0, float(wait_ms) / 1000)

    def cool_down(self, account: str, seconds: float) -> None:
        if seconds > 0:
            key = self._key(account, "cooldown")
            self._retry(self._cool_down, keys=[key], args=[max(1, int(seconds * 1000))])

    def end_cooldown(self, account: str) -> None:
        if self.cooldown_s(account) > STOP_COOLDOWN_S:
            self._retry(self._client.delete, self._key(account, "cooldown"))

    def _key(self, account: str, part: str) -> str:
        return redis_client.key(self._client, f"limit:{{{account}}}:{part}")


def fleet_limits(url: str, agent: AgentSettings, choice: Choice) -> Limits | None:
    """Return the limits that a question shares with a fleet; None when there are none."""
    if not any(minute_limits(agent, choice)):
        return None
    # Redis is tried once: a question waits neither for a place nor for Redis.
    return RedisLimits(url)
