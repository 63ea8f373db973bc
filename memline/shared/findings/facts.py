"""Read what the conditions of findings ask: each thing once, and only when it is asked for."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import Choice
from memline.shared.errors import IndexFault, MemlineError, QueueError
from memline.shared.finding import GOOD_FOR_S, Trouble
from memline.shared.findings import disk
from memline.shared.index import batches, identities, jobs, ledger, meta, vectors
from memline.shared.index.accounts import AccountFile, Accounts
from memline.shared.index.batches import Batch
from memline.shared.index.identities import IdentityRow
from memline.shared.index.jobs import Job, Left
from memline.shared.index.vectors import Backlog
from memline.shared.scheduling import breaker, health, home_processes
from memline.shared.scheduling.breaker import Health
from memline.shared.scheduling.budget import Refusal, ceiling_reached
from memline.shared.scheduling.home_processes import Process
from memline.shared.sources import outcomes
from memline.shared.sync.model_state import ModelState, model_state

if TYPE_CHECKING:
    from sqlite3 import Connection

    from memline.shared.index.ledger import LedgerEntry
    from memline.shared.queue.depth import Fleet
    from memline.shared.queue.heartbeat import WorkerInfo
    from memline.shared.sync.plan import EmptiedRoot, Plan

#: Failed texts and files that a finding names.
MOST_NAMED = 3

#: How the commands begin that bring an index up to date, beside a fleet by its queue.
_INDEX = ("memline index", "memline reindex")

_fleets: dict[str, tuple[float, Fleet | QueueError]] = {}
_clients: dict[str, Any] = {}


def fleet_at(url: str) -> Fleet | QueueError:
    """Return what Redis says of a fleet, at most half a second old, or why it says nothing."""
    asked, fleet = _fleets.get(url, (-GOOD_FOR_S, None))
    if fleet is None or time.monotonic() - asked >= GOOD_FOR_S:
        # 90 ms of imports, most of them redis, which only a fleet pays.
        from memline.shared.queue import depth, redis_client

        try:
            if url not in _clients:
                _clients[url] = redis_client.client(url, looks=True)
            fleet = depth.read(url, _clients[url])
        except QueueError as error:
            fleet = error
        _fleets[url] = (time.monotonic(), fleet)
    return fleet


def embeds(queue: str) -> bool:
    """Tell whether a fleet sends texts and stores vectors: a worker is alive for each of the two roles."""
    if not queue or isinstance(fleet := fleet_at(queue), MemlineError):
        return False
    return {role for each in fleet.workers for role in each.queues} >= {"store", "embed"}


def roles_of(agents: Sequence[AgentSettings]) -> tuple[str, ...]:
    """Return the roles that a fleet of these agents needs."""
    from memline.shared.queue import routes

    return routes.needed_roles(agents)


class _QueueFacts:
    """What is known of a fleet's Redis at one moment; `queue` is its address, empty without a fleet."""

    queue: str

    @cached_property
    def fleet(self) -> Fleet | None:
        return None if isinstance(self._answer, QueueError) else self._answer

    @cached_property
    def error(self) -> QueueError | None:
        """Why Redis does not answer, or takes no messages."""
        return self._answer if isinstance(self._answer, QueueError) else getattr(self._answer, "error", None)

    @cached_property
    def _answer(self) -> Fleet | QueueError | None:
        return fleet_at(self.queue) if self.queue else None

    def helping(self, action: str) -> str:
        """Return the action; of a command that needs a Redis which takes no messages, what to do about it."""
        if not action.startswith(_INDEX) or self.error is None:
            return action
        return f"{self.error.message.rstrip('.')}; {self.error.hint}"


class Facts(_QueueFacts):
    """What is known of one agent's memory at one moment.

    `index`: None without one, `fault`: why it cannot be read. `plan`: the comparison with the disk; None for
    an answer, which knows only how many files are behind, and which roots are `emptied`. `troubles`: what
    reading met by itself. `queue`: the address of a fleet's Redis; empty without a fleet.
    """

    def __init__(
        self,
        settings: AgentSettings,
        choice: Choice,
        index: Connection | None,
        *,
        now: float,
        fault: IndexFault | None = None,
        plan: Plan | None = None,
        files_behind: int | None = None,
        removed: int = 0,
        troubles: tuple[Trouble, ...] = (),
        queue: str = "",
        emptied: tuple[EmptiedRoot, ...] = (),
    ) -> None:
        self.settings = settings
        self.choice = choice
        self.index = index
        self.now = now
        self.fault = fault
        self.plan = plan
        if files_behind is None:
            files_behind = plan.changes.count if plan is not None else 0
        self.files_behind = files_behind
        #: Of these, those that the index still has and that are gone.
        self.removed = len(plan.changes.removed) if plan is not None else removed
        self.troubles = troubles
        self.queue = queue
        #: Roots of which no file is left, and whose rows stay.
        self.emptied = plan.emptied if plan is not None else emptied
        self.account_file = AccountFile(settings.account_path)

    def close(self) -> None:
        self.account_file.close()

    def helping(self, action: str) -> str:
        """The same of an index that cannot be stored."""
        if action.startswith(_INDEX) and (found := disk.trouble(self.settings)):
            return "; ".join(found)
        return super().helping(action)

    @cached_property
    def accounts(self) -> Accounts | None:
        if self.index is None:
            return None
        return Accounts(index=self.index, file=self.account_file, name=str(self.settings.index_path))

    @cached_property
    def target(self) -> IdentityRow | None:
        return identities.target(self.index) if self.index is not None else None

    @cached_property
    def backlog(self) -> Backlog:
        if self.index is None or self.target is None:
            return Backlog()
        return vectors.backlog(self.index, self.target.id)

    @cached_property
    def model(self) -> ModelState:
        """How far the index is from the model that the settings choose."""
        return model_state(self.index, self.settings, self.choice) if self.index is not None else ModelState()

    @cached_property
    def breakers(self) -> dict[tuple[str, str], Health]:
        """Provider and mode -> health, of those that have a row."""
        return health.read_all(self.accounts) if self.accounts is not None else {}

    def open_breakers(self, mode: str) -> list[tuple[str, Health]]:
        """Return the providers whose breaker for requests or batches is not closed, with its state."""
        return [(key[0], state) for key, state in self.breakers.items() if key[1] == mode and state.paused]

    def is_sent_to(self, provider: str) -> bool:
        """Tell whether the texts of the index go to this provider."""
        return self.target is not None and self.target.identity.provider == provider

    @cached_property
    def requests(self) -> Health:
        """The health of requests to the provider that texts are sent to."""
        provider = self.target.identity.provider if self.target else ""
        return self.breakers.get((provider, health.REQUESTS), Health())

    @property
    def hold_s(self) -> float:
        """Seconds for which the provider asked to send nothing (429, Retry-After); 0 when it did not."""
        state = self.requests
        # Our own cooldowns after failures are shorter.
        is_long = state.retry_at - self.now > breaker.REQUEST_RULES.max_cooldown_s
        is_asked = not state.failures or is_long or "429" in state.reason
        is_held = self.target is not None and is_asked and not state.is_stopped
        return max(0.0, state.retry_at - self.now) if is_held else 0.0

    @cached_property
    def refusal(self) -> Refusal | None:
        """The ceiling that texts wait for."""
        return ceiling_reached(self.accounts, self.settings, self.now) if self.accounts is not None else None

    @cached_property
    def is_paused(self) -> bool:
        """Whether a person paused all sending."""
        return self.index is not None and bool(meta.get(self.index, meta.PAUSED, False))

    @cached_property
    def fallback(self) -> dict[str, str] | None:
        """Why another provider than the chosen one embeds: {"from", "reason"}."""
        kept = meta.get(self.index, meta.FALLBACK) if self.index is not None else None
        if kept is None and self.choice.fallback_from:
            kept = {"from": self.choice.fallback_from, "reason": self.choice.reason}
        return kept

    @property
    def paused_jobs(self) -> list[tuple[Job, Left]]:
        """The jobs that are paused, oldest first, and what each has not done."""
        open_jobs = jobs.open_jobs(self.index) if self.index is not None else []
        paused = [job for job in open_jobs if job.state == jobs.PAUSED]
        left = jobs.left(self.index) if paused and self.index is not None else {}
        return [(job, left.get(job.id, Left())) for job in paused]

    @cached_property
    def batches(self) -> list[Batch]:
        """The open batches, oldest first."""
        return batches.open_batches(self.index) if self.index is not None else []

    @property
    def unfinished_batches(self) -> list[Batch]:
        """Those whose texts are still to come."""
        return [batch for batch in self.batches if batch.is_unfinished or batch.state == "collecting"]

    @cached_property
    def texts_in_batches(self) -> int:
        if self.index is None:
            return 0
        return sum(batches.texts_awaited(self.index, batch.token) for batch in self.batches)

    @cached_property
    def rate(self) -> float:
        """Vectors stored a second, in the last minute; 0 while the fleet that has them stands still."""
        is_up = any(each.kind == home_processes.UP for each in self.processes)
        if self.queue and not is_up and not embeds(self.queue):
            return 0.0
        return meta.recent_rate(self.index, self.now) if self.index is not None else 0.0

    @cached_property
    def processes(self) -> list[Process]:
        """The processes of this host that work for this agent now."""
        return [
            each
            for each in home_processes.listed(self.account_file)
            if self.settings.agent in each.agents and each.is_here and each.is_alive
        ]

    @cached_property
    def has_follower(self) -> bool:
        """Whether a process brings changed files into the index."""
        # Of another host of a fleet it is not known, and taken for true.
        return any(
            each.kind in home_processes.FOLLOWERS and self.settings.agent in each.agents and each.is_alive
            for each in home_processes.listed(self.account_file)
        )

    @cached_property
    def has_embedder(self) -> bool:
        """Whether a process sends the texts that wait, or has sent some of them."""
        if any(each.kind in home_processes.EMBEDDING for each in self.processes):
            return True
        return embeds(self.queue)

    @cached_property
    def is_stopped(self) -> bool:
        """Whether no text is sent until something else is mended; a finding of its own says what."""
        return bool(
            self.is_paused
            or self.refusal is not None
            or self.requests.manual
            or self.requests.paused
            or (self.choice.identity is None and not self.queue)
        )

    @cached_property
    def waiting(self) -> int:
        """Vectors that are wanted and not held back by a job, nor in a batch."""
        if self.model.reason:
            # Those of another model than what is held back or in a batch.
            return self.model.missing
        held = self.backlog.paused + self.backlog.cancelled + self.texts_in_batches
        return max(0, self.model.missing - held)

    @property
    def failed_files(self) -> list[LedgerEntry]:
        """The files that could not be read or split; of folders that is said of the sources."""
        return [each for each in self._unread if not self._is_folder(each)]

    @property
    def unread_folders(self) -> list[LedgerEntry]:
        """The folders that could not be listed, and still cannot."""
        folders = [each for each in self._unread if self._is_folder(each)]
        return [each for each in folders if not os.access(self._place(each), os.R_OK | os.X_OK)]

    @cached_property
    def _unread(self) -> list[LedgerEntry]:
        return ledger.problems(self.index) if self.index is not None else []

    def _is_folder(self, entry: LedgerEntry) -> bool:
        # The ledger has no kinds; there are few such rows.
        return entry.outcome == outcomes.UNREADABLE and os.path.isdir(self._place(entry))

    def _place(self, entry: LedgerEntry) -> str:
        return os.path.join(self.settings.workspace, entry.path)

    @property
    def failed_texts(self) -> list[tuple[str, str]]:
        """Path and reason of the first texts that got no vector."""
        if self.index is None or self.target is None or not self.backlog.failed:
            return []
        found = vectors.failures(self.index, self.target.id, MOST_NAMED)
        return [(path or "", reason) for _, reason, path in found]


class FleetFacts(_QueueFacts):
    """What is known of a home's machine and of its fleet at one moment."""

    def __init__(
        self,
        account_file: AccountFile | None = None,
        *,
        queue: str = "",
        roles: tuple[str, ...] = (),
        warnings: tuple[str, ...] = (),
        troubles: tuple[Trouble, ...] = (),
        now: float,
    ) -> None:
        """`roles`: those that the agents need; `queue` and `troubles`: as in `Facts`; `warnings`: of the
        configuration. `account_file`: None where nothing could be read.
        """
        self.queue = queue
        self.roles = roles
        self.warnings = warnings
        self.troubles = troubles
        self.now = now
        self.account_file = account_file

    @property
    def workers(self) -> tuple[WorkerInfo, ...]:
        """Those that are alive; none where Redis does not say."""
        return self.fleet.workers if self.fleet is not None else ()

    @cached_property
    def processes(self) -> list[Process]:
        return home_processes.listed(self.account_file) if self.account_file else []
