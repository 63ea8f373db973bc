"""Batches as a person sees them: listed, shown in full, and asked to end."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from shared.clock import Clock, SystemClock
from shared.config.schema import AgentSettings
from shared.errors import MemlineError, QueueError
from shared.index import batches, driver, identity
from shared.index.batches import Batch
from shared.index.writer import IndexWriter

if TYPE_CHECKING:
    from sqlite3 import Connection

#: Characters of a batch's id that are shown in a list; any beginning that fits one batch names it.
SHORT = 8

#: Batches that are looked through for what somebody may have meant.
MAX_KNOWN = 1000

_LIST = "memline batch ls"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A batch and whose it is."""

    settings: AgentSettings
    batch: Batch
    provider: str
    model: str
    #: Texts that have neither come back nor failed.
    texts_left: int

    def to_json(self, now: float) -> dict[str, Any]:
        """What `memline batch ls` tells; `show` adds to it."""
        batch = self.batch
        return {
            "agentId": self.settings.agent,
            "id": batch.token,
            "provider": self.provider,
            "model": self.model,
            "jobId": batch.job_id or None,
            "state": batch.state,
            "outcome": batch.outcome or None,
            "providerState": batch.said or None,
            "rows": batch.rows,
            "stored": batch.stored,
            "failed": batch.failed,
            "textsLeft": self.texts_left,
            "ageSeconds": round(max(now - batch.created_at, 0.0), 1),
            "nextLookAt": batch.due if batch.is_open and batch.due else None,
            "deadline": batch.deadline or None,
            "cancelAsked": batch.cancel_asked or None,
            "error": batch.error or None,
            "action": batch.action or None,
        }

    def to_full_json(self, now: float) -> dict[str, Any]:
        """Everything there is to know of it."""
        batch = self.batch
        return {
            **self.to_json(now),
            "fileId": batch.file_id or None,
            "providerRowsDone": batch.rows_done,
            "providerRowsFailed": batch.rows_failed,
            "createdAt": batch.created_at,
            "submittedAt": batch.submitted_at or None,
            "lookedAt": batch.looked_at or None,
            "closedAt": batch.closed_at or None,
            "callingSince": batch.calling_at or None,
            "lookEverySeconds": batch.wait_s or None,
            "attempts": batch.attempts,
            "owner": batch.owner or None,
            "cancelReason": batch.cancel_reason or None,
            "cancelledAt": batch.cancelled_at or None,
        }


def listed(agents: Sequence[AgentSettings], *, limit: int, only_open: bool = False) -> list[Job]:
    """The open batches of these agents and the last `limit` of each that were made, newest first."""
    jobs = []
    for settings in agents:
        with driver.reading_if_any(settings.index_path) as reader:
            if reader is None:
                continue
            still_open = batches.open_batches(reader)
            known = {batch.token: batch for batch in still_open}
            if not only_open:
                known |= {batch.token: batch for batch in batches.latest(reader, limit)}
            jobs += [_job(reader, settings, batch) for batch in known.values()]
    return sorted(jobs, key=lambda job: (-job.batch.created_at, job.batch.token))


def named(agents: Sequence[AgentSettings], name: str) -> Job:
    """The batch that `name` means: its id, the beginning of it, or the provider's name of the job.

    Raises MemlineError when there is none or more than one.
    """
    found: list[Job] = []
    known: list[str] = []
    for settings in agents:
        with driver.reading_if_any(settings.index_path) as reader:
            if reader is not None:
                found += [_job(reader, settings, batch) for batch in batches.find(reader, name)]
                for batch in batches.latest(reader, MAX_KNOWN):
                    known += [batch.token[:SHORT], batch.token, batch.job_id]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(job.batch.token for job in found[:5])
        raise MemlineError(f"{name!r} is the beginning of {len(found)} batches: {names}", hint=_LIST)
    near = get_close_matches(name, [each for each in known if each], n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    raise MemlineError(f"there is no batch {name!r}{meant}", hint=_LIST)


def cancel(job: Job, url: str, *, clock: Clock | None = None) -> bool:
    """Ask for the end of a batch and ring whoever does it; False when there is nothing left to end."""
    clock = clock or SystemClock()
    path = job.settings.index_path
    with closing(IndexWriter.of(job.settings, clock=clock)) as writer, driver.faults(path):
        asked = batches.ask_cancel(
            writer.connection, job.batch.token, reason="cancelled by hand", now=clock.now()
        )
    if asked and url:
        from producers.fleet import Fleet

        # It is on record: when Redis is away, the sweep of the store worker finds it a little later.
        with suppress(QueueError), Fleet(url) as fleet:
            fleet.wake(job.settings.agent)
    return asked


def _job(reader: Connection, settings: AgentSettings, batch: Batch) -> Job:
    row = identity.by_id(reader, batch.identity_id)
    return Job(
        settings=settings,
        batch=batch,
        provider=row.identity.provider if row else "",
        model=row.identity.model if row else "",
        texts_left=batches.texts_left(reader, batch.token),
    )
