"""Change jobs, batches, provider accounts and dead letters: the verbs of every face.

Each takes who asks and its parameters, and returns what every face shows of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from functools import partial
from typing import Any

import msgspec

from memline.producers.reports import jobs as reports
from memline.producers.reports.jobs import SHORT
from memline.producers.reports.state import queue_url
from memline.shared.clock import SystemClock
from memline.shared.config.agents import Settings
from memline.shared.config.installation import NO_QUEUE, QueueAddress
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import Choice, choose
from memline.shared.errors import BadRequest, QueueError
from memline.shared.findings.conditions import RESUME
from memline.shared.findings.facts import Facts
from memline.shared.index import batches, driver, identities, meta
from memline.shared.index.accounts import Accounts
from memline.shared.index.batches import Batch
from memline.shared.index_writer import IndexWriter
from memline.shared.queue import dead_letters
from memline.shared.queue.broker import send
from memline.shared.queue.fleet import fleet_at
from memline.shared.queue.messages import Sweep
from memline.shared.queue.redis_broker import on_redis
from memline.shared.queue.redis_limits import RedisLimits
from memline.shared.scheduling import health, jobs, model_change
from memline.shared.scheduling.jobs import Job
from memline.shared.scheduling.limits import Limits, limit_key
from memline.shared.sync.plan import plan_of
from memline.shared.words import counted


class Asker(msgspec.Struct, frozen=True, kw_only=True):
    """The agents for which somebody asks."""

    settings: Settings
    #: Those that the asker may touch, or the ones named among them.
    agents: tuple[AgentSettings, ...]
    #: The agent that was named; empty: none was.
    agent: str = ""


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an action."""

    #: What the command prints with `--json`.
    value: Any
    #: Sentences for a reader.
    words: tuple[str, ...] = ()
    #: False when the state did not allow it: exit status 1 of the command, 409 over HTTP.
    is_changed: bool = True


def _change_job(verb: str, asker: Asker, job: str) -> Done:
    """Pause, resume or cancel a job, or cancel a batch."""
    named = reports.named(asker.agents, job)
    settings, row = named.settings, named.row
    if isinstance(row, Batch):
        if verb == "cancel":
            return _cancel_batch(asker, settings, row)
        hint = f"memline jobs cancel {job}; set remote.batch.enabled to false to make no other one"
        raise BadRequest(f"{row.token[:SHORT]} is a batch, which cannot be {verb}d", hint=hint)
    body: dict[str, Any] = {"agentId": settings.agent, "id": row.token}
    with closing(IndexWriter.of(settings)) as writer, writer.transaction() as (connection, now):
        if verb == "cancel":
            given_up = jobs.cancel(connection, row, now)
            is_changed, (files, texts) = given_up is not None, given_up or (0, 0)
            body |= {"files": files, "vectors": texts}
            left = f"{counted(texts, 'text')} will not be embedded, {counted(files, 'file')}"
            words = f"is cancelled: {left} will not be read"
        else:
            state, words = {"pause": (jobs.PAUSED, "is paused"), "resume": (jobs.RUNNING, "goes on")}[verb]
            is_changed = jobs.change(connection, row, state)
        after = jobs.by_token(connection, row.token)
    body |= {"changed": is_changed, "state": after.state if after else ""}
    if not is_changed:
        words = f"was left alone, it is {body['state']}"
    line = f"{settings.agent}: job {row.token} {words}."
    return Done(value=body, words=(line,), is_changed=is_changed)


def _cancel_batch(asker: Asker, settings: AgentSettings, batch: Batch) -> Done:
    """Cancel a batch; what it brought is kept."""
    with closing(IndexWriter.of(settings)) as writer, writer.session() as (connection, now):
        reason = "cancelled by the operator"
        is_asked = batches.request_cancel(connection, batch.token, reason=reason, now=now)
        left = batches.texts_left(connection, batch.token)
    why = "its rows are being stored" if batch.is_open else f"it has ended ({batch.outcome})"
    words = [f"{batch.token} is not cancelled: {why}."]
    if is_asked:
        words = [
            f"{batch.token} will be cancelled: {counted(batch.stored, 'vector', 'are')} kept, and what the"
            f" provider has finished; its other {counted(left, 'text', 'are')} sent in requests.",
        ]
        words += [] if asker.settings.queue else ["A running `memline up` does it; else: memline index"]
    return Done(
        value={"agentId": settings.agent, "id": batch.token, "cancelAsked": is_asked},
        words=tuple(words),
        is_changed=is_asked,
    )


def reindex(asker: Asker, *, force: bool = False) -> Done:
    """Ask for a reindex of each agent: a job of its index; texts of cancelled jobs are part of it.

    Raises QueueError without a queue, or when it cannot be reached; then no job is made.
    """
    if not asker.settings.queue:
        hint = f"memline index{' --force' if force else ''}"
        raise QueueError("there is no queue to put a reindex on (queue.url is not set)", hint=hint)
    url, made, lines = asker.settings.queue, [], list[str]()
    on_redis(url)
    for settings in asker.agents:
        agent, plan = settings.agent, plan_of(settings)
        files = plan.files(force=force)
        with closing(IndexWriter.of(settings)) as writer, writer.transaction() as (connection, _):
            jobs.take_up(connection)
            # The same reindex is one job, unless a file was saved since it was asked for.
            is_new = bool(plan.outside_jobs(files, jobs.waiting_files(connection)))
            known = [each for each in jobs.open_jobs(connection) if not is_new and _is_equal(each, force)]
            if known:
                job, files = known[0], jobs.files_of(connection, known[0].id)
            else:
                now_ns, what = SystemClock().now_ns(), "all files" if force else ""
                job = jobs.create(
                    connection, jobs.REINDEX, now_ns=now_ns, what=what, files=files, force=force
                )
        send(Sweep(agent=agent))
        missing = [*fleet_at(url).missing([settings])]
        body = {"agentId": agent, "id": job.token, "files": len(files)}
        made.append(body | {"underWay": bool(known), "missing": missing})
        state = "is under way already, with" if known else "reads"
        lines.append(f"{agent}: job {job.token} {state} {counted(len(files), 'file')}.")
        lines.append(f"  memline jobs show {job.token} says how far it is.")
        if missing:
            lines.append(f"{agent}: no worker does it yet (try: memline worker {' '.join(missing)})")
    return Done(value=made, words=tuple(lines))


def _is_equal(job: Job, force: bool) -> bool:
    """Tell whether an open job reads what another reindex would."""
    return job.kind == jobs.REINDEX and job.state == jobs.RUNNING and bool(job.force) == force


def pause(settings: AgentSettings, *, provider: str = "") -> None:
    """Send no more texts to a provider, or to none at all.

    Requests in flight, at most two for each thread of the embed workers, end as usual.
    """
    with closing(IndexWriter.of(settings)) as writer, writer.transaction() as (connection, now):
        if provider:
            health.set_paused(writer.accounts, provider, True)
        else:
            meta.put(connection, meta.PAUSED, meta.get(connection, meta.PAUSED) or now)


def resume(settings: AgentSettings, *, provider: str = "", queue_url: QueueAddress = NO_QUEUE) -> None:
    """Send texts again: end manual pauses, close breakers on trial, and switch back from the fallback.

    A time that a provider asked to wait ends as well, and one request tries: who says that it goes on may
    have bought more. `queue_url`: the fleet whose workers keep that time; empty without one.
    """
    choice = choose(settings)
    with closing(IndexWriter.of(settings)) as writer:
        with writer.session():
            # No name means the one in use and those in trouble.
            names = [provider] if provider else _providers(writer.accounts, choice)
        _end_cooldowns(writer.accounts, names, queue_url)
        with writer.transaction() as (connection, _):
            if not provider:
                meta.put(connection, meta.PAUSED, None)
            for name in names:
                health.set_paused(writer.accounts, name, False)
                health.resume(writer.accounts, name, health.REQUESTS)
                health.resume(writer.accounts, name, health.BATCH)
        if choice.identity is not None and provider in ("", choice.provider):
            with writer.session() as (_, now):
                model_change.switch_back(writer.accounts, choice, now)
        writer.retry_all()


def _end_cooldowns(accounts: Accounts, names: Iterable[str], queue_url: QueueAddress) -> None:
    """Let workers call these providers again: before the rows do, or a worker gives back what they send."""
    limits = RedisLimits(queue_url) if queue_url else Limits(accounts.file, SystemClock())
    # While Redis is away no worker calls anyhow.
    with suppress(QueueError):
        for name in names:
            limits.end_cooldown(limit_key(accounts.of(name), accounts.owner(name)[0]))


def _providers(accounts: Accounts, choice: Choice) -> list[str]:
    target = identities.target(accounts.index)
    names = {name for name, _ in health.read_all(accounts)}
    names |= {target.identity.provider} if target else set()
    names |= {choice.provider} if choice.identity else set()
    return sorted(names)


def _set_paused(is_paused: bool, asker: Asker, provider: str | None = None) -> Done:
    """Send no more texts to a provider, or to all; or send them again."""
    what = f"embedding with {provider}" if provider else "embedding"
    done, words = [], []
    for settings in asker.agents:
        if is_paused:
            pause(settings, provider=provider or "")
        else:
            resume(settings, provider=provider or "", queue_url=asker.settings.queue)
        with driver.reading_if_any(settings.index_path) as reader:
            queue = asker.settings.queue
            now = Facts(settings, choose(settings), reader, now=time.time(), queue=queue)
            refusal = None if is_paused else now.refusal
            state = "is paused" if is_paused else "goes on"
            if now.is_paused and not is_paused:
                again = f"{RESUME} --agent {settings.agent}"
                state = f"is no longer paused by itself, but all embedding still is: {again}"
            elif refusal is not None:
                state = f"is not paused, but {refusal.what}; {refusal.action}"
            elif not (is_paused or now.has_embedder):
                state = f"goes on with: {now.catch_up}"
            words.append(f"{settings.agent}: {what} {state}.")
            body = {"agentId": settings.agent, "paused": is_paused or now.is_paused, "provider": provider}
            done.append(body)
    return Done(value=done, words=tuple(words))


def _remove(
    puts_back: bool, asker: Asker, *, error: str | None = None, ids: tuple[str, ...] | None = None
) -> Done:
    """Put dead letters back on their queues, or remove them for good."""
    if not puts_back and not error and not ids:
        raise BadRequest("name the messages", hint="name them with --error or --id")
    url = queue_url(asker.settings)
    letters = dead_letters.listed(url, agent=asker.agent, error=error, ids=ids)
    count = dead_letters.remove(url, letters, puts_back=puts_back)
    state = "put back on the queues" if puts_back else "removed"
    key = "requeued" if puts_back else "dropped"
    return Done(value={key: count}, words=(f"{counted(count, 'message')} {state}.",))


#: What each command does. It takes the asker, and arguments that `producers.api.arguments.check` has checked.
VERBS: dict[str, Callable[..., Done]] = {
    "reindex": reindex,
    "jobs pause": partial(_change_job, "pause"),
    "jobs resume": partial(_change_job, "resume"),
    "jobs cancel": partial(_change_job, "cancel"),
    "queue requeue": partial(_remove, True),
    "queue drop": partial(_remove, False),
    "queue pause": partial(_set_paused, True),
    "queue resume": partial(_set_paused, False),
}

#: The commands that destroy something: a page asks before it runs one.
DANGERS = ("jobs cancel", "queue drop")
