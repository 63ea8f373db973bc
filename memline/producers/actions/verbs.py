"""Change jobs, batches, provider accounts and dead letters: the verbs of every face.

Each takes who asks and its parameters, and returns what every face shows of it.
"""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial
from typing import Any

import msgspec

from memline.producers.actions import provider_pauses, reindex_job
from memline.producers.actions.perform import Asker, Done, Verb
from memline.producers.reports import batch_jobs, job_reports
from memline.producers.reports.batch_jobs import SHORT, BatchReport
from memline.producers.reports.fleet_state import queue_url
from memline.producers.reports.job_reports import NamedJob
from memline.producers.reports.providers import modes
from memline.producers.reports.state import queue_of
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import choose
from memline.shared.errors import BadRequest, QueueError
from memline.shared.findings.facts import Facts
from memline.shared.findings.provider import RESUME
from memline.shared.index import batches, driver
from memline.shared.index_writer import IndexWriter
from memline.shared.queue import dead_letters
from memline.shared.queue.fleet_workers import wake
from memline.shared.scheduling import health
from memline.shared.scheduling.budget import Refusal
from memline.shared.words import counted

#: What a verb makes of a job.
_STATES = {"pause": "is paused", "resume": "goes on", "cancel": "is cancelled"}


def _change_job(verb: str, asker: Asker, job: str) -> Done:
    """Pause, resume or cancel a job."""
    named = _named(asker, job)
    if isinstance(named, BatchReport):
        if verb == "cancel":
            return _cancel_batch(asker, named)
        hint = f"memline jobs cancel {job}; memline queue pause --mode batch lets no other one be made"
        raise BadRequest(f"{named.batch.token[:SHORT]} is a batch, which cannot be {verb}d", hint=hint)
    done = reindex_job.change(named, verb, asker.queue_url)
    words = _STATES[verb]
    if not done["changed"]:
        words = f"was left alone, it is {done['state']}"
    elif verb == "cancel":
        texts, files = counted(done["vectors"], "text"), counted(done["files"], "file")
        words += f": {texts} will not be embedded, {files} will not be read"
    lines = [f"{done['agentId']}: job {done['id']} {words}."]
    if done.get("batches"):
        lines.append(f"{counted(done['batches'], 'batch', 'are')} being cancelled at the provider.")
    return Done(
        value=done,
        words=tuple(lines),
        audit={
            "agent": done["agentId"],
            "job": done["id"],
            "state": done["state"],
            "changed": done["changed"],
        },
        is_changed=done["changed"],
    )


pause_job, resume_job, cancel_job = (partial(_change_job, verb) for verb in _STATES)


def _cancel_batch(asker: Asker, report: BatchReport) -> Done:
    """Cancel a batch; what it brought is kept."""
    settings, batch = report.settings, report.batch
    with closing(IndexWriter.of(settings)) as writer, writer.session() as (connection, now):
        is_asked = batches.request_cancel(
            connection, batch.token, reason="cancelled by the operator", now=now
        )
    why = "its rows are being stored" if batch.is_open else f"it has ended ({batch.outcome})"
    words = (f"{batch.token} is not cancelled: {why}.",)
    if is_asked:
        wake(asker.queue_url, settings.agent)
        words = (
            f"{batch.token} will be cancelled: {counted(batch.stored, 'vector', 'are')} kept, and what the"
            f" provider has finished; its other {counted(report.texts_left, 'text', 'are')} sent in"
            " requests.",
            *(() if asker.queue_url else ("A running `memline up` does it; else: memline index",)),
        )
    return Done(
        value={"agentId": settings.agent, "id": batch.token, "cancelAsked": is_asked},
        words=words,
        audit={"agent": settings.agent, "batch": batch.token, "changed": is_asked},
        is_changed=is_asked,
    )


def _named(asker: Asker, name: str) -> NamedJob | BatchReport:
    """Return the job or batch that a person named. Raises JobUnknown."""
    named: dict[str, NamedJob | BatchReport] = {
        each.batch.token: each for each in batch_jobs.matching(asker.agents, name)
    }
    return job_reports.named(asker.agents, name, named)


def list_jobs(asker: Asker, *, open: bool = False, limit: int = 10) -> Done:
    """List the open jobs and batches, and the last ones that ended."""
    queue, prices = queue_of(asker.settings), asker.settings.prices
    reports = job_reports.listed(asker.agents, prices=prices, limit=limit, only_open=open, queue=queue)
    of_batches = batch_jobs.listed(asker.agents, limit=limit, only_open=open)
    return Done(value=[*(each.to_json() for each in reports), *(each.to_json() for each in of_batches)])


def show_job(asker: Asker, job: str) -> Done:
    """Report one job or batch."""
    named = _named(asker, job)
    if isinstance(named, BatchReport):
        return Done(value=named.to_json())
    report = job_reports.report(named, prices=asker.settings.prices, queue=queue_of(asker.settings))
    return Done(value=report.to_json())


def reindex(asker: Asker, *, force: bool = False) -> Done:
    """Ask for a reindex of each agent."""
    if not asker.queue_url:
        hint = f"memline index{' --force' if force else ''}"
        raise QueueError("there is no queue to put a reindex on (queue.url is not set)", hint=hint)
    started, lines, notes = [], [], []
    for settings in asker.agents:
        made = reindex_job.start(settings, asker.queue_url, force=force)
        started.append(made)
        files = counted(made["files"], "file")
        line = f"{made['agentId']}: job {made['id']} reads {files}"
        if made["underWay"]:
            line = (
                f"{made['agentId']}: the same reindex is under way, job {made['id']}; it has {files} to read"
            )
        if made["takenUp"]:
            line += f", {counted(made['takenUp'], 'cancelled text', 'are')} pending again"
        lines += [f"{line}.", f"  memline jobs show {made['id']} says how far it is."]
        if made["missing"]:
            roles = " ".join(made["missing"])
            notes.append(f"{made['agentId']}: no worker does it yet (try: memline worker {roles})")
    names = {"agents": _names(asker), "jobs": ", ".join(made["id"] for made in started)}
    return Done(value=started, words=tuple(lines), notes=tuple(notes), audit=names)


def _set_paused(is_paused: bool, asker: Asker, provider: str | None = None, mode: str | None = None) -> Done:
    """Send no more texts to a provider, or to all; or send them again."""
    what = {"requests": "embedding by requests", "batch": "embedding by batches"}.get(mode or "", "embedding")
    what += f" with {provider}" if provider else ""
    done, words = [], []
    for settings in asker.agents:
        if is_paused:
            provider_pauses.pause(settings, provider=provider or "", mode=mode or "")
        else:
            queue_url = asker.queue_url
            provider_pauses.resume(settings, provider=provider or "", mode=mode or "", queue_url=queue_url)
            wake(queue_url, settings.agent)
        now = _sending(settings)
        state = "is paused" if is_paused else "goes on"
        if is_paused and mode == health.BATCH and now.are_requests_sent:
            state += health.IN_REQUESTS
        refusal = None if is_paused else now.refusal
        if now.is_paused and not is_paused:
            again = f"{RESUME} --agent {settings.agent}"
            state = f"is no longer paused by itself, but all embedding still is: {again}"
        elif refusal is not None:
            state = f"is not paused, but {refusal.reason}; {refusal.action}"
        words.append(f"{settings.agent}: {what} {state}.")
        done.append(
            {
                "agentId": settings.agent,
                "paused": is_paused or now.is_paused,
                "provider": provider,
                "mode": mode,
                "breakers": now.breakers,
                "ceiling": refusal.to_json() if refusal else None,
            }
        )
    return Done(
        value=done,
        words=tuple(words),
        audit={"agents": _names(asker), "mode": mode or "", "provider": provider or ""},
    )


class _Sending(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent for an agent."""

    is_paused: bool
    are_requests_sent: bool
    refusal: Refusal | None
    breakers: list[dict[str, Any]]


def _sending(settings: AgentSettings) -> _Sending:
    with (
        driver.reading_if_any(settings.index_path) as reader,
        closing(Facts(settings, choose(settings), reader, now=time.time())) as facts,
    ):
        return _Sending(
            is_paused=facts.is_paused,
            are_requests_sent=not facts.is_paused and not facts.requests.manual,
            refusal=facts.refusal,
            breakers=modes(facts),
        )


pause, resume = partial(_set_paused, True), partial(_set_paused, False)


def drop(asker: Asker, *, error: str | None = None, ids: tuple[str, ...] | None = None) -> Done:
    """Remove dead letters for good."""
    if not error and not ids:
        raise BadRequest("name the messages", hint="name them with --error or --id")
    url = queue_url(asker.settings)
    chosen = dead_letters.listed(url, agent=asker.agent, error=error, ids=ids)
    count, paid = dead_letters.drop(url, chosen), sum(each.is_paid_answer for each in chosen)
    words = [f"{counted(count, 'message')} removed."]
    if paid:
        answers = counted(paid, "paid answer")
        words.append(
            f"Lost with them: {answers}. Texts that have no vector yet are sent, and paid for, again."
        )
    return Done(value={"dropped": count, "paidAnswers": paid}, words=tuple(words), audit={"count": count})


def requeue(asker: Asker, *, error: str | None = None, ids: tuple[str, ...] | None = None) -> Done:
    """Put dead letters back on their queues."""
    url = queue_url(asker.settings)
    count = dead_letters.requeue(url, dead_letters.listed(url, agent=asker.agent, error=error, ids=ids))
    words = f"{counted(count, 'message')} put back on the queues."
    return Done(value={"requeued": count}, words=(words,), audit={"count": count})


def _names(asker: Asker) -> str:
    return ", ".join(settings.agent for settings in asker.agents)


#: By the words of its command.
VERBS = {
    "reindex": Verb(run=reindex, audit="reindex"),
    "jobs pause": Verb(run=pause_job, audit="pause"),
    "jobs resume": Verb(run=resume_job, audit="resume"),
    "jobs cancel": Verb(run=cancel_job, audit="cancel", is_danger=True),
    "queue requeue": Verb(run=requeue, audit="requeue"),
    "queue drop": Verb(run=drop, audit="drop", is_danger=True),
    "queue pause": Verb(run=pause, audit="pause"),
    "queue resume": Verb(run=resume, audit="resume"),
}
