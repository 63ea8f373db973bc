"""Report batches, the jobs of a provider's Batch API: list them, show one in full."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from sqlite3 import Connection
from typing import Any

import msgspec

from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import choose
from memline.shared.finding import Finding
from memline.shared.findings.check import of_agent
from memline.shared.findings.facts import Facts
from memline.shared.findings.work import batch_blocked
from memline.shared.index import batches, driver, identities
from memline.shared.index.batches import Batch

#: Characters of a batch's id that are shown in a list; any beginning that fits one batch names it.
SHORT = 8

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
    "deadline": "deadline",
    "cancelAsked": "cancel_requested_at",
    "cancelReason": "cancel_reason",
    "error": "error",
    "action": "action",
}


class BatchReport(msgspec.Struct, frozen=True, kw_only=True):
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

    def to_json(self) -> dict[str, Any]:
        """Return the JSON contract of a batch."""
        batch = self.batch
        return {
            "agentId": self.settings.agent,
            "id": batch.token,
            "kind": "batch",
            "provider": self.provider,
            "model": self.model,
            **{name: getattr(batch, name) for name in ("state", "rows", "stored", "attempts")},
            "progress": self.progress,
            "textsLeft": self.texts_left,
            "providerRowsDone": batch.rows_done,
            "createdAt": batch.created_at,
            "nextLookAt": batch.due if batch.is_open and batch.due else None,
            **{key: getattr(batch, name) or None for key, name in _OPTIONAL.items()},
            "findings": [each.to_json() for each in self.findings],
        }


def listed(agents: Sequence[AgentSettings], *, limit: int, only_open: bool = False) -> list[BatchReport]:
    """Return the open batches of these agents and the last `limit` of each that were made, newest first."""
    reports: list[BatchReport] = []
    for settings in agents:
        with driver.reading_if_any(settings.index_path) as reader:
            if reader is not None:
                known = batches.listed(reader)
                latest = [] if only_open else known[:limit]
                shown = [batch for batch in known if batch.is_open or batch in latest]
                reports += [_report(reader, settings, batch) for batch in shown]
    return sorted(reports, key=lambda each: (-each.batch.created_at, each.batch.token))


def matching(agents: Sequence[AgentSettings], name: str) -> list[BatchReport]:
    """Return the batches whose id begins with `name`, or that the provider calls so."""
    reports: list[BatchReport] = []
    for settings in agents if name else ():
        with driver.reading_if_any(settings.index_path) as reader:
            if reader is not None:
                reports += [
                    _report(reader, settings, batch)
                    for batch in batches.listed(reader)
                    if batch.token.startswith(name) or batch.job_id == name
                ]
    return reports


def _report(reader: Connection, settings: AgentSettings, batch: Batch) -> BatchReport:
    row = identities.by_id(reader, batch.identity_id)
    findings = tuple[Finding, ...]()
    if batch.is_open and batch.error:
        with closing(Facts(settings, choose(settings), reader, now=time.time())) as facts:
            findings = tuple(each for each in batch_blocked(facts) if each.subject == batch.token)
    return BatchReport(
        settings=settings,
        batch=batch,
        provider=row.identity.provider if row else "",
        model=row.identity.model if row else "",
        texts_left=batches.texts_left(reader, batch.token),
        findings=of_agent(settings.agent, findings),
    )
