"""Change jobs, batches, provider accounts, messages and workers: the functions of the verbs in the table.

Each takes who asks and the parameters of its row, and returns what every face shows of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

from memline.producers.actions import provider_pauses, reindex_job
from memline.producers.actions.perform import Asker, Done
from memline.producers.reports import batch_jobs, breakers, job_reports
from memline.producers.reports.fleet_state import queue_url
from memline.shared.errors import BadRequest, QueueError
from memline.shared.findings.diagnosis import queue_of
from memline.shared.index import batches, identities, vectors
from memline.shared.index_writer import IndexWriter
from memline.shared.queue import heartbeat, message_changes, message_list
from memline.shared.queue.fleet_workers import wake
from memline.shared.scheduling import health
from memline.shared.words import counted

#: What a verb makes of a job.
_STATES = {"pause": "is paused", "resume": "goes on", "cancel": "is cancelled"}


def _change_job(verb: str, asker: Asker, job: str) -> Done:
    named = job_reports.named(asker.agents, job)
    done = reindex_job.change(named, verb, asker.queue_url, by=asker.by)
    words = _STATES[verb]
    if not done["changed"]:
        words = f"was left alone, it is {done['state']}"
    elif verb == "cancel":
        texts, files = counted(done["vectors"], "text"), counted(done["files"], "file")
        words += f": {texts} will not be embedded, {files} will not be read"
    lines = [f"{done['agentId']}: job {done['id']} {words}."]
    if done.get("batches"):
        batches = counted(done["batches"], "batch", "are")
        lines.append(f"{batches} being cancelled at the provider (memline batch ls).")
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


def _report(asker: Asker, job: job_reports.NamedJob) -> dict[str, Any]:
    return job_reports.report(
        job, prices=asker.settings.prices, now=time.time(), queue=queue_of(asker.settings)
    ).to_json()


def list_jobs(asker: Asker, *, open: bool = False, limit: int | None = None) -> Done:
    """List the open jobs and the last ones that ended."""
    found = job_reports.listed(
        asker.agents,
        prices=asker.settings.prices,
        now=time.time(),
        limit=10 if limit is None else limit,
        only_open=open,
        queue=queue_of(asker.settings),
    )
    jobs = [job.to_json() for job in found]
    return Done(value=jobs)


def show_job(asker: Asker, job: str) -> Done:
    """Report one job."""
    return Done(value=_report(asker, job_reports.named(asker.agents, job)))


def reindex(asker: Asker, *, force: bool = False) -> Done:
    """Ask for a reindex of each agent."""
    if not asker.queue_url:
        hint = f"memline index{' --force' if force else ''}"
        raise QueueError("there is no queue to put a reindex on (queue.url is not set)", hint=hint)
    started, lines, notes = [], [], []
    for settings in asker.agents:
        made = reindex_job.start(settings, asker.queue_url, force=force, by=asker.by)
        started.append(made)
        resumed = (
            f", {counted(made['takenUp'], 'cancelled text', 'are')} wanted again" if made["takenUp"] else ""
        )
        lines.append(f"{made['agentId']}: job {made['id']} reads {counted(made['files'], 'file')}{resumed}.")
        lines.append(f"  memline jobs show {made['id']} says how far it is.")
        if made["warning"]:
            notes.append(f"{made['agentId']}: {made['warning']} (try: memline worker chunk store)")

    names = {"agents": _names(asker), "jobs": ", ".join(made["id"] for made in started)}
    return Done(value=started, words=tuple(lines), notes=tuple(notes), audit=names)


def cancel_batch(asker: Asker, batch: str) -> Done:
    """Cancel a batch; what it brought is kept."""
    job = batch_jobs.named(asker.agents, batch)
    cancel = partial(batches.request_cancel, reason="cancelled by the operator")
    is_asked, token = _change_batch(job, asker, cancel), job.batch.token
    if is_asked:
        kept = counted(job.batch.stored, "vector", "are")
        words = (
            f"{token} will be cancelled: {kept} kept, and what the provider has finished; the others of its"
            f" {counted(job.texts_left, 'text', 'are')} sent in requests.",
            *(() if asker.queue_url else ("A running `memline up` does it; else: memline index",)),
        )
    else:
        why = "its rows are being stored" if job.batch.is_open else f"it has ended ({job.batch.outcome})"
        words = (f"{token} is not cancelled: {why}.",)
    return _of_batch(job, words, is_asked, "cancelAsked")


def collect_batch(asker: Asker, batch: str) -> Done:
    """Ask the provider about a batch now."""
    job = batch_jobs.named(asker.agents, batch)
    is_due, token = _change_batch(job, asker, batches.poll_now), job.batch.token
    words = "is asked about now; the batch worker stores what is finished"
    if not is_due:
        words = "is left alone: it has ended, or an answer about it is to come"
    return _of_batch(job, (f"{token} {words}.",), is_due, "due")


def _change_batch(job: batch_jobs.Job, asker: Asker, change: Callable[..., bool]) -> bool:
    """Change the row of a batch and wake the dispatcher; False when there is nothing to change."""
    with closing(IndexWriter.of(job.settings)) as writer, writer.session() as (connection, now):
        is_changed = change(connection, job.batch.token, now=now)
    if is_changed:
        wake(asker.queue_url, job.settings.agent)
    return is_changed


def _of_batch(job: batch_jobs.Job, words: tuple[str, ...], is_changed: bool, key: str) -> Done:
    agent, token = job.settings.agent, job.batch.token
    return Done(
        value={"agentId": agent, "id": token, key: is_changed},
        words=words,
        audit={"agent": agent, "batch": token, "changed": is_changed},
        is_changed=is_changed,
    )


def _set_paused(is_paused: bool, asker: Asker, provider: str | None = None, mode: str | None = None) -> Done:
    """Send no more texts to a provider, or to all; or send them again."""
    verb = provider_pauses.pause if is_paused else provider_pauses.resume
    change = partial(verb, queue_url=asker.queue_url)
    what = {"requests": "embedding by requests", "batch": "embedding by batches"}.get(mode or "", "embedding")
    what += f" with {provider}" if provider else ""
    done, words = [], []
    for settings in asker.agents:
        # Before: a resume lets the ceilings be looked at anew.
        refusal = None if is_paused else breakers.ceiling_kept(settings)
        found = change(settings, provider=provider or "", mode=mode or "")
        is_held = is_paused or breakers.is_all_paused(settings)
        if not is_paused:
            wake(asker.queue_url, settings.agent)
        row = {"agentId": settings.agent, "paused": is_held, "provider": provider, "mode": mode}
        done.append({**row, "breakers": found, "ceiling": refusal.to_json() if refusal else None})
        state = "is paused" if is_paused else "goes on"
        is_requested = not any(each["pausedByHand"] and each["mode"] == health.REQUESTS for each in found)
        if is_paused and mode == health.BATCH and is_requested and not breakers.is_all_paused(settings):
            state += health.IN_REQUESTS
        if is_held and not is_paused:
            again = f"{breakers.RESUME} --agent {settings.agent}"
            state = f"is no longer paused by itself, but all embedding still is: {again}"
        elif refusal is not None:
            state = f"is not paused, but {refusal.reason}; {refusal.action}"
        words.append(f"{settings.agent}: {what} {state}.")
    return Done(
        value=done,
        words=tuple(words),
        audit={"agents": _names(asker), "mode": mode or "", "provider": provider or ""},
    )


pause, resume = partial(_set_paused, True), partial(_set_paused, False)


def probe(asker: Asker, provider: str | None = None, mode: str | None = None) -> Done:
    """Let the next probe of open breakers be sent at once."""
    done = []
    for settings in asker.agents:
        probed = provider_pauses.probe(
            settings, provider=provider or "", mode=mode or "", queue_url=asker.queue_url
        )
        if probed:
            wake(asker.queue_url, settings.agent)
        done.append({"agentId": settings.agent, "probed": probed})
    words = (
        f"{each['agentId']}: {', '.join(each['probed'])}: asked again with the next text"
        if each["probed"]
        else f"{each['agentId']}: no breaker is open, and no provider asked to wait"
        for each in done
    )
    count = sum(len(each["probed"]) for each in done)
    audit = {"agents": _names(asker), "mode": mode or "", "provider": provider or "", "probed": count}
    return Done(value=done, words=tuple(words), audit=audit, is_changed=count > 0)


def _change_failed(is_left: bool, asker: Asker, group: str | None = None, text: str | None = None) -> Done:
    counts = dict[str, int]()
    for settings in asker.agents:
        count = 0
        with closing(IndexWriter.of(settings)) as writer, writer.transaction() as (connection, _):
            if (target := identities.target(connection)) is not None:
                chosen = [
                    digest
                    for digest, error, _ in vectors.failed_texts(connection, target.id)
                    if group in (None, message_list.group_of(error)) and digest.hex().startswith(text or "")
                ]
                count = vectors.change_failed(connection, target.id, chosen, is_left=is_left)
        if count and not is_left:
            wake(asker.queue_url, settings.agent)
        counts[settings.agent] = count
    what, total = "left alone" if is_left else "tried again", sum(counts.values())
    return Done(
        value=[{"agentId": agent, "texts": count} for agent, count in counts.items()],
        words=tuple(f"{agent}: {counted(count, 'text', 'are')} {what}." for agent, count in counts.items()),
        audit={"agents": _names(asker), "group": group or "", "count": total},
        is_changed=total > 0,
    )


retry_texts, leave_texts = partial(_change_failed, False), partial(_change_failed, True)


def dead_messages(asker: Asker, *, limit: int | None = None, **where: Any) -> Done:
    """List the dead messages that are meant, in the groups of their errors."""
    groups = message_list.groups(queue_url(asker.settings), message_list.Filter(agent=asker.agent, **where))
    found = [
        {
            "group": group.id,
            "error": group.error,
            "count": len(group.messages),
            "messages": [each.to_json() for each in group.messages[:limit]],
        }
        for group in groups
    ]
    return Done(value={"groups": found})


def list_messages(asker: Asker, *, limit: int = 0, cursor: str = "", **where: Any) -> Done:
    """Count the messages of a state, and list some."""
    url, meant = queue_url(asker.settings), message_list.Filter(agent=asker.agent, **where)
    page = message_list.page(url, meant, cursor=cursor, limit=limit or message_list.PAGE)
    return Done(value=page.to_json())


def drop(asker: Asker, **where: Any) -> Done:
    """Remove messages for good."""
    if not any(where.get(name) for name in ("queue", "group", "match", "ids")):
        raise BadRequest("name the messages", hint="name them with --group, --id, --queue or --match GLOB")
    return _change_messages("drop", asker, **where)


def _change_messages(verb: str, asker: Asker, **where: Any) -> Done:
    url = queue_url(asker.settings)
    given = {name: each for name, each in where.items() if each}
    meant = message_list.Filter(agent=asker.agent, **given)
    change, what = message_changes.drop, "removed"
    if verb == "requeue":
        change, what = message_changes.requeue, "put back on the queues"
    chosen = message_list.listed(url, meant)
    count = change(url, meant.state, [(each.queue, each.id) for each in chosen])
    value, words = {"requeued": count}, [f"{counted(count, 'message')} {what}."]
    if verb == "drop":
        paid = message_changes.paid_answers(chosen)
        value = {"dropped": count, "paidAnswers": paid}
        words += filter(None, [message_changes.loss_of(paid)])
    audit = {"state": meant.state, "queue": meant.queue, "count": count}
    return Done(value=value, words=tuple(words), audit=audit)


requeue = partial(_change_messages, "requeue")


def drain(asker: Asker, worker: str) -> Done:
    """Ask a worker process to finish what it has taken, and to end."""
    found = heartbeat.drain(queue_url(asker.settings), worker)
    roles, name = "+".join(found.queues), f"{found.host}:{found.pid}"
    words = f"The {roles} worker {name} finishes what it has taken, and ends."
    return Done(value={"draining": found.to_json()}, words=(words,), audit={"worker": name, "roles": roles})


def _names(asker: Asker) -> str:
    return ", ".join(settings.agent for settings in asker.agents)
