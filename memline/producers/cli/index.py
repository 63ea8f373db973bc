"""`memline index`: bring the index up to date and wait until every vector is ready or failed."""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import click

from memline.producers.backends import IndexReport, RunProgress
from memline.producers.cli import terminal
from memline.producers.cli.invocation import Invocation
from memline.producers.cli.options import AS_JSON, advise, command, once_a_minute
from memline.producers.cli.output import echo, print_json, put
from memline.producers.memory import Memory
from memline.shared.config.schema import AgentSettings, Settings
from memline.shared.embedders.local.downloads import fetch, missing
from memline.shared.errors import (
    IndexFault,
    MemlineError,
)
from memline.shared.index.batches import open_batches
from memline.shared.index.driver import reading_if_any
from memline.shared.sync.plan import Plan
from memline.shared.visible_text import one_line
from memline.shared.words import counted, span

#: Bytes of a file above which its download is shown as it goes on.
_SHOWN_BYTES = 2_000_000

#: Seconds between two drawings of the bars.
_REDRAW_S = 0.1

#: Files named in a line about failures.
NAMED_PATHS = 3


@command(
    "memline --workspace ~/notes index",
    "memline index --json",
    "memline index --force          # split every file again; vectors are kept",
    "memline index --re-embed       # pay for every vector again",
)
@click.option("--force", is_flag=True, help="Read and split every file again; known vectors are kept.")
@click.option("--re-embed", is_flag=True, help="Forget all vectors and embed every text again.")
@click.option(
    "--accept-removals",
    is_flag=True,
    help="Remove the files of a folder that was emptied; without it they stay.",
)
@click.option("--verbose", is_flag=True, help="Name the files that are added, changed and removed.")
@AS_JSON
def index(
    invocation: Invocation,
    force: bool,
    re_embed: bool,
    accept_removals: bool,
    verbose: bool,
    as_json: bool,
) -> int | None:
    """Bring the index up to date with the files and wait until every vector is ready or failed.

    Safe to interrupt and to run again: it goes on where it was, and nothing is paid for twice.
    """
    options: dict[str, Any] = {"force": force, "re_embed": re_embed, "accept_removals": accept_removals}
    agents = {each.agent: each for each in invocation.enabled_agents()}
    failed: list[MemlineError] = []

    def leave(agent: AgentSettings, error: MemlineError) -> None:
        if len(agents) == 1:
            raise error
        failed.append(error)
        _note(f"Error: agent {agent.agent}: {error.message}")
        advise(error.hint)

    several = list(agents.values())
    for each in several:
        invocation.name_workspace(each, changes=True)
    url, home = invocation.settings.queue.address, invocation.settings.home
    if url:
        from memline.shared.queue import fleet_owner  # redis: 60 ms

        fleet_owner.refuse_other(url, home)
    reports = index_agents(invocation.settings, several, **options, verbose=verbose, on_error=leave)
    if as_json:
        print_json([report.to_json() for report in reports])
    else:
        for report in reports:
            _print(report)
    return 1 if failed or any(report.failed for report in reports) else None


def index_agents(
    settings: Settings,
    agents: Sequence[AgentSettings],
    *,
    verbose: bool = False,
    on_error: Callable[[AgentSettings, MemlineError], None] | None = None,
    **options: Any,
) -> list[IndexReport]:
    """Bring the index of every agent up to date, one after another, with progress on stderr.

    `on_error` is told what ends the run of an agent, and the others go on; without it that is raised.
    `options`: those of `Memory.index`.
    """
    reports = []
    for agent in agents:
        try:
            fetch_model(agent)
            with (
                _term_interrupts(),
                progress_bar(agent.agent) as show,
                Memory.of(settings, agent) as memory,
            ):
                if verbose:
                    options["on_plan"] = _print_plan
                made = memory.index(**options, on_progress=show, on_note=_note)
                reports.append(made)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_kept(agent)) from None
        except MemlineError as error:
            if on_error is None:
                raise
            on_error(agent, error)
    return reports


@contextmanager
def _term_interrupts() -> Iterator[None]:
    """Make a SIGTERM a KeyboardInterrupt while a block runs, so that what was paid for is stored.

    Only the first: a supervisor that signals a process group reaches a process twice.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def fetch_model(agent: AgentSettings) -> None:
    """Download the local models that the settings of an agent name, if they are missing, with progress."""
    files = missing(agent)
    if not files:
        return
    _note(f"Downloading {' and '.join(file.name for file in files)}")
    tenths = -1

    def show(done: int, total: int) -> None:
        nonlocal tenths
        # Of the files of a model only the large ones are worth a line.
        if total > _SHOWN_BYTES and done * 10 // total > tenths:
            tenths = done * 10 // total
            _note(f"  {done / 1e6:.0f} of {total / 1e6:.0f} MB")

    fetch(agent, show)


def _kept(agent: AgentSettings) -> str:
    """Say what an interrupted run leaves: what is indexed, and the batches that go on at the provider."""
    words = "what is indexed is kept, memline index goes on from there"
    jobs: list[str] = []
    with suppress(IndexFault), reading_if_any(agent.index_path) as reader:
        jobs = [batch.job_id for batch in open_batches(reader) if batch.job_id] if reader else []
    if jobs:
        words += f" and collects what is still open at the provider: {', '.join(jobs)}"
    return words


@contextmanager
def progress_bar(agent: str) -> Iterator[Callable[[RunProgress], None]]:
    """Give a function that shows progress; without a terminal it says what it waits for, once a minute."""
    if not sys.stderr.isatty():
        say = once_a_minute(at_once=True)
        yield lambda progress: say(f"{agent}: {progress.waiting}" if progress.waiting else "")
        return
    began, next_at, rows, told = time.monotonic(), 0.0, 0, ""

    def erase() -> None:
        nonlocal rows
        if rows:
            put(f"\x1b[{rows}A\x1b[J", err=True, end="")
        rows = 0

    def show(run: RunProgress) -> None:
        nonlocal next_at, rows, told
        now, is_new = time.monotonic(), run.waiting not in ("", told)
        if now < next_at and not is_new:
            return
        next_at = now + _REDRAW_S
        erase()
        if is_new:
            # Why nothing moves, above the bars: beside them there is no room for it.
            told = run.waiting
            for line in terminal.wrapped(told, terminal.width()):
                _note(line)
        counts = (("files", run.files_done, run.files), ("vectors", run.vectors_done, run.vectors))
        for what, done, total in counts:
            if total:
                _note(_bar(f"{agent[:20]} {what}", done, total, now - began))
                rows += 1

    try:
        yield show
    finally:
        erase()


def _bar(name: str, done: int, total: int, seconds: float) -> str:
    """Draw how far something is, and say how long the rest takes at the speed so far."""
    room = max(5, min(40, terminal.width() - 60))
    full = room * min(done, total) // total
    left = span(seconds / done * (total - done)) if done else "…"
    return f"{name:<28} {'━' * full}{' ' * (room - full)} {done}/{total} {left} left"


def _note(text: str) -> None:
    echo(text, err=True)


def _print_plan(plan: Plan) -> None:
    _note(f"Provider: {plan.choice.provider} {plan.choice.model} (requested: {plan.choice.requested})")
    if plan.choice.reason:
        _note(f"  {plan.choice.reason}")
    changes = plan.changes
    for word in ("added", "changed", "removed", "refused"):
        for path in getattr(changes, word):
            _note(f"  {'left out' if word == 'refused' else word:<9}{path}")


def _print(report: IndexReport) -> None:
    files, vectors = report.files, report.vectors
    counts = f"{files['added']:,} added, {files['changed']:,} changed, {files['removed']:,} removed"
    echo(f"Memory index updated ({report.agent}): {counts}, {files['unchanged']:,} unchanged.")
    embedding = "keyword search only (no embedding provider)"
    if report.provider != "none":
        embedding = (
            f"{vectors['embedded']:,} embedded, {vectors['cached']:,} cached, {vectors['pending']:,} pending,"
            f" {vectors['failed']:,} failed ({report.provider} {report.model})"
        )
    took = f"{report.seconds:.1f} s" if report.seconds < 90 else span(report.seconds)
    echo(f"  {counted(report.chunks, 'chunk')} · {embedding} · {took}")
    # Paths (or text hashes) by why they failed: one provider error is one line, not a thousand.
    grouped: dict[str, dict[str, None]] = {}
    for failure in report.failures:
        grouped.setdefault(failure["reason"], {})[failure["path"] or failure["textHash"]] = None
    for reason, paths in ((reason, list(names)) for reason, names in grouped.items()):
        more = f" and {len(paths) - NAMED_PATHS:,} more" if len(paths) > NAMED_PATHS else ""
        _note(f"  failed: {', '.join(map(one_line, paths[:NAMED_PATHS]))}{more}: {reason}")
    for finding in report.findings:
        _note(f"  {finding.what}")
    if report.action:
        advise(report.action)
