"""Find what is wrong with Redis and with the workers of a fleet."""

from __future__ import annotations

from collections.abc import Iterator

from memline.shared.finding import PROBLEM, WARNING
from memline.shared.findings.facts import FleetFacts
from memline.shared.findings.table import Seen, finding, seen
from memline.shared.version import own_version
from memline.shared.words import counted

_EVICTING, _FULL = "evicts keys", "is out of memory"


def _error(facts: FleetFacts, code: str) -> Iterator[Seen]:
    if facts.error is not None:
        text = facts.error.message
        found = (
            "redis_evicting" if _EVICTING in text else "redis_full" if _FULL in text else "redis_unreachable"
        )
        if found == code:
            yield seen(reason=text, action=facts.error.hint or None)


@finding(
    PROBLEM,
    "queue: {reason}",
    action="start it (redis-server), or work without it: unset queue.url",
    subject="queue",
    page="queues",
    means="Redis does not answer, or not as a primary server with this address. The backlog is in the"
    " index: nothing"
    " is lost, and workers go on when it is back.",
)
def redis_unreachable(facts: FleetFacts) -> Iterator[Seen]:
    yield from _error(facts, "redis_unreachable")


@finding(
    PROBLEM,
    "queue: {reason}",
    action="redis-cli config set maxmemory-policy noeviction",
    subject="queue",
    page="queues",
    means="Redis drops keys when its memory is short, and messages with them.",
)
def redis_evicting(facts: FleetFacts) -> Iterator[Seen]:
    yield from _error(facts, "redis_evicting")


@finding(
    PROBLEM,
    "queue: {reason}",
    action="redis-cli config set maxmemory 256mb",
    subject="queue",
    page="queues",
    means="Redis takes no message more. The backlog is safe in the index.",
)
def redis_full(facts: FleetFacts) -> Iterator[Seen]:
    yield from _error(facts, "redis_full")


@finding(
    WARNING,
    "{what}",
    action="memline fleet",
    subject="role",
    page="queues",
    means="No worker that is alive takes the messages of a queue that the configuration needs.",
)
def role_missing(facts: FleetFacts) -> Iterator[Seen]:
    if facts.fleet is None:
        return
    queues = [queue for queue in facts.fleet.queues if queue.role in facts.roles]
    missing = [queue for queue in queues if not facts.fleet.is_served(queue)]
    if queues and len(missing) == len(queues):
        yield seen(what="queue: no worker is alive")
        return
    has_hosts = any(queue.host for queue in queues)
    for queue in missing:
        if has_hosts and not queue.host and not queue.is_shared:
            what = f"queue: messages wait on {queue.name} since before index hosts had names; none takes them"
            yield seen(what=what, action="memline queue messages", subject=queue.role)
            continue
        where = f"   (on {queue.host})" if queue.host else ""
        what = f"queue: no worker takes messages from {queue.name}"
        yield seen(what=what, action=f"memline worker {queue.role}{where}", subject=queue.role)


@finding(
    WARNING,
    "queue: {workers} of version {version}, this is {own}",
    action="start them again with this version",
    subject="role",
    page="workers",
    means="Processes of two versions share a queue; what they do not understand of each other waits.",
)
def worker_other_version(facts: FleetFacts) -> Iterator[Seen]:
    others: dict[str, int] = {}
    for worker in facts.fleet.workers if facts.fleet is not None else ():
        if worker.version != own_version():
            others[worker.version] = others.get(worker.version, 0) + 1
    for version, count in sorted(others.items()):
        yield seen(workers=counted(count, "worker", "are"), version=version, own=own_version())


@finding(
    WARNING,
    "queue: {messages} failed for good",
    action="memline queue dead",
    subject="queue",
    page="messages",
    metric="memline_queue_dead_messages",
    means="Messages that no retry helped are kept with their error; `memline queue requeue` sends them again,"
    " `memline queue drop` removes them.",
)
def dead_letters(facts: FleetFacts) -> Iterator[Seen]:
    dead = sum(queue.dead for queue in facts.fleet.queues) if facts.fleet is not None else 0
    if dead:
        yield seen(messages=counted(dead, "message"))


@finding(
    WARNING,
    "queue: a worker ended in the last ten minutes: {reason}",
    action="look into its log",
    subject="role",
    page="workers",
    means="A worker process ended by itself. What it had in hand is done again by another one.",
)
def worker_ended(facts: FleetFacts) -> Iterator[Seen]:
    if facts.fleet is not None and facts.fleet.worker_failure:
        yield seen(reason=facts.fleet.worker_failure)
