"""The broker of a fleet: dramatiq on Redis, with the settings that make it prompt and safe.

Rows in the index are the truth. So a message that fails is not retried by delay: it goes to the dead letters
with its error for a person to see, and the rows it was about are sent out again by the sweep.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from dramatiq.brokers import redis as dramatiq_redis
from dramatiq.brokers.redis import RedisBroker
from dramatiq.message import Message

from shared.queue import server
from shared.queue.patience import Patience

if TYPE_CHECKING:
    from shared.queue.consumer import BlockingConsumer

#: Prefix of all our keys.
NAMESPACE = "memline"

#: Hash: id of a dead letter -> its error; dramatiq keeps the message alone.
DEAD_ERRORS = f"{NAMESPACE}:dead.errors"

#: Characters of an error that are kept.
MAX_ERROR_CHARS = 2_000

#: Milliseconds without a heartbeat after which the messages of a worker process go back to their queue.
#: Every fetch is a heartbeat and happens at least every `BLOCK_S`; dramatiq's default of 60 s made a killed
#: worker's messages wait for minutes.
HEARTBEAT_TIMEOUT_MS = 15_000

#: Of a million commands, how many look for dead workers. All: it is one range query on a small set, and with
#: the default of 1,000 an idle queue takes a quarter of an hour to notice.
MAINTENANCE_CHANCE = 1_000_000

#: Queues whose messages cost money, and for how many seconds Redis remembers that it has had one: longer than
#: a sender that lost the answer goes on trying. Meanwhile the message may have been worked on and be gone.
PAID_QUEUES = frozenset({"embed"})
REMEMBER_S = 900

#: Puts a message on its queue, once: a try whose answer was lost may be repeated.
_ENQUEUE = """
if KEYS[3] and not redis.call('SET', KEYS[3], 1, 'NX', 'EX', ARGV[3]) then return end
if redis.call('HSETNX', KEYS[2], ARGV[1], ARGV[2]) == 1 then redis.call('RPUSH', KEYS[1], ARGV[1]) end
"""

#: Puts messages that a process has taken back to the head of the queue, where they came from: the dispatcher
#: reckons with the order of what lies there (`shared.queue.deliveries`).
_PUT_BACK = """
for i = #ARGV, 1, -1 do
    if redis.call('SREM', KEYS[1], ARGV[i]) == 1 and redis.call('HEXISTS', KEYS[3], ARGV[i]) == 1 then
        redis.call('LPUSH', KEYS[2], ARGV[i])
    end
end
"""

#: dramatiq stamps heartbeats with the clock of whoever calls. A worker whose clock is ahead by more than the
#: time-out took all others for dead and their messages for itself, again and again; the server has one clock.
_CALLERS_CLOCK = b"local timestamp = ARGV[2]\n"
_SERVERS_CLOCK = (
    b"local time = redis.call('time')\n"
    b"local timestamp = time[1] * 1000 + math.floor(time[2] / 1000)\n"
)  # fmt: skip


class FleetBroker(RedisBroker):
    """RedisBroker whose consumers wait inside Redis, and whose messages can be named."""

    def __init__(self, url: str, *, patience: Patience | None = None, **options: Any) -> None:
        super().__init__(  # type: ignore[no-untyped-call]
            client=server.client(url),
            namespace=NAMESPACE,
            maintenance_chance=MAINTENANCE_CHANCE,
            heartbeat_timeout=HEARTBEAT_TIMEOUT_MS,
            **options,
        )
        self.url = url
        self.patience = patience or Patience(url)
        #: Told to stop: nothing is waited for any more.
        self.is_stopping = False
        #: Queue -> ids of the messages this process has taken and not finished, of all its consumers.
        self.held: dict[str, set[str]] = defaultdict(set)
        script = dramatiq_redis._scripts["dispatch"].replace(_CALLERS_CLOCK, _SERVERS_CLOCK)
        self.scripts["dispatch"] = self.client.register_script(script)
        self._enqueue: Callable[..., Any] = self.client.register_script(_ENQUEUE)
        self._put_back: Callable[..., Any] = self.client.register_script(_PUT_BACK)

    def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        """Put a message on its queue under its own id, so that a sender can look whether it is still there.

        While Redis is away or full it is tried again until the patience is over. Raises QueueError then.
        Nothing is ever delayed: a delayed message sits in the memory of the worker that will send it.
        """
        message = message.copy(options={"redis_message_id": message.message_id})
        base = f"{NAMESPACE}:{message.queue_name}"
        self.emit_before("enqueue", message, delay)
        keys = [base, f"{base}.msgs"]
        if message.queue_name in PAID_QUEUES:
            keys.append(f"{base}.sent:{message.message_id}")
        self.patience(self._enqueue, keys=keys, args=[message.message_id, message.encode(), REMEMBER_S])
        self.emit_after("enqueue", message, delay)
        return message

    def stop_waiting(self, within_s: float) -> None:
        """The process is told to stop: give what cannot be sent or acknowledged so many seconds more."""
        self.is_stopping = True
        self.patience.end_in(within_s)

    def taken(self, queue: str) -> str:
        """Key of the set of ids that this process has taken from a queue and not acknowledged."""
        return f"{NAMESPACE}:__acks__.{self.broker_id}.{queue}"

    def take_over(self, queue: str) -> None:
        """Put back at once what other processes have taken from a queue that is this process's alone.

        Without it a new store worker would hear of its predecessor's last messages only when that one's
        heartbeat is missed, after it has sent out again, and paid for, what those messages held.
        """

        def put_back() -> None:
            for key in self.client.scan_iter(match=f"{NAMESPACE}:__acks__.*.{queue}", count=1_000):
                taken = key.decode()
                if taken != self.taken(queue):
                    ids: Any = self.client.smembers(taken)
                    self.put_back(queue, ids, taken=taken)

        self.patience(put_back)

    def put_back(self, queue: str, ids: Iterable[str | bytes], *, taken: str = "") -> None:
        """Put messages that a process has taken (this one, or that of the key) back, in this order."""
        base = f"{NAMESPACE}:{queue}"
        self._put_back(keys=[taken or self.taken(queue), base, f"{base}.msgs"], args=list(ids))

    def take_back(self, queue: str, message_id: str) -> bool:
        """Take a message off its queue; False when a worker was quicker."""
        base = f"{NAMESPACE}:{queue}"
        with server.translated(self.url):
            # Whoever takes the id off the list owns the message.
            if not self.client.lrem(base, 1, message_id):
                return False
            self.client.hdel(f"{base}.msgs", message_id)
        return True

    def keep_error(self, letter_id: str, text: str) -> None:
        """Remember why a message became a dead letter."""
        self.client.hset(DEAD_ERRORS, letter_id, text[:MAX_ERROR_CHARS])

    @property
    def consumer_class(self) -> type[BlockingConsumer]:
        from shared.queue.consumer import BlockingConsumer

        return BlockingConsumer
