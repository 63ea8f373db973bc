"""Report jobs as JSON: reindexes, first imports, model changes, backfills, and batches of a Batch API."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

import msgspec

from memline.shared.config.installation import NO_QUEUE, QueueAddress
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import choose
from memline.shared.errors import JobUnknown
from memline.shared.finding import worst
from memline.shared.findings.check import check
from memline.shared.findings.facts import Facts, sending
from memline.shared.index import batches, driver, identities, meta
from memline.shared.index.batches import Batch
from memline.shared.scheduling import jobs
from memline.shared.scheduling.jobs import Job, Left
from memline.shared.words import counted, share, span

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
    "intent": "to be uploaded",
    "uploaded": "to be submitted",
    "submitted": "at the provider",
    "collecting": "being stored",
}

#: Fields of a batch by their names in JSON, which are null while there is nothing to say.
_OPTIONAL = {
    "jobId": "job_id",
    "fileId": "file_id",
    "outcome": "outcome",
    "providerState": "provider_state",
    "submittedAt": "submitted_at",
    "lookedAt": "polled_at",
    "closedAt": "closed_at",
    "deadline": "deadline",
    "cancelReason": "cancel_reason",
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
    known: list[str] = []
    for settings in agents:
        with driver.reading_if_any(settings.index_path) as reader:
            if reader is not None:
                rows: list[Job | Batch] = [*batches.listed(reader), *jobs.listed(reader)]
                known += [row.token[: max(len(name), SHORT)] for row in rows]
                matches += [Named(settings=settings, row=row) for row in rows if _is_named(row, name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        names = ", ".join(each.row.token for each in matches[:5])
        raise JobUnknown(f"{name!r} is the beginning of {counted(len(matches), 'job')}: {names}", hint=_LIST)
    near = get_close_matches(name, known, n=1)
    did_you_mean = f"; did you mean {near[0]}?" if near else ""
    raise JobUnknown(f"there is no job {name!r}{did_you_mean}", hint=_LIST)


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
    settings = name.settings
    with driver.reading(settings.index_path) as reader:
        of_kind = batches.get if isinstance(name.row, Batch) else jobs.by_token
        row = of_kind(reader, name.row.token)
        if row is None:
            raise JobUnknown(f"there is no job {name.row.token!r} any more", hint=_LIST)
        facts = Facts(settings, choose(settings), reader, now=time.time(), queue=queue)
        return _report_batch(facts, row) if isinstance(row, Batch) else report_jobs(facts, [row])[0]


def report_jobs(facts: Facts, rows: Iterable[Job]) -> list[dict[str, Any]]:
    """Report these jobs of an index, in their order."""
    # Both at one moment, or a text that was just embedded would count in both.
    with driver.snapshot(facts.index):
        opened, left = facts.jobs, jobs.left(facts.index)
    rate = meta.recent_rate(facts.index, facts.now)
    stop, findings = sending(facts), check(facts)
    reports = {}
    # The older jobs go first, so their texts count for the time that a later one takes.
    ahead = 0.0
    wanted = {job.id: job for job in rows}
    for job in sorted({**wanted, **{job.id: job for job in opened}}.values(), key=lambda job: job.id):
        one, eta_s = left.get(job.id, Left()), None
        texts, read = job.texts_done + one.texts + one.failed, job.files - one.files
        # By the files that were read so far; None before the first one.
        expected: int | None = texts
        if one.files:
            expected = round(texts * job.files / read) if read else None
        if job.state == jobs.RUNNING:
            ahead += max((expected or 0) - job.texts_done - one.failed, one.texts)
            # Unknown before its first file is read, and while no vector comes.
            eta_s = round(ahead / rate, 1) if stop is None and rate and expected is not None else None
            mine = [each for each in findings if stop and each.code == stop.code and one.texts]
        else:
            mine = [each for each in findings if (each.code, each.subject) == ("job_paused", job.token)]
        files = f"{share(read, job.files, 'file')} read, " if job.files else ""
        progress = f"{files}{share(job.texts_done, texts, 'text')} embedded"
        progress += f", total about {expected:,}" if expected and expected > texts else ""
        progress += f", {one.failed:,} failed" if one.failed else ""
        progress += f", ETA {span(eta_s)}" if eta_s is not None else ""
        reason, action = worst(mine)
        kind = KINDS[job.kind]
        reports[job.id] = {
            "agentId": facts.agent,
            "id": job.token,
            # import, reindex, model or backfill; and more about it: the model, or that all files are read.
            "kind": job.kind,
            "what": job.what,
            "createdAt": job.created_ns / 1e9,
            "endedAt": job.ended_at or None,
            "state": job.state,
            "files": {"done": read, "total": job.files},
            "texts": {
                "done": job.texts_done,
                "left": one.texts,
                "failed": one.failed,
                "total": texts,
                "expected": expected,
            },
            "etaSeconds": eta_s,
            # The same in words.
            "name": f"{kind} ({job.what})" if job.what else kind,
            "progress": f"{progress}, {reason}" if reason else progress,
            "reason": reason,
            "action": action,
            "findings": [each.to_json() for each in mine],
        }
    return [reports[job_id] for job_id in wanted]


def _report_batch(facts: Facts, batch: Batch) -> dict[str, Any]:
    row = identities.by_id(facts.index, batch.identity_id)
    findings = [each for each in check(facts) if each.subject == batch.token] if batch.is_open else []
    progress = batch.outcome or _NEXT.get(batch.state, batch.state)
    if batch.cancel_reason and not batch.outcome:
        progress += ", to be cancelled"
    return {
        "agentId": facts.agent,
        "id": batch.token,
        "kind": "batch",
        "provider": row.identity.provider if row else "",
        "model": row.identity.model if row else "",
        **{name: getattr(batch, name) for name in ("state", "rows", "stored", "attempts")},
        "progress": progress,
        "textsLeft": batches.texts_left(facts.index, batch.token),
        "providerRowsDone": batch.rows_done,
        "createdAt": batch.created_at,
        "nextLookAt": batch.due if batch.is_open and batch.due else None,
        **{key: getattr(batch, name) or None for key, name in _OPTIONAL.items()},
        "findings": [each.to_json() for each in findings],
    }
