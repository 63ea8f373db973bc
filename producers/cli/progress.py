"""Running an index with something to look at: a bar with rate and time left when stderr is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from producers.bring_up import Progress, Report
    from shared.config.schema import AgentSettings, Settings
    from shared.index.plan import Plan


def index_agents(
    settings: Settings,
    agents: Sequence[AgentSettings],
    *,
    force: bool = False,
    re_embed: bool = False,
    verbose: bool = False,
) -> list[Report]:
    """Bring the index of every agent up to date, one after another, with progress on stderr."""
    from producers.local_index import bring_up_to_date

    reports = []
    for agent in agents:
        fetch_model(agent)
        with _telling_of_batches(agent), progress_bar(agent.agent) as show:
            report = bring_up_to_date(
                settings,
                agent,
                force=force,
                re_embed=re_embed,
                on_progress=show,
                on_plan=_describe if verbose else _announce,
                on_note=lambda text: click.echo(text, err=True),
            )
        reports.append(report)
    return reports


@contextmanager
def _telling_of_batches(agent: AgentSettings) -> Iterator[None]:
    """When the block is interrupted, say what goes on at the provider without it."""
    try:
        yield
    except KeyboardInterrupt:
        from shared.index.batches import open_batches
        from shared.index.driver import reading_if_any

        with reading_if_any(agent.index_path) as reader:
            jobs = [batch.job_id for batch in open_batches(reader) if batch.job_id] if reader else []
        if jobs:
            click.echo(
                f"Still open at the provider: {', '.join(jobs)}. The next memline index, or memline up,"
                " collects them; memline batch cancel ends one.",
                err=True,
            )
        raise


def fetch_model(agent: AgentSettings) -> None:
    """Download the local model that the agent's settings name, if it is not here, and show how far it is."""
    from shared.embedders.local_files import fetch, missing

    file = missing(agent)
    if file is None:
        return
    click.echo(f"Downloading {file.name}", err=True)
    tenths = -1

    def show(done: int, total: int) -> None:
        nonlocal tenths
        if total and done * 10 // total > tenths:
            tenths = done * 10 // total
            click.echo(f"  {done / 1e6:.0f} of {total / 1e6:.0f} MB", err=True)

    fetch(agent, show)


@contextmanager
def progress_bar(agent: str) -> Iterator[Callable[[Progress], None]]:
    """Gives what is to be called with every progress; shows nothing when stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    # rich costs 60 ms to import; only a person who watches pays it.
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bar

    with Bar(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TextColumn("elapsed"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        files = bar.add_task(f"{agent} files", total=None, rate="", note="")
        vectors = bar.add_task(f"{agent} vectors", total=None, rate="", note="", visible=False)

        def show(progress: Progress) -> None:
            bar.update(files, completed=progress.files_done, total=progress.files)
            bar.update(
                vectors,
                completed=progress.vectors_done,
                total=progress.vectors,
                visible=progress.vectors > 0,
                note=progress.waiting,
            )
            for task in bar.tasks:
                if task.speed:
                    bar.update(task.id, rate=f"{task.speed:.0f}/s")

        yield show


def _announce(plan: Plan) -> None:
    if plan.moved_from:
        click.echo(
            f"This index was of {plan.moved_from}; it now follows the new workspace"
            " (--agent or --home keep both).",
            err=True,
        )


def _describe(plan: Plan) -> None:
    _announce(plan)
    choice = plan.choice
    click.echo(f"Provider: {choice.provider} {choice.model} (requested: {choice.requested})", err=True)
    if choice.reason:
        click.echo(f"  {choice.reason}", err=True)
    changes = plan.changes
    for word, paths in (
        ("added", changes.added),
        ("changed", changes.changed),
        ("removed", changes.removed),
        ("left out", changes.refused),
    ):
        for path in paths:
            click.echo(f"  {word:<9}{path}", err=True)
