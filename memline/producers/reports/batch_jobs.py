"""Report batches to the user: list them, show one in full."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from sqlite3 import Connection
from typing import Any

from memline.producers.reports.job_reports import only_one
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import choose
from memline.shared.finding import Finding
from memline.shared.findings.check import of_agent
from memline.shared.findings.facts import Facts
from memline.shared.findings.work import batch_blocked
from memline.shared.index import batches, driver, identities
from memline.shared.index.batches import Batch
from memline.shared.values import value

#: Characters of a batch's id that are shown in a list; any beginning that fits one batch names it.
SHORT = 8

#: Batches that are searched for what the user may have meant.
MAX_KNOWN = 1000

_LIST = "memline batch ls"

#: What is to happen next with a batch in a state.
_NEXT = {
    "intent": "to be uploaded",
    "uploaded": "to be submitted",
    "submitted": "at the provider",
    "collecting": "being stored",
}

#: Fields of the JSON contract that are null while there is nothing to say.
_OPTIONAL = {
    "jobId": "job_id",
    "fileId": "file_id",
    "outcome": "outcome",
    "providerState": "provider_state",
    "submittedAt": "submitted_at",
    "lookedAt": "polled_at",
    "closedAt": "closed_at",
    "callingSince": "call_started_at",
    "deadline": "deadline",
    "cancelAsked": "cancel_requested_at",
    "cancelReason": "cancel_reason",
    "cancelledAt": "cancelled_at",
    "error": "error",
    "action": "action",
}


@value
class Job:
    """A batch and its agent, provider and model."""

    settings: AgentSettings
    batch: Batch
    provider: str
    model: str
    #: Texts that have no vector yet.
    texts_left: int
    #: What is wrong with it.
    findings: tuple[Finding, ...] = ()

    @property
    def progress(self) -> str:
        """Say what became of it, or what is to happen next."""
        words = self.batch.outcome or _NEXT.get(self.batch.state, self.batch.state)
        is_to_end = self.batch.cancel_requested_at and not self.batch.outcome
        return f"{words}, to be cancelled" if is_to_end else words

    def to_json(self, now: float) -> dict[str, Any]:
        """Everything that is known of it."""
        batch = self.batch
        return {
            "agentId": self.settings.agent,
            "id": batch.token,
            "provider": self.provider,
            "model": self.model,
            **{name: getattr(batch, name) for name in ("state", "rows", "stored", "attempts")},
            "progress": self.progress,
            "textsLeft": self.texts_left,
            "providerRowsDone": batch.rows_done,
            "createdAt": batch.created_at,
            "ageSeconds": round(max(now - batch.created_at, 0.0), 1),
            "nextLookAt": batch.due if batch.is_open and batch.due else None,
            **{key: getattr(batch, name) or None for key, name in _OPTIONAL.items()},
            "findings": [each.to_json() for each in self.findings],
        }


def listed(agents: Sequence[AgentSettings], *, limit: int, only_open: bool = False) -> list[Job]:
    """Return the open batches of these agents and the last `limit` of each that were made, newest first."""
    jobs: list[Job] = []
    for settings in agents:
        with driver.reading_if_any(settings.index_path) as reader:
            if reader is not None:
                latest = [] if only_open else batches.latest(reader, limit)
                known = {batch.token: batch for batch in (*batches.open_batches(reader), *latest)}
                jobs += [_job(reader, settings, batch) for batch in known.values()]
    return sorted(jobs, key=lambda job: (-job.batch.created_at, job.batch.token))


def named(agents: Sequence[AgentSettings], name: str) -> Job:
    """Return the batch that `name` means: its id, the beginning of it, or the provider's name of the job.

    Raises JobUnknown when there is none or more than one.
    """
    known: list[str] = []
    for settings in agents:
        with driver.reading_if_any(settings.index_path) as reader:
            for batch in batches.latest(reader, MAX_KNOWN) if reader is not None else ():
                known += [batch.token[:SHORT], batch.token, batch.job_id]
    found = {job.batch.token: job for job in matching(agents, name)}
    return only_one(found, name, known, noun="batch", hint=_LIST)


def matching(agents: Sequence[AgentSettings], name: str) -> list[Job]:
    """Return the batches whose id begins with `name`, or that the provider calls so."""
    jobs: list[Job] = []
    for settings in agents:
        with driver.reading_if_any(settings.index_path) as reader:
            if reader is not None:
                jobs += [_job(reader, settings, batch) for batch in batches.find(reader, name)]
    return jobs


def _job(reader: Connection, settings: AgentSettings, batch: Batch) -> Job:
    row = identities.by_id(reader, batch.identity_id)
    provider, model = (row.identity.provider, row.identity.model) if row else ("", "")
    left, found = batches.texts_left(reader, batch.token), tuple[Finding, ...]()
    if batch.is_open and batch.error:
        with closing(Facts(settings, choose(settings), reader, now=time.time())) as facts:
            found = tuple(each for each in batch_blocked(facts) if each.subject == batch.token)
            found = of_agent(settings.agent, found)
    return Job(
        settings=settings,
        batch=batch,
        provider=provider,
        model=model,
        texts_left=left,
        findings=found,
    )
