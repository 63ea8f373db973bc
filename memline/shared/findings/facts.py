"""Read what is asked of one agent's memory: each thing once, and only when it is asked for."""

from __future__ import annotations

from contextlib import closing
from functools import cached_property
from sqlite3 import Connection

import msgspec

from memline.shared.config.installation import NO_QUEUE, QueueAddress
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import NONE, Choice
from memline.shared.errors import IndexFault
from memline.shared.index import batches, driver, hold, identities, meta, vectors
from memline.shared.index.accounts import AccountFile, Accounts
from memline.shared.index.batches import Batch
from memline.shared.index.identities import IdentityRow
from memline.shared.index.vectors import Backlog
from memline.shared.queue.fleet import Fleet, fleet_at
from memline.shared.scheduling import health
from memline.shared.scheduling.budget import ceiling_reached
from memline.shared.scheduling.health import Health
from memline.shared.sync.model_state import ModelState, model_state
from memline.shared.sync.plan import Plan
from memline.shared.sync.staleness import DiskState

#: Failed texts and files that a finding names.
MOST_NAMED = 3


class Facts:
    """What is known of one agent's memory at one moment.

    `index`: None without one, and then all that it would say is empty; `fault`: why it cannot be read.
    `plan`: the comparison with the disk; an answer has none, and knows what `on_disk` says. `queue`: the
    address of a fleet's Redis; empty without a fleet.
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
        on_disk: DiskState | None = None,
        queue: QueueAddress = NO_QUEUE,
    ) -> None:
        self.settings, self.choice, self.now, self.queue = settings, choice, now, queue
        self.agent, self.has_workspace = settings.agent, settings.workspace.is_dir()
        self.has_index, self.fault = index is not None, fault
        self.index = driver.empty() if index is None else index
        self.plan, self.on_disk = plan, on_disk or DiskState()
        with closing(AccountFile(settings.account_path)) as file:
            accounts = Accounts(index=self.index, file=file)
            #: Provider and mode -> health, of those that have a row.
            self.breakers: dict[tuple[str, str], Health] = health.read_all(accounts)
            #: The daily limit that texts wait for.
            self.refusal = ceiling_reached(accounts, settings, now)

    @cached_property
    def target(self) -> IdentityRow | None:
        """What new texts are embedded with."""
        return identities.target(self.index)

    @cached_property
    def provider(self) -> str:
        """The provider that texts are sent to; empty without one."""
        return self.target.identity.provider if self.target else ""

    @cached_property
    def backlog(self) -> Backlog:
        return vectors.backlog(self.index, self.target.id) if self.target else Backlog()

    @cached_property
    def model(self) -> ModelState:
        """How far the index is from the model that the settings choose.

        Where nothing embeds and nobody asked for it, texts of a removed key wait for nothing.
        """
        is_keyword_only = self.choice.identity is None and self.choice.requested == "auto" and not self.queue
        return ModelState() if is_keyword_only else model_state(self.index, self.settings, self.choice)

    @cached_property
    def waiting(self) -> int:
        """Count the vectors that are pending and neither held back by a job nor in a batch."""
        if self.model.reason:
            # Of another model than what is held back or in a batch.
            return self.model.missing
        held = self.backlog.paused + self.backlog.cancelled + self.texts_in_batches
        return max(0, self.model.missing - held)

    def health_of(self, provider: str, mode: str = health.REQUESTS) -> Health:
        return self.breakers.get((provider, mode), Health())

    @property
    def requests(self) -> Health:
        """The health of requests to the provider that texts are sent to."""
        return self.health_of(self.provider)

    @property
    def hold_s(self) -> float:
        """Seconds for which the provider asked to send nothing (429, Retry-After); 0 when it did not."""
        state, wait_s = self.requests, self.requests.wait_s(self.now)
        # Our own cooldowns after failures are shorter.
        is_asked = not state.failures or wait_s > health.LONGEST_PAUSE_S
        return wait_s if is_asked and not state.is_stopped else 0.0

    @cached_property
    def is_paused(self) -> bool:
        """Whether a person paused all sending."""
        return bool(meta.get(self.index, meta.PAUSED, False))

    @cached_property
    def fallback(self) -> dict[str, str] | None:
        """Why another provider than the chosen one embeds: {"from", "reason"}."""
        if kept := meta.get(self.index, meta.FALLBACK):
            return {name: kept[name] for name in ("from", "reason")}
        first = self.choice.fallback_from
        return {"from": first, "reason": self.choice.reason} if first else None

    @cached_property
    def batches(self) -> list[Batch]:
        """The open batches, oldest first."""
        return batches.open_batches(self.index)

    @cached_property
    def texts_in_batches(self) -> int:
        return sum(batches.texts_left(self.index, batch.token, needed=True) for batch in self.batches)

    @cached_property
    def failed_texts(self) -> list[tuple[str, str, str]]:
        """Text hash, reason and path (empty: of no file any more) of the first texts that got no vector."""
        rows = vectors.failures(self.index, self.target.id, MOST_NAMED) if self.target else []
        return [(text, reason, path or "") for text, reason, path in rows]

    @cached_property
    def fleet(self) -> Fleet:
        """The fleet; an empty one without a queue."""
        return fleet_at(self.queue) if self.queue else Fleet()

    @cached_property
    def missing_roles(self) -> tuple[str, ...]:
        """The roles that this agent needs and no worker of the fleet has."""
        return self.fleet.missing([self.settings])

    @cached_property
    def has_embedder(self) -> bool:
        """Whether a process sends the texts that are pending."""
        if self.queue:
            return self.fleet.error is None and not {"store", "embed"} & {*self.missing_roles}
        return hold.holder_of(self.settings.index_path) is not None

    @property
    def catch_up(self) -> str:
        """The command that brings the index up to date, or what has to be done before it can."""
        if self.fleet.error is not None:
            return self.fleet.error.hint
        return f"memline worker {' '.join(self.missing_roles)}" if self.missing_roles else "memline index"


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """Why no text of an agent is sent."""

    #: The code of the finding that says so.
    code: str
    #: Whether it ends without a person.
    passes: bool = False


def sending(facts: Facts) -> Stop | None:
    """Tell why no text of an agent is sent now; None while texts are sent, or would be."""
    state, choice = facts.requests, facts.choice
    if facts.is_paused:
        return Stop(code="paused")
    if facts.refusal is not None:
        return Stop(code="ceiling_reached")
    # The workers of a fleet embed, whatever this process could.
    if choice.identity is None and not facts.queue:
        return Stop(code="no_provider" if choice.requested in ("auto", NONE) else "provider_unusable")
    if state.manual:
        return Stop(code="paused")
    if state.paused:
        return Stop(code="breaker_open", passes=not (state.has_given_up and state.is_stuck(facts.now)))
    if facts.hold_s:
        return Stop(code="rate_limited", passes=True)
    if facts.queue and not facts.has_embedder:
        return Stop(code="redis_unusable" if facts.fleet.error else "role_missing", passes=True)
    return None
