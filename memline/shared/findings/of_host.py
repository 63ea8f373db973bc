"""Find what this machine and this installation lack, and which process is gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from memline.shared.finding import NOTE, PROBLEM, WARNING
from memline.shared.findings.facts import FleetFacts
from memline.shared.findings.table import Seen, finding, met, seen
from memline.shared.index import driver
from memline.shared.packages import install_command, lack_at_a_glance, remedy
from memline.shared.scheduling import home_processes

#: Watches that inotify must allow a user for a workspace of usual size.
MIN_WATCHES = 8_192

_WATCHES = Path("/proc/sys/fs/inotify/max_user_watches")


@finding(PROBLEM, "{reason}", action="memline config check", subject="configuration")
def settings_unusable(facts: FleetFacts) -> Iterator[Seen]:
    yield from met(facts.troubles, "settings_unusable")


@finding(PROBLEM, "{reason}", subject="host")
def not_examined(facts: FleetFacts) -> Iterator[Seen]:
    yield from met(facts.troubles, "not_examined")


@finding(
    WARNING,
    "memline {kind} {fate}: changed files are not followed",
    action="memline {kind}",
    subject="process",
)
def no_watcher(facts: FleetFacts) -> Iterator[Seen]:
    gone = [each for each in facts.processes if each.kind in (home_processes.UP, home_processes.WATCH)]
    alive = {agent for each in gone if each.is_alive for agent in each.agents}
    for each in gone:
        if not each.is_alive and not set(each.agents) <= alive:
            # After a start of the host nothing runs: its user starts it again.
            level = NOTE if each.ended_with_host else WARNING
            fate = f"ended without a word, process {each.pid} on {each.host}"
            yield seen(fate=fate, kind=each.kind, level=level)
    if not gone and facts.workers:
        # A fleet may be brought up to date by `memline index`, at night for example.
        yield seen(fate="is not there in this fleet", kind="watch", level=NOTE)


@finding(
    WARNING,
    "{reason}",
    action="memline config check",
    subject="configuration",
)
def settings_without_effect(facts: FleetFacts) -> Iterator[Seen]:
    for text in facts.warnings:
        yield seen(reason=text)


@finding(
    WARNING,
    "changed files are found by polling: {reason}",
    action="sudo sysctl fs.inotify.max_user_watches=524288",
    subject="host",
)
def watches_exhausted(facts: FleetFacts) -> Iterator[Seen]:
    polling = [each for each in facts.processes if each.polling and each.is_alive]
    for each in polling:
        reason, _, command = each.polling.partition("; more: ")
        words = f"{reason} (memline {each.kind} on {each.host})"
        yield seen(reason=words, action=f"sudo {command}" if command else None, subject=each.host)
    with suppress(OSError, ValueError):
        watches = int(_WATCHES.read_text())
        if watches < MIN_WATCHES and not polling:
            yield seen(reason=f"the system allows {watches} inotify watches, too few for a large workspace")


@finding(NOTE, "numpy {lack}; long-lived processes search vectors slowly", subject="host")
def numpy_missing(facts: FleetFacts) -> Iterator[Seen]:
    # Without both, the row below says what that means.
    if (why := lack_at_a_glance("numpy")) and not driver.vec_error():
        yield seen(lack=why, action=remedy("numpy"))


@finding(NOTE, "sqlite-vec is missing: {reason}; {then}", subject="host")
def sqlite_vec_missing(facts: FleetFacts) -> Iterator[Seen]:
    if error := driver.vec_error():
        install = install_command("sqlean.py", "sqlite-vec==0.1.9")
        if why := lack_at_a_glance("numpy"):
            then = f"numpy {why}: no vector is searched"
            yield seen(reason=error, then=then, level=WARNING, action=f"{remedy('numpy')}   (or: {install})")
        else:
            yield seen(reason=error, then="vectors are searched without it", action=install)
