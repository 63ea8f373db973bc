"""Read what is asked of one agent's memory: each thing once, and only when it is asked for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from sqlite3 import Connection

import msgspec

from memline.shared.config.installation import NO_QUEUE, QueueAddress
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import NONE, Choice
from memline.shared.errors import IndexFault
from memline.shared.findings import disk
from memline.shared.findings.fleet_summary import FleetSummary
from memline.shared.index import batches, hold, identities, jobs, ledger, meta, vectors
from memline.shared.index.accounts import AccountFile, Accounts
from memline.shared.index.batches import Batch
from memline.shared.index.identities import IdentityRow
from memline.shared.index.jobs import Job, Left
from memline.shared.index.ledger import LedgerEntry
from memline.shared.index.vectors import Backlog
from memline.shared.scheduling import health
from memline.shared.scheduling.budget import Refusal, ceiling_reached
from memline.shared.scheduling.health import Health
from memline.shared.sources import outcomes
from memline.shared.sources.discover import markdown_below
from memline.shared.sources.paths import MEMORY, is_transcript
from memline.shared.sync.model_state import ModelState, model_state
from memline.shared.sync.plan import EmptiedRoot, Plan

#: Failed texts and files that a finding names.
MOST_NAMED = 3


def fleet_summary(queue: QueueAddress, agents: Sequence[AgentSettings]) -> FleetSummary | None:
    """Return what these agents need to know of the fleet at this address; None without one."""
    if not queue:
        return None
    # 90 ms, most of them redis, which only a fleet pays.
    from memline.shared.findings.fleet import summary_of

    return summary_of(queue, agents)


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """Why no text of an agent is sent."""

    #: The code of the finding that says so.
    code: str
    #: The provider that it is about; empty where it is about all.
    subject: str = ""
    #: Whether it ends without a person.
    passes: bool = False


class Facts:
    """What is known of one agent's memory at one moment; close it when done.

    `index`: None without one, `fault`: why it cannot be read. `plan`: the comparison with the disk; None for
    an answer, which knows only how many files are behind, of these how many are `removed`, and which roots
    are `emptied`. `queue`: the address of a fleet's Redis; empty without a fleet.
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
        queue: QueueAddress = NO_QUEUE,
        emptied: tuple[EmptiedRoot, ...] = (),
    ) -> None:
        self.settings = settings
        self.agent = settings.agent
        self.choice = choice
        self.index = index
        self.now = now
        self.fault = fault
        self.plan = plan
        if files_behind is None:
            files_behind = plan.changes.count if plan is not None else 0
        self.files_behind = files_behind
        self.removed = len(plan.changes.removed) if plan is not None else removed
        self.queue = queue
        self.emptied = plan.emptied if plan is not None else emptied
        self.account_file = AccountFile(settings.account_path)

    def close(self) -> None:
        self.account_file.close()

    @cached_property
    def accounts(self) -> Accounts | None:
        if self.index is None:
            return None
        return Accounts(index=self.index, file=self.account_file)

    @cached_property
    def has_workspace(self) -> bool:
        return self.settings.workspace.is_dir()

    @cached_property
    def disk_trouble(self) -> tuple[str, str] | None:
        """Why nothing can be stored, and what ends that."""
        return disk.trouble(self.settings)

    @cached_property
    def has_notes(self) -> bool:
        """Whether notes are read, may be in a folder that cannot be listed, or are not looked for."""
        if self.plan is None or MEMORY not in self.settings.memory.sources:
            return True
        files = (each for each in self.plan.discovery.files if not is_transcript(each.path))
        return any(each.problem is None or each.problem.outcome == outcomes.UNREADABLE for each in files)

    @cached_property
    def unread_notes(self) -> int:
        """How many Markdown files the workspace has while no note is read."""
        return 0 if self.has_notes else markdown_below(str(self.settings.workspace))

    @cached_property
    def unread_files(self) -> list[LedgerEntry]:
        """The files that could not be read or split, and the folders that could not be listed."""
        return ledger.problems(self.index) if self.index is not None else []

    def is_folder(self, entry: LedgerEntry) -> bool:
        # The ledger has no kinds; there are few such rows.
        place = os.path.join(self.settings.workspace, entry.path)
        return entry.outcome == outcomes.UNREADABLE and os.path.isdir(place)

    @cached_property
    def target(self) -> IdentityRow | None:
        """What new texts are embedded with."""
        return identities.target(self.index) if self.index is not None else None

    @cached_property
    def backlog(self) -> Backlog:
        if self.index is None or self.target is None:
            return Backlog()
        return vectors.backlog(self.index, self.target.id)

    @cached_property
    def model(self) -> ModelState:
        """How far the index is from the model that the settings choose."""
        if self.index is None or self.is_keyword_only:
            return ModelState()
        return model_state(self.index, self.settings, self.choice)

    @cached_property
    def is_keyword_only(self) -> bool:
        """Whether nothing embeds and nobody asked for it: texts of a removed key wait for nothing."""
        return self.choice.identity is None and self.choice.requested == "auto" and not self.queue

    @cached_property
    def waiting(self) -> int:
        """Count the vectors that are pending and neither held back by a job nor in a batch."""
        if self.model.reason or not self.model.missing:
            # Of another model than what is held back or in a batch.
            return self.model.missing
        held = self.backlog.paused + self.backlog.cancelled + self.texts_in_batches
        return max(0, self.model.missing - held)

    @cached_property
    def breakers(self) -> dict[tuple[str, str], Health]:
        """Provider and mode -> health, of those that have a row."""
        return health.read_all(self.accounts) if self.accounts is not None else {}

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
        is_long = state.wait_s(self.now) > health.LONGEST_PAUSE_S
        is_asked = not state.failures or is_long
        is_held = self.target is not None and is_asked and not state.is_stopped
        return state.wait_s(self.now) if is_held else 0.0

    @cached_property
    def refusal(self) -> Refusal | None:
        """The daily limit that texts wait for."""
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
        return kept and {name: kept[name] for name in ("from", "reason")}

    @cached_property
    def jobs(self) -> list[Job]:
        """The jobs that are running or paused, oldest first."""
        return jobs.open_jobs(self.index) if self.index is not None else []

    @cached_property
    def left(self) -> dict[int, Left]:
        """What each job has not done, by its row id."""
        return jobs.left(self.index) if self.jobs and self.index is not None else {}

    @cached_property
    def batches(self) -> list[Batch]:
        """The open batches, oldest first."""
        return batches.open_batches(self.index) if self.index is not None else []

    @cached_property
    def texts_in_batches(self) -> int:
        if self.index is None:
            return 0
        return sum(batches.texts_left(self.index, batch.token, needed=True) for batch in self.batches)

    @cached_property
    def rate(self) -> float:
        """Vectors stored a second, in the last minute; 0 while nothing embeds."""
        if self.index is None or not self.has_embedder:
            return 0.0
        return meta.recent_rate(self.index, self.now)

    @cached_property
    def failed_texts(self) -> list[tuple[str, str, str]]:
        """Text hash, reason and path (empty: of no file any more) of the first texts that got no vector."""
        if self.index is None or self.target is None:
            return []
        rows = vectors.failures(self.index, self.target.id, MOST_NAMED)
        return [(text, reason, path or "") for text, reason, path in rows]

    @cached_property
    def fleet(self) -> FleetSummary | None:
        """The fleet, as far as this agent needs it; None without one."""
        return fleet_summary(self.queue, [self.settings])

    @cached_property
    def has_follower(self) -> bool:
        """Whether a process brings changed files into the index."""
        return hold.has_follower(self.settings.index_path)

    @cached_property
    def has_embedder(self) -> bool:
        """Whether a process sends the texts that are pending."""
        if self.fleet is not None:
            return self.fleet.is_embedding
        return hold.holder_of(self.settings.index_path) is not None

    @property
    def catch_up(self) -> str:
        """The command that brings the index up to date, or what has to be done before it can."""
        if self.disk_trouble is not None:
            return self.disk_trouble[1]
        if self.fleet is not None and self.fleet.error is not None:
            return self.fleet.error.hint
        if self.fleet is not None and self.fleet.missing:
            return f"memline worker {' '.join(self.fleet.missing)}"
        return "memline index"


def sending(facts: Facts) -> Stop | None:
    """Tell why no text of an agent is sent now; None while texts are sent, or would be."""
    state, choice, fleet = facts.requests, facts.choice, facts.fleet
    provider = facts.target.identity.provider if facts.target else ""
    if facts.is_paused:
        return Stop(code="paused")
    if facts.refusal is not None:
        return Stop(code="ceiling_reached")
    # The workers of a fleet embed, whatever this process could.
    if choice.identity is None and not facts.queue:
        named = choice.requested not in ("auto", NONE)
        return Stop(code="provider_unusable" if named else "no_provider", subject=choice.requested)
    if state.manual:
        return Stop(code="paused", subject=provider)
    if state.paused:
        is_over = state.has_given_up and state.is_stuck(facts.now)
        return Stop(code="breaker_open", subject=provider, passes=not is_over)
    if facts.hold_s:
        return Stop(code="rate_limited", subject=provider, passes=True)
    if fleet is not None and fleet.error is not None:
        return Stop(code="redis_unusable", passes=True)
    if fleet is not None and not fleet.is_embedding:
        return Stop(code="role_missing", passes=True)
    return None
