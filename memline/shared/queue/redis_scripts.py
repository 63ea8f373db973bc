"""What Redis itself does for the broker of a fleet, each a script that nothing interrupts."""

from __future__ import annotations

from collections.abc import Mapping

#: Milliseconds without a heartbeat of any worker after which Redis itself was away, or all workers were, and
#: in which those that live are heard of again. Each tells once a second that it is there.
AWAY_MS = 5_000

_SERVER_TIME = "local time = redis.call('time')\nlocal now = time[1] * 1000 + math.floor(time[2] / 1000)\n"

#: Puts a message on its queue, once: a try whose answer was lost may be repeated. The request that a message
#: answers is done with it: one whose worker is killed before it acknowledges it would be paid for again.
ENQUEUE = """
if KEYS[5] and not redis.call('SET', KEYS[5], 1, 'NX', 'EX', ARGV[3]) then return end
if redis.call('HSETNX', KEYS[2], ARGV[1], ARGV[2]) == 1 then redis.call('RPUSH', KEYS[1], ARGV[1]) end
redis.call('HDEL', KEYS[3], ARGV[4])
redis.call('EXPIRE', KEYS[4], ARGV[3])
"""

#: Notes that this process begins to send a request, if it still has it and no other one did before. A try
#: whose answer was lost may be repeated.
BEGIN = """
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
if redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 0 then return 0 end
local by = redis.call('GET', KEYS[3])
if by then return by == KEYS[2] and 1 or 0 end
redis.call('SET', KEYS[3], KEYS[2], 'EX', ARGV[2])
return 1
"""

#: Cancels a request that no worker has begun to send, also one that a worker has taken; tells whether it did.
REVOKE_UNSENT = """
if redis.call('EXISTS', KEYS[4]) == 1 or redis.call('HDEL', KEYS[3], ARGV[1]) == 0 then return 0 end
redis.call('LREM', KEYS[1], 1, ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
return 1
"""

#: Puts messages that a process has taken back to the head of the queue, where they came from: the dispatcher
#: reckons with the order of what lies there (`shared.queue.in_flight`).
PUT_BACK = """
local count = 0
for i = #ARGV, 1, -1 do
    if redis.call('SREM', KEYS[1], ARGV[i]) == 1 and redis.call('HEXISTS', KEYS[3], ARGV[i]) == 1 then
        redis.call('LPUSH', KEYS[2], ARGV[i])
        count = count + 1
    end
end
return count
"""

#: Moves a message that this process has taken to a sorted set, as of so many milliseconds from now, with new
#: content: to the delayed ones or to the dead letters. A message that was cancelled meanwhile is left alone.
MOVE = f"""{_SERVER_TIME}
if redis.call('SREM', KEYS[1], ARGV[1]) == 0 or redis.call('HDEL', KEYS[2], ARGV[1]) == 0 then return end
redis.call('ZADD', KEYS[3], now + ARGV[3], ARGV[1])
redis.call('HSET', KEYS[4], ARGV[1], ARGV[2])
"""

#: Puts the delayed messages whose time has come back on their queue.
RETRY_DUE = f"""{_SERVER_TIME}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, 100)) do
    redis.call('ZREM', KEYS[1], id)
    if redis.call('HEXISTS', KEYS[3], id) == 1 then redis.call('RPUSH', KEYS[2], id) end
end
"""

#: Parts of dramatiq's own script, and what stands there in their place.
#:
#: dramatiq stamps heartbeats with the clock of the caller. A worker whose clock is ahead by more than the
#: time-out took all others for dead and their messages for itself, again and again; the server has one clock.
#:
#: After a Redis that was away for longer than the time-out, the first worker to reach it would take all
#: others for dead, and what they are paying for would be sent once more.
CHANGES: Mapping[bytes, bytes] = {
    b"local timestamp = ARGV[2]\n": f"{_SERVER_TIME}local timestamp = now\n".encode(),
    b'redis.call("zadd", heartbeats, timestamp, worker_id)\n': f"""
local last = redis.call("zrevrange", heartbeats, 0, 0, "withscores")[2]
local is_back = namespace .. ":__is_back__"
if last and now - last > {AWAY_MS} then redis.call("set", is_back, 1, "px", {AWAY_MS}) end
if redis.call("exists", is_back) == 1 then do_maintenance = "0" end
redis.call("zadd", heartbeats, timestamp, worker_id)
""".encode(),
}
