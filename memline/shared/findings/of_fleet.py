"""Find what is wrong with Redis and with the workers of a fleet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from memline.shared.finding import PROBLEM, WARNING
from memline.shared.findings.facts import FleetFacts
from memline.shared.findings.table import Seen, finding, met, seen
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
    halts="Redis does not answer",
)
def redis_unreachable(facts: FleetFacts) -> Iterator[Seen]:
    yield from _error(facts, "redis_unreachable")


@finding(
    PROBLEM, "queue: {reason}", action="redis-cli config set maxmemory-policy noeviction", subject="queue"
)
def redis_evicting(facts: FleetFacts) -> Iterator[Seen]:
    yield from _error(facts, "redis_evicting")


@finding(PROBLEM, "queue: {reason}", action="redis-cli config set maxmemory 256mb", subject="queue")
def redis_full(facts: FleetFacts) -> Iterator[Seen]:
    yield from _error(facts, "redis_full")


@finding(
    WARNING,
    "{what}",
    action="memline worker chunk embed store query",
    subject="role",
    halts="a role is missing",
)
def role_missing(facts: FleetFacts) -> Iterator[Seen]:
    # A Redis without memory takes no heartbeat either: who is alive is not known.
    if facts.fleet is None or any(_error(facts, "redis_full")):
        return
    queues = [queue for queue in facts.fleet.queues if queue.needs_worker(facts.roles)]
    missing = [queue for queue in queues if not facts.fleet.is_served(queue)]
    if queues and not facts.fleet.workers:
        roles = " ".join(queue.role for queue in queues)
        yield seen(what="queue: no worker is alive", action=f"memline worker {roles}")
        return
    for queue in missing:
        what = f"queue: no worker takes messages from {queue.name}"
        yield seen(what=what, action=f"memline worker {queue.role}", subject=queue.role)


@finding(
    WARNING,
    "queue: {workers} of version {version}, this is {own}",
    action="start them again with this version",
    subject="role",
)
def worker_other_version(facts: FleetFacts) -> Iterator[Seen]:
    others = Counter(worker.version for worker in facts.workers if worker.version != own_version())
    for version, count in sorted(others.items()):
        yield seen(workers=counted(count, "worker", "are"), version=version, own=own_version())


@finding(WARNING, "queue: {messages} failed for good", action="memline queue dead", subject="queue")
def dead_letters(facts: FleetFacts) -> Iterator[Seen]:
    queues = facts.fleet.queues if facts.fleet is not None else ()
    if dead := sum(queue.dead for queue in queues):
        yield seen(messages=counted(dead, "message"))


@finding(
    WARNING,
    "queue: a worker ended in the last ten minutes: {reason}",
    action="look into its log",
    subject="role",
)
def worker_ended(facts: FleetFacts) -> Iterator[Seen]:
    if facts.fleet is not None and facts.fleet.worker_failure:
        yield seen(reason=facts.fleet.worker_failure)


@finding(
    WARNING,
    "{process} runs with the settings of its start: {file} was changed since",
    action="start it again: {process}",
    subject="process",
)
def old_settings(facts: FleetFacts) -> Iterator[Seen]:
    yield from met(facts.troubles, "old_settings")
    processes = [(f"memline {each.name}", each.newer_file) for each in facts.processes if each.is_alive]
    for worker in facts.workers:
        name = f"memline worker {' '.join(worker.queues)} on {worker.host} (process {worker.pid})"
        processes.append((name, worker.newer_file))
    for name, file in processes:
        if file:
            yield seen(process=name, file=file, subject=name)
