"""Follow the embedding requests in flight: how many there may be, and which are missing.

**Credits**: two requests for each embed thread that is alive. One is being answered, the other lies in the
worker so that its thread never waits. More would only hide work in the queue, where a live edit stands behind
it.

**Owner**: who holds the leases, a process or the Redis of a fleet (`shared.queue.lease_owner`).

**Begun**: Redis keeps which requests a worker has begun to send. An embed worker may have a home of its own,
and so an account file in which no request of that home is counted: what only Redis knows of is noted
there at the next sweep, and is never taken for unsent.

**Missing**: a message stays in the hash of its queue until it is acknowledged, and a worker acknowledges
after it has sent its result. So a request that is not in the hash has either been answered, and the answer
lies on the store queue, or it is lost. That queue is processed in order, so a second look after everything
that lay on it tells, and each text is paid for once.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any

import dramatiq
from dramatiq.brokers.stub import StubBroker

from memline.shared.errors import QueueError
from memline.shared.queue import dead_letters, redis_client
from memline.shared.queue.heartbeat import embed_threads, is_served
from memline.shared.queue.lease_owner import is_owner_alive, owner_at
from memline.shared.queue.messages import AgentNotConfigured
from memline.shared.queue.redis_client import key
from memline.shared.queue.replies import cancel, revoke_unsent
from memline.shared.queue.routes import QUEUES
from memline.shared.scheduling.leases import current_owner

#: Requests in flight per embed thread.
PER_THREAD = 2

#: Texts in flight at most, over all requests. A text with its vector of 1,536 numbers is about 8 KB, so that
#: this is 64 MB in Redis; when many threads are alive each request is smaller, none of them goes without.
MAX_ROWS_IN_FLIGHT = 8_192

#: Seconds between two looks at which workers are alive: as often as their heartbeat.
LOOK_EVERY_S = 2.0

#: Seconds a queue may be without a worker before it counts as not served: a restart takes less.
GONE_S = 30.0


class InProcessRequests:
    """Tells the dispatcher of one process about its queues: requests end with it, and none is lost."""

    def __init__(self, broker: StubBroker | None = None, *, serves_batches: bool = False) -> None:
        self._broker = broker
        self._serves_batches = serves_batches
        self._owner = current_owner()

    def credits(self) -> int:
        return PER_THREAD * QUEUES["embed"].threads

    def serves_batches(self) -> bool:
        return self._serves_batches

    def store_depth(self) -> int:
        return self._broker.queues["store"].qsize() if self._broker else 0

    def is_chunking(self) -> bool:
        # Messages that a worker has taken and not finished are among them.
        return self._broker is not None and self._broker.queues["chunk"].unfinished_tasks > 0

    def missing(self, leases: Sequence[str], *, asked: float, now: float) -> list[str]:
        return []

    def answered(self) -> set[str]:
        return set()

    def dead_lettered(self, leases: Collection[str]) -> dict[str, str]:
        return {}

    def owner(self) -> str:
        return self._owner

    def is_owner_alive(self, owner: str) -> bool:
        return is_owner_alive(owner)

    def holds(self, lease: str) -> bool:
        return True

    def begin(self, lease: str) -> bool:
        return True

    def begun(self, leases: Sequence[str]) -> list[str]:
        return []

    def revoke_unsent(self, leases: Sequence[str]) -> list[str]:
        """Return them all: the account file knows which are sent, of all that this process sends."""
        return list(leases)

    def revoke(self, leases: Collection[str]) -> None:
        """Do nothing: a lease of this process is over when its answer is there."""


class RedisRequests:
    """Tells the dispatcher about the queues of a fleet. For the store thread, but for `store_depth`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client = redis_client.client(url)
        self._owner = ""
        #: Token -> when it was first found missing (`Clock.monotonic`).
        self._missing: dict[str, float] = {}
        self._looked_at: float | None = None
        self._embed_threads = QUEUES["embed"].threads
        # Processes of one fleet start together.
        self._batch_worker_seen = time.monotonic()

    def owner(self) -> str:
        """Return who holds the leases of what is sent now; while Redis is away, who held them last."""
        self._look()
        if not self._owner:
            with redis_client.translated(self._url):
                self._owner = owner_at(self._client, self._url)
        return self._owner

    def is_owner_alive(self, owner: str) -> bool:
        """Tell whether an owner holds its leases still; of this Redis, before it was emptied as well.

        What it has lost is found missing, after the answers that come yet.
        """
        is_ours = owner.rpartition(" ")[2] == self.owner().rpartition(" ")[2]
        return is_ours or is_owner_alive(owner, self._url)

    def holds(self, lease: str) -> bool:
        """Tell whether this process still has the request of a lease: it was neither revoked nor taken.

        For an embed worker, before it pays. While Redis is away that is not known, and taken for true.
        """
        broker: Any = dramatiq.get_broker()
        try:
            return bool(broker.retry(broker.has_taken, "embed", lease))
        except QueueError:
            return True

    def begin(self, lease: str) -> bool:
        """Note that this process begins to send the request of a lease; False when it may not any more.

        While Redis is away that cannot be noted, and nothing is sent.
        """
        broker: Any = dramatiq.get_broker()
        try:
            return bool(broker.retry(broker.begin, "embed", lease))
        except QueueError:
            return False

    def begun(self, leases: Sequence[str]) -> list[str]:
        """Give those of `leases` whose request a worker has begun to send, one of another home as well."""
        if not leases:
            return []
        with redis_client.translated(self._url):
            noted: Any = self._client.mget([key(self._client, f"embed.begun:{each}") for each in leases])
        return [lease for lease, each in zip(leases, noted, strict=True) if each is not None]

    def revoke_unsent(self, leases: Sequence[str]) -> list[str]:
        """Cancel the messages of leases that no worker has begun to send; returns these."""
        with redis_client.translated(self._url):
            return revoke_unsent(self._client, leases)

    def credits(self) -> int:
        """Count the requests that may be in flight at this moment.

        While Redis is away, as many as before; while no embed worker is alive, as for one process.
        """
        self._look()
        return PER_THREAD * self._embed_threads

    def serves_batches(self) -> bool:
        """Tell whether a batch worker has been there a moment ago."""
        self._look()
        return time.monotonic() - self._batch_worker_seen < GONE_S

    def store_depth(self) -> int:
        """Count the messages that wait for the store worker."""
        with redis_client.translated(self._url):
            return int(self._client.llen(key(self._client, "store")))

    def is_chunking(self) -> bool:
        """Tell whether files wait for a chunk worker, or one of them has some."""
        try:
            with redis_client.translated(self._url):
                return bool(self._client.hlen(key(self._client, "chunk.msgs")))
        except QueueError:
            # The next sender meets the same trouble and says so.
            return False

    def missing(self, leases: Sequence[str], *, asked: float, now: float) -> list[str]:
        """Give those of `leases` (tokens) that are on no queue any more.

        `asked` is when the sweep was put on the store queue: an answer that was there when its request was
        first found missing lies before a sweep that was sent after that, and has been processed by now. Both
        times are those of `Clock.monotonic`; a sweep from before a start of the machine says nothing.
        """
        asked = asked if asked <= now else 0.0
        if not leases:
            self._missing = {}
            return []
        with redis_client.translated(self._url):
            pipe = self._client.pipeline(transaction=False)
            for token in leases:
                pipe.hexists(key(self._client, "embed.msgs"), token)
            pipe.hkeys(key(self._client, "store.msgs"))
            *is_there, stored = pipe.execute()
        # An answer that is retried has left the order of the queue: it may lie behind this sweep.
        answered = {dead_letters.lease_of(raw_id) for raw_id in stored}
        absent = [
            token
            for token, there in zip(leases, is_there, strict=True)
            if not there and token not in answered
        ]
        missing = [token for token in absent if self._missing.get(token, now) < asked]
        self._missing = {token: self._missing.get(token, now) for token in absent if token not in missing}
        return missing

    def answered(self) -> set[str]:
        """Give the leases whose answers lie on the store queue, also those that are tried again later."""
        with redis_client.translated(self._url):
            stored: Any = self._client.hkeys(key(self._client, "store.msgs"))
        return {lease for raw_id in stored if (lease := dead_letters.lease_of(raw_id))}

    def dead_lettered(self, leases: Collection[str]) -> dict[str, str]:
        """Give those of `leases` whose request, or the answer to it, became a dead letter, and why.

        Sent again at once they would fail again: an embed worker of an older release refuses every request.
        An answer that came while its agent was not in the configuration is put back instead: it is paid for,
        and who asks for its lease knows the agent now.
        """
        errors: dict[str, str] = {}
        with redis_client.translated(self._url):
            for queue in ("embed", "store") if leases else ():
                for letter in dead_letters.of_leases(self._client, queue, leases):
                    if queue == "store" and letter.error.startswith(AgentNotConfigured.__name__):
                        dead_letters.requeue(self._url, [letter])
                    else:
                        errors[letter.id.partition(".")[0]] = letter.error
        return errors

    def revoke(self, leases: Collection[str]) -> None:
        """Cancel the messages of leases that are over: a worker that still has one leaves it alone."""
        with redis_client.translated(self._url):
            for token in leases:
                cancel(self._client, "embed", token, revoke=True)

    def _look(self) -> None:
        now = time.monotonic()
        if self._looked_at is not None and now - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = now
        try:
            with redis_client.translated(self._url):
                # One that was emptied has another run.
                self._owner = owner_at(self._client, self._url)
                self._embed_threads = embed_threads(self._client) or QUEUES["embed"].threads
                if is_served(self._client, "batch"):
                    self._batch_worker_seen = now
        except QueueError:
            # The sender of the requests meets the same trouble, waits for its end and says so.
            self._batch_worker_seen = max(self._batch_worker_seen, now - GONE_S + LOOK_EVERY_S)


InFlightRequests = InProcessRequests | RedisRequests


def rows_per_request(max_rows: int, credits: int) -> int:
    """Shrink a provider's cap of rows when so many credits would put too much into Redis."""
    return max(1, min(max_rows, MAX_ROWS_IN_FLIGHT // credits))
