"""Examine one agent by its `Facts`, and what all agents share: Redis, processes and this machine."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import msgspec

from memline.shared.config.agents import Settings
from memline.shared.config.config_file import changed_ns
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import choose
from memline.shared.errors import IndexFault, IndexMissing
from memline.shared.finding import Finding, by_urgency, note, of_error, warning
from memline.shared.findings.conditions import CHECKS, DISABLED
from memline.shared.findings.facts import Facts
from memline.shared.index import driver
from memline.shared.index.hold import Holder, holders
from memline.shared.packages import install_command, lack_at_a_glance, remedy
from memline.shared.queue.fleet import Fleet, fleet_at
from memline.shared.words import counted


def check(facts: Facts, *more: Finding) -> tuple[Finding, ...]:
    """Return the findings of an agent, and these, which its caller made; most urgent first."""
    # A memory that is disabled lacks nothing, and no command brings it up to date.
    if not facts.settings.memory.enabled:
        return of_agent(facts.agent, by_urgency([DISABLED], more))
    return of_agent(facts.agent, by_urgency(*(test(facts) for test in CHECKS), more))


def of_agent(agent: str, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Return findings as those of an agent, which is their subject where they name no other."""
    return tuple(
        msgspec.structs.replace(each, agent=agent, subject=each.subject or agent) for each in findings
    )


def of_fault(settings: AgentSettings, fault: IndexFault) -> tuple[Finding, ...]:
    """Return the findings of an agent whose index cannot be used, for a call that this ended."""
    known = None if isinstance(fault, IndexMissing) else fault
    return check(Facts(settings, choose(settings), None, now=time.time(), fault=known))


class Common(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a home, its fleet and this machine at one moment."""

    settings: Settings
    agents: Sequence[AgentSettings]
    #: An empty one without a queue.
    fleet: Fleet
    #: The processes that dispatch the indexes or follow their files.
    processes: list[Holder]


def check_common(settings: Settings, agents: Sequence[AgentSettings]) -> tuple[Finding, ...]:
    """Return the findings that all agents have in common, most urgent first. Their agent is None."""
    processes = {each.pid: each for agent in agents for each in holders(agent.index_path)}
    fleet = fleet_at(settings.queue) if settings.queue else Fleet()
    facts = Common(settings=settings, agents=agents, fleet=fleet, processes=[*processes.values()])
    return by_urgency(*(test(facts) for test in COMMON_CHECKS))


def redis_unusable(facts: Common) -> Iterator[Finding]:
    """Redis is away, refuses, is full, or would lose messages."""
    if facts.fleet.error is not None:
        finding = of_error(facts.fleet.error)
        yield msgspec.structs.replace(finding, what=f"queue: {finding.what}", subject="queue")


def role_missing(facts: Common) -> Iterator[Finding]:
    """A queue has work, and no worker takes it."""
    if missing := facts.fleet.missing(facts.agents):
        what = f"queue: no worker takes messages from {', '.join(missing)}"
        yield warning("role_missing", what, f"memline worker {' '.join(missing)}", missing[0])


def dead_letters(facts: Common) -> Iterator[Finding]:
    """Messages failed for good."""
    if facts.fleet.dead:
        what = f"queue: {counted(facts.fleet.dead, 'message')} failed for good"
        yield warning("dead_letters", what, "memline queue dead", "queue")


def old_settings(facts: Common) -> Iterator[Finding]:
    """A process is older than its configuration."""
    file = facts.settings.file.path
    for process in facts.processes:
        if changed_ns(file) > 1e9 * process.started:
            name = f"memline {process.kind} (process {process.pid})"
            yield of_old_settings(name, str(file), f"memline {process.kind}")
    for worker in facts.fleet.workers:
        if worker.newer_file:
            command = f"memline worker {' '.join(worker.queues)}"
            name = f"{command} on {worker.host} (process {worker.pid})"
            yield of_old_settings(name, worker.newer_file, command)


def of_old_settings(process: str, file: str, command: str = "") -> Finding:
    """Return the finding that a process, which this command starts, is older than its configuration."""
    what = f"{process} runs with the settings of its start: {file} was changed since"
    action = f"start it again: {command}" if command else "start it again"
    return warning("old_settings", what, action, process)


def no_watcher(facts: Common) -> Iterator[Finding]:
    """No process follows changed files, where a fleet should."""
    is_watched = any(each.kind in ("up", "watch") for each in facts.processes)
    if facts.fleet.workers and not is_watched:
        # A fleet may be brought up to date by `memline index`, at night for example.
        what = "no memline watch runs in this fleet: changed files are not followed"
        yield note("no_watcher", what, "memline watch", "process")


def settings_without_effect(facts: Common) -> Iterator[Finding]:
    """A value of the configuration is not used as it stands."""
    for text in facts.settings.warnings:
        yield warning("settings_without_effect", text, "memline config check", "configuration")


def vectors_unavailable(_: Common) -> Iterator[Finding]:
    """numpy or sqlite-vec is missing; without both, no vector is searched."""
    vec, numpy = driver.vec_error(), lack_at_a_glance("numpy")
    if vec and numpy:
        what = f"only keywords are searched: numpy {numpy}, and sqlite-vec: {vec}"
        yield warning("vectors_unavailable", what, remedy("numpy"), "host")
    elif numpy:
        what = f"numpy {numpy}; long-lived processes search slowly"
        yield note("vectors_unavailable", what, remedy("numpy"), "host")
    elif vec:
        what = f"sqlite-vec cannot be used ({vec}); numpy stands in"
        yield note("vectors_unavailable", what, install_command("sqlean.py", "sqlite-vec==0.1.9"), "host")


#: What is examined, the more urgent of a level first.
COMMON_CHECKS = (
    redis_unusable,
    role_missing,
    dead_letters,
    old_settings,
    no_watcher,
    settings_without_effect,
    vectors_unavailable,
)
