"""Report jobs as JSON: reindexes, first imports, model changes, backfills, and batches of a Batch API."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from memline.shared.config.installation import NO_QUEUE, QueueAddress
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import choose
from memline.shared.errors import JobUnknown
from memline.shared.finding import worst
from memline.shared.findings.check import check
from memline.shared.findings.facts import Facts, sending
from memline.shared.index import batches, driver, identities
from memline.shared.index.batches import Batch
from memline.shared.scheduling import jobs
from memline.shared.scheduling.jobs import Job, Left
from memline.shared.words import counted, share

#: Characters of a batch's id that are shown in a list; any beginning that fits one batch names it.
SHORT = 8

_LIST = "memline jobs"

#: What a kind of job is called.
KINDS = {
    jobs.IMPORT: "first import",
    jobs.REINDEX: "reindex",
    jobs.MODEL: "model change",
    jobs.BACKFILL: "backfill",
}

#: What is to happen next with a batch in a state.
_NEXT = {
    "intent": "to be submitted",
    "submitted": "at the provider",
    "collecting": "being stored",
}

#: Fields of a batch by their names in JSON, which are null while there is nothing to say.
_OPTIONAL = {
    "jobId": "job_id",
    "providerState": "provider_state",
    "closedAt": "closed_at",
    "error": "error",
    "action": "action",
}


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """A job or a batch, and the agent that it belongs to."""

    settings: AgentSettings
    row: Job | Batch


def named(agents: Sequence[AgentSettings], name: str) -> Named:
    """Return the job or batch that `name` means: its id, the beginning of it, or what its provider calls it.

    Raises JobUnknown when there is none or more than one, with what may be meant.
    """
    matches: list[Named] = []
    for settings in agents:
        with driver.reading_if_any(settings.index_path) as reader:
            if reader is not None:
                rows: list[Job | Batch] = [*batches.listed(reader), *jobs.listed(reader)]
                matches += [Named(settings=settings, row=row) for row in rows if _is_named(row, name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        names = ", ".join(each.row.token for each in matches[:5])
        raise JobUnknown(f"{name!r} is the beginning of {counted(len(matches), 'job')}: {names}", hint=_LIST)
    raise JobUnknown(f"there is no job {name!r}", hint=_LIST)


def _is_named(row: Job | Batch, name: str) -> bool:
    of_provider = isinstance(row, Batch) and row.job_id == name
    return bool(name) and (row.token.startswith(name) or of_provider)


def listed(
    agents: Sequence[AgentSettings],
    *,
    limit: int = 10,
    only_open: bool = False,
    queue: QueueAddress = NO_QUEUE,
) -> list[dict[str, Any]]:
    """Report the open jobs of these agents and the last `limit` of each, then the batches, newest first.

    `queue`: the address of a fleet's Redis. Raises IndexFaults.
    """
    of_jobs, of_batches = [], []
    for settings in agents:
        with driver.reading_if_any(settings.index_path) as reader:
            if reader is None:
                continue
            facts = Facts(settings, choose(settings), reader, now=time.time(), queue=queue)
            last = 0 if only_open else limit
            known = jobs.listed(reader)
            of_jobs += report_jobs(facts, [job for job in known if not job.ended_at or job in known[:last]])
            sent = batches.listed(reader)
            shown = [batch for batch in sent if batch.is_open or batch in sent[:last]]
            of_batches += [_report_batch(facts, batch) for batch in shown]
    return [*_newest_first(of_jobs), *_newest_first(of_batches)]


def _newest_first(reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(reports, key=lambda each: (-each["createdAt"], each["id"]))


def report(name: Named, *, queue: QueueAddress = NO_QUEUE) -> dict[str, Any]:
    """Report a job or batch as it is now. Raises JobUnknown when its row was forgotten meanwhile."""
    for each in listed([name.settings], limit=batches.KEPT, queue=queue):
        if each["id"] == name.row.token:
            return each
    raise JobUnknown(f"there is no job {name.row.token!r} any more", hint=_LIST)


def report_jobs(facts: Facts, rows: Iterable[Job]) -> list[dict[str, Any]]:
    """Report these jobs of an index, in their order."""
    # Both at one moment, or a text that was just embedded would count in both.
    with driver.snapshot(facts.index):
        now, left = {job.id: job for job in jobs.open_jobs(facts.index)}, jobs.left(facts.index)
    stop, findings = sending(facts), check(facts)
    reports = []
    for job in (now.get(each.id, each) for each in rows):
        one = left.get(job.id, Left())
        texts, read = job.texts_done + one.texts + one.failed, job.files - one.files
        if job.state == jobs.RUNNING:
            mine = [each for each in findings if stop and each.code == stop.code and one.texts]
        else:
            mine = [each for each in findings if (each.code, each.subject) == ("job_paused", job.token)]
        files = f"{share(read, job.files, 'file')} read, " if job.files else ""
        progress = f"{files}{share(job.texts_done, texts, 'text')} embedded"
        progress += f", {one.failed:,} failed" if one.failed else ""
        reason, action = worst(mine)
        kind = KINDS[job.kind]
        reports.append(
            {
                "agentId": facts.agent,
                "id": job.token,
                # import, reindex, model or backfill; and the model, or that all files are read.
                "kind": job.kind,
                "what": job.what,
                "createdAt": job.created_ns / 1e9,
                "endedAt": job.ended_at or None,
                "state": job.state,
                "files": {"done": read, "total": job.files},
                "texts": {"done": job.texts_done, "left": one.texts, "failed": one.failed, "total": texts},
                # The same in words.
                "name": f"{kind} ({job.what})" if job.what else kind,
                "progress": progress,
                "reason": reason,
                "action": action,
            }
        )
    return reports


def _report_batch(facts: Facts, batch: Batch) -> dict[str, Any]:
    row = identities.by_id(facts.index, batch.identity_id)
    progress = batch.outcome or _NEXT.get(batch.state, batch.state)
    if batch.cancel_reason and not batch.outcome:
        progress += ", to be cancelled"
    return {
        "agentId": facts.agent,
        "id": batch.token,
        "kind": "batch",
        "provider": row.identity.provider if row else "",
        "model": row.identity.model if row else "",
        **{name: getattr(batch, name) for name in ("state", "rows", "stored")},
        "progress": progress,
        "textsLeft": batches.texts_left(facts.index, batch.token),
        "createdAt": batch.created_at,
        **{key: getattr(batch, name) or None for key, name in _OPTIONAL.items()},
    }
