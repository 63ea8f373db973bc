"""What the actors of this process share: settings, open indexes, embedders, limits.

Actors are plain functions that dramatiq calls with a message; everything else they need is here. Set by
whoever starts the process: `use` in one process, `from_environment` under `dramatiq workers`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from shared.clock import Clock, SystemClock
from shared.config import environment
from shared.config.resolve import away_from_files
from shared.config.schema import AgentSettings, Settings
from shared.embedders.batch import BatchApi
from shared.embedders.batch_apis import BatchApis
from shared.embedders.choice import Choice, choose, choose_fallback
from shared.embedders.protocol import Embedder, Identity
from shared.errors import ProviderError, QueueError
from shared.index import fallback
from shared.index.batch_dispatch import BatchRules
from shared.index.batch_submit import Timing
from shared.index.dispatch import LEASE_S
from shared.index.driver import reading
from shared.index.plan import ledger_of, look
from shared.index.results import MISFIT
from shared.index.writer import IndexWriter
from shared.queue import broker as queue_broker
from shared.queue.bell import SWEEP_EVERY_S, Bell
from shared.queue.credits import Credits, InProcessCredits
from shared.queue.limits import InProcessLimits, Limits
from shared.queue.messages import MessageRefused, Sweep
from shared.queue.replies import InProcessReplies, Replies
from shared.queue.send import send
from shared.search.behind import FilesBehind
from shared.search.service import MemorySearch
from shared.sources.tokens import estimate_tokens

if TYPE_CHECKING:
    from shared.queue.deliveries import Deliveries
    from shared.queue.patience import Patience

#: Owner of the leases of a fleet: requests outlive the store process that sent them.
FLEET_OWNER = "fleet"

#: Messages on the store queue above which chunk workers wait, and for how many seconds at most.
MAX_STORE_DEPTH = 32
ROOM_PATIENCE_S = 30.0
ROOM_EVERY_S = 0.01


class WorkerMisfit(ProviderError):
    """This worker's settings lead to another model than the index wants; nothing is wrong with either."""

    kind = MISFIT


class Runtime:
    """State of one process; the store worker's part is used by its single thread only."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        sweep_every_s: float = SWEEP_EVERY_S,
        owner: str = "",
        lease_s: float = LEASE_S,
    ) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()
        self.credits: Credits = InProcessCredits()
        self.limits: Limits = InProcessLimits(self.clock)
        self.replies: Replies = InProcessReplies()
        #: Knows which requests are still on the queue; None in one process, where they die with it.
        self.deliveries: Deliveries | None = None
        #: Whether somebody works on batches; without, none is made.
        self.serves_batches: Callable[[], bool] = lambda: False
        self._owner = owner
        self._lease_s = lease_s
        #: Set when the process is told to stop: whoever waits here waits no longer.
        self.stopping = threading.Event()
        self.bell = Bell(
            lambda agent, deep: send(Sweep(agent=agent, deep=deep, sent=self.clock.now())),
            every_s=sweep_every_s,
        )
        self._lock = threading.Lock()
        self._writers: dict[str, IndexWriter] = {}
        self._choices: dict[str, Choice] = {}
        self._stand_ins: dict[str, Choice | None] = {}
        self._embedders: dict[str, Embedder] = {}
        self._batch_apis = BatchApis()
        self._memories: dict[str, MemorySearch] = {}
        self._behind: dict[str, FilesBehind] = {}

    @classmethod
    def of_fleet(cls, settings: Settings, patience: Patience) -> Runtime:
        """The runtime of a worker process whose queue is on Redis."""
        from shared.queue.deliveries import Deliveries
        from shared.queue.redis_credits import RedisCredits
        from shared.queue.redis_limits import RedisLimits
        from shared.queue.redis_replies import RedisReplies
        from shared.queue.served import Served

        url = settings.queue.url
        here = cls(settings, owner=FLEET_OWNER, lease_s=environment.lease_s(LEASE_S))
        here.limits = RedisLimits(url, patience)
        here.replies = RedisReplies(url)
        here.deliveries = Deliveries(url)
        here.credits = RedisCredits(url)
        here.serves_batches = Served(url, "batch")
        return here

    def agent(self, agent: str) -> AgentSettings:
        """The settings of an agent. Raises MessageRefused for one this process does not know."""
        try:
            return self.settings.agents[agent]
        except KeyError:
            raise self._unknown(agent) from None

    def agent_away(self, agent: str) -> AgentSettings:
        """The same for what only calls the provider: an embed worker has no workspace."""
        try:
            return away_from_files(self.settings.agents, agent)
        except KeyError:
            raise self._unknown(agent) from None

    def _unknown(self, agent: str) -> MessageRefused:
        known = ", ".join(sorted(self.settings.agents))
        return MessageRefused(
            f"a message names the agent {agent!r}, which is not configured here (known: {known})",
            hint="memline config show",
        )

    def choice(self, agent: str) -> Choice:
        """Which provider the agent's texts are embedded with."""
        with self._lock:
            if agent not in self._choices:
                self._choices[agent] = choose(self.agent_away(agent))
            return self._choices[agent]

    def writer(self, agent: str) -> IndexWriter:
        """The open index of an agent, made ready for work the first time. For the store thread."""
        writer = self._writers.get(agent)
        if writer is not None and writer.is_replaced:
            # What is written to the old file would be lost.
            writer.close()
            del self._writers[agent]
            writer = None
        if writer is None:
            settings = self.agent(agent)
            choice = self.choice(agent)
            writer = IndexWriter.of(settings, clock=self.clock, owner=self._owner)
            writer.lease_s = self._lease_s
            writer.recover()
            fallback.begin(writer, choice, self.stand_in(agent))
            self._writers[agent] = writer
            self.bell.watch(agent)
        return writer

    def stand_in(self, agent: str) -> Choice | None:
        """The fallback that the settings of an agent name; None when there is none that can work."""
        choice = self.choice(agent)
        with self._lock:
            if agent not in self._stand_ins:
                away = self.agent_away(agent)
                self._stand_ins[agent] = choose_fallback(away, choice, reason="", action="")
            return self._stand_ins[agent]

    def sender(self, agent: str) -> Choice:
        """The provider that texts go out to now: the chosen one or its fallback. For the store thread."""
        choice, second = self.choice(agent), self.stand_in(agent)
        if second is not None and fallback.stands_in(self.writer(agent), choice, second):
            return second
        return choice

    def settle_provider(self, agent: str, heard_of: Identity) -> None:
        """Change over to the fallback, or back, as the health of the chosen one asks.

        `heard_of` is who has just answered, or failed to. For the store thread.
        """
        choice = self.choice(agent)
        if choice.identity is not None and choice.identity.key == heard_of.key:
            fallback.turn(self.writer(agent), choice, self.stand_in(agent))

    def wait_for_room(self, max_depth: int = MAX_STORE_DEPTH) -> None:
        """Wait while more messages than that wait for the store worker, so that the text of many files, or
        the vectors of a batch, never lie in memory or Redis.

        Gives up after a while: then the store worker is away, and a file more or less does not matter.
        """
        until = time.monotonic() + ROOM_PATIENCE_S
        while time.monotonic() < until and self._store_depth() > max_depth:
            if self.stopping.wait(ROOM_EVERY_S):
                return

    def _store_depth(self) -> int:
        if self.deliveries is not None:
            try:
                return self.deliveries.store_depth()
            except QueueError:
                # Redis is away: whoever sends waits for it, and says so.
                return 0
        broker = queue_broker.current()
        return broker.queues["store"].qsize() if broker is not None else 0

    def is_feeding(self) -> bool:
        """Whether files are being looked at whose texts are not in the index yet. For the store thread."""
        if self.deliveries is not None:
            return self.deliveries.is_any_chunking()
        broker = queue_broker.current()
        # Those that a worker has taken and not finished are among them.
        return broker is not None and broker.queues["chunk"].unfinished_tasks > 0

    def take_place(self, agent: str, provider: str, texts: Sequence[str], *, patience_s: float) -> float:
        """Take a place for one call within the provider's limits; the seconds until it.

        Longer than `patience_s`, nothing was taken.
        """
        max_requests, max_tokens = self._budget(agent, provider)
        return self.limits.take(
            provider,
            tokens=sum(map(estimate_tokens, texts)),
            max_requests=max_requests,
            max_tokens=max_tokens,
            patience_s=patience_s,
        )

    def is_counted(self, agent: str, provider: str) -> bool:
        """Whether every request to the provider counts against a limit that somebody set."""
        return any(self._budget(agent, provider))

    def _budget(self, agent: str, provider: str) -> tuple[int, int]:
        """Requests and tokens a minute; what is set is meant for the provider that was asked for."""
        remote = self.agent_away(agent).memory.remote
        choice = self.choice(agent)
        if choice.provider != provider or choice.fallback_from:
            return 0, 0
        return remote.requests_per_minute, remote.tokens_per_minute

    def embedder(self, agent: str, identity: Identity) -> Embedder:
        """The embedder of an identity.

        Raises WorkerMisfit when this process's settings do not give it, and ProviderStop when they give none.
        """
        key = f"{agent}/{identity.key}"
        with self._lock:
            embedder = self._embedders.get(key)
        if embedder is not None:
            return embedder
        choice = self.choice(agent)
        ours = [each for each in (choice, self.stand_in(agent)) if each is not None]
        fitting = next((each for each in ours if each.identity and each.identity.key == identity.key), None)
        if fitting is None:
            raise WorkerMisfit(
                f"a worker is set up for {choice.provider} {choice.model}, the index wants"
                f" {identity.provider} {identity.model}",
                hint="give workers and index the same provider settings: memline config show",
            )
        built = fitting.build()
        with self._lock:
            return self._embedders.setdefault(key, built)

    def batch_rules(self, agent: str, choice: Choice) -> BatchRules | None:
        """What goes by batch with a provider; None when nothing does. For the store thread."""
        batch = self.agent(agent).memory.remote.batch
        if not batch.enabled or choice.identity is None or not self.serves_batches():
            return None
        api = self.batch_api(agent, choice.identity, choice.base_url)
        if not api.caps.max_rows:
            return None
        return BatchRules(
            concurrency=batch.concurrency,
            min_texts=batch.min_texts,
            max_rows=api.caps.max_rows,
            max_bytes=api.caps.max_bytes,
        )

    def batch_timing(self, agent: str) -> Timing:
        """When batches of an agent are looked at, and given up."""
        batch = self.agent(agent).memory.remote.batch
        timeout_s = batch.timeout_minutes * 60.0 if batch.wait else 0.0
        return Timing(poll_s=batch.poll_interval_ms / 1000, timeout_s=timeout_s)

    def batch_api(self, agent: str, of: Identity, base_url: str) -> BatchApi:
        """The Batch API behind an identity; see `shared.embedders.batch_apis`."""
        return self._batch_apis.of(self.agent(agent), of, base_url)

    def memory(self, agent: str) -> MemorySearch:
        """The warm memory of an agent, to be asked. For query threads."""
        settings = self.agent(agent)
        choice = self.choice(agent)
        with self._lock:
            memory = self._memories.get(agent)
            if memory is None:
                memory = MemorySearch(settings, choice=choice, long_lived=True, clock=self.clock)
                self._memories[agent] = memory
            return memory

    def files_behind(self, agent: str) -> int:
        """Files that changed and are not in the index yet, as of a look a moment ago. For query threads."""
        with self._lock:
            look_at = self._behind.setdefault(agent, FilesBehind(lambda: self._look(agent)))
        return look_at.count()

    def _look(self, agent: str) -> int:
        settings = self.agent(agent)
        with reading(settings.index_path) as reader:
            return look(settings, self.choice(agent), ledger_of(reader)).changes.count

    def close(self) -> None:
        """Stop the timer and close what is open; the workers have stopped before."""
        self.bell.stop()
        for writer in self._writers.values():
            writer.close()
        for embedder in self._embedders.values():
            embedder.close()
        self._batch_apis.close()
        for memory in self._memories.values():
            memory.close()
        self._writers.clear()
        self._embedders.clear()
        self._memories.clear()


_current: Runtime | None = None


def use(runtime: Runtime | None) -> None:
    """Make `runtime` the one of this process."""
    global _current
    _current = runtime


def current() -> Runtime:
    """The runtime of this process. Raises QueueError when whoever started it set none."""
    if _current is None:
        raise QueueError("this process has no runtime", hint="start workers with: dramatiq workers")
    return _current
