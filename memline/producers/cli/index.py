"""`memline index`: bring the index up to date and wait until every vector is ready or failed."""

import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import click

from memline.producers.backends import IndexReport, RunProgress
from memline.producers.cli.invocation import AS_JSON, Invocation, command, once_a_minute
from memline.producers.cli.output import echo, note, print_json, put, width
from memline.producers.memory import Memory
from memline.shared.config.agents import Settings
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.local.downloads import fetch, missing
from memline.shared.errors import MemlineError
from memline.shared.finding import Finding
from memline.shared.visible_text import one_line
from memline.shared.words import counted, span

#: Seconds between two drawings of the progress, and what erases one.
_REDRAW_S, _ERASE = 0.1, "\r\x1b[K"

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
@AS_JSON
def index(invocation: Invocation, as_json: bool, **options: bool) -> int | None:
    """Bring the index up to date with the files and wait until every vector is ready or failed.

    Safe to interrupt and to run again: it goes on where it was, and nothing is paid for twice.
    """
    agents = invocation.enabled_agents()
    for each in agents:
        invocation.name_workspace(each, changes=True)
    if url := invocation.settings.queue:
        from memline.shared.queue import fleet_owner  # redis: 60 ms

        fleet_owner.refuse_other(url, invocation.settings.home)
    reports, failures = [], 0
    for each in agents:
        try:
            reports.append(index_agent(invocation.settings, each, **options))
        except MemlineError as error:
            if len(agents) == 1:
                raise
            failures += 1
            note(f"Error: agent {each.agent}: {error.message}")
            invocation.advise(error.hint)
    if as_json:
        print_json([report.to_json() for report in reports])
    else:
        for report in reports:
            print_report(invocation, report, report.findings)
    return 1 if failures or any(report.failed for report in reports) else None


def index_agent(settings: Settings, agent: AgentSettings, **options: Any) -> IndexReport:
    """Bring the index of an agent up to date, with progress on stderr; `options`: those of `Memory.index`.

    From here on a SIGTERM ends the command as Ctrl-C does: what was paid for is stored.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        fetch_model(agent)
        with progress_line(agent.agent) as show, Memory.of(settings, agent) as memory:
            return memory.index(**options, on_progress=show, on_note=note)
    except KeyboardInterrupt:
        words = "what is indexed is kept, memline index goes on from there"
        raise KeyboardInterrupt(words) from None


def _interrupt(number: int, _frame: FrameType | None) -> None:
    # Only the first: a supervisor that signals a process group reaches a process twice.
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def fetch_model(agent: AgentSettings) -> None:
    """Download the local model that the settings of an agent name, if it is missing, with progress."""
    if (file := missing(agent)) is None:
        return
    note(f"Downloading {file.name}")
    say = once_a_minute()
    fetch(agent, lambda done, total: say(f"  {done / 1e6:.0f} of {total / 1e6:.0f} MB"))


@contextmanager
def progress_line(agent: str) -> Iterator[Callable[[RunProgress], None]]:
    """Give a function that shows progress on a terminal, and everywhere what is waited for, once a minute."""
    say, is_terminal = once_a_minute(), sys.stderr.isatty()
    began, next_at = time.monotonic(), 0.0

    def erase(then: str = "") -> None:
        if is_terminal:
            put(_ERASE + then[: width() - 1], err=True, end="")

    def show(run: RunProgress) -> None:
        nonlocal next_at
        if (now := time.monotonic()) >= next_at or not is_terminal:
            next_at = now + _REDRAW_S
            erase()
            # Why nothing moves: in the line below there is no room.
            say(f"{agent}: {run.waiting}" if run.waiting else "")
            erase(_progress(agent, run, now - began))

    try:
        yield show
    finally:
        erase()


def _progress(agent: str, run: RunProgress, seconds: float) -> str:
    """Say how far a run is, and how long the rest takes at the speed so far."""
    counts = (("files", run.files_done, run.files), ("vectors", run.vectors_done, run.vectors))
    parts = [f"{done:,}/{total:,} {what}" for what, done, total in counts if total]
    _, done, total = counts[1] if run.vectors else counts[0]
    left = [f"{span(seconds / done * (total - done))} left"] if done else []
    return f"{agent}: {', '.join(parts + left)}"


def print_report(invocation: Invocation, report: IndexReport, findings: Iterable[Finding]) -> None:
    """Say what a run did: counts on standard output, what is wrong and helps on standard error."""
    files, vectors = report.files, report.vectors
    counts = f"{files['added']:,} added, {files['changed']:,} changed, {files['removed']:,} removed"
    echo(f"Memory index updated ({report.agent}): {counts}, {files['unchanged']:,} unchanged.")
    parts = [counted(report.chunks, "chunk")]
    # Without a provider a finding says so.
    if report.provider != "none":
        states = ", ".join(
            f"{vectors[state]:,} {state}" for state in ("embedded", "cached", "pending", "failed")
        )
        parts.append(f"{states} ({report.provider} {report.model})")
    parts.append(f"{report.seconds:.1f} s" if report.seconds < 90 else span(report.seconds))
    echo(f"  {' · '.join(parts)}")
    # Paths (or text hashes) by why they failed: one provider error is one line, not a thousand.
    grouped: dict[str, dict[str, None]] = {}
    for failure in report.failures:
        grouped.setdefault(failure["reason"], {})[failure["path"] or failure["textHash"]] = None
    for reason, paths in grouped.items():
        named = ", ".join(one_line(path) for path in list(paths)[:NAMED_PATHS])
        more = f" and {len(paths) - NAMED_PATHS:,} more" if len(paths) > NAMED_PATHS else ""
        note(f"  failed: {named}{more}: {reason}")
    advice = {""}
    for finding in findings:
        note(f"  {finding.what}")
        # What could be better is for `status`, but for notes that are not read.
        if finding.action not in advice and (finding.is_trouble or finding.code == "no_notes"):
            advice.add(finding.action)
            invocation.advise(finding.action)
