"""`memline index`: bring the index up to date and wait until every vector is ready or failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from producers.cli.options import Invocation, examples, global_options, json_option, print_json

if TYPE_CHECKING:
    from producers.bring_up import Report

#: Files named in a line about failures.
NAMED_PATHS = 3


@click.command(
    epilog=examples(
        "memline --workspace ~/notes index",
        "memline index --json",
        "memline index --force          # split every file again; vectors are kept",
        "memline index --re-embed       # pay for every vector again",
    )
)
@click.option("--force", is_flag=True, help="Read and split every file again; known vectors are kept.")
@click.option("--re-embed", is_flag=True, help="Forget all vectors and embed every text again.")
@click.option("--verbose", is_flag=True, help="Name the files that are added, changed and removed.")
@json_option
@global_options
def index(invocation: Invocation, force: bool, re_embed: bool, verbose: bool, as_json: bool) -> int | None:
    """Bring the index up to date with the files and wait until every vector is ready or failed.

    Safe to interrupt and to run again: it goes on where it was, and nothing is paid for twice.
    """
    from producers.cli.progress import index_agents

    reports = index_agents(
        invocation.settings,
        [settings for settings in invocation.agents() if settings.memory.enabled],
        force=force,
        re_embed=re_embed,
        verbose=verbose,
    )
    if as_json:
        print_json([report.to_json() for report in reports])
    else:
        for report in reports:
            _print(report)
    return 1 if any(report.failed for report in reports) else None


def _by_reason(failures: list[dict[str, str]]) -> dict[str, list[str]]:
    """Paths (or text hashes) by why they failed: one provider error is one line, not a thousand."""
    grouped: dict[str, list[str]] = {}
    for failure in failures:
        paths = grouped.setdefault(failure["reason"], [])
        what = failure["path"] or failure["textHash"]
        if what not in paths:
            paths.append(what)
    return grouped


def _print(report: Report) -> None:
    files, vectors = report.files, report.vectors
    seen = f"{files['added']} added, {files['changed']} changed, {files['removed']} removed"
    click.echo(f"Memory index updated ({report.agent}): {seen}, {files['unchanged']} unchanged.")
    line = f"  {report.chunks} chunks"
    if report.provider != "none":
        line += (
            f" · {vectors['embedded']} embedded, {vectors['cached']} cached, {vectors['pending']} pending,"
            f" {vectors['failed']} failed ({report.provider} {report.model})"
        )
    else:
        line += " · keyword search only (no embedding provider)"
    click.echo(f"{line} · {report.seconds:.1f} s")
    for reason, paths in _by_reason(report.failures).items():
        more = f" and {len(paths) - NAMED_PATHS} more" if len(paths) > NAMED_PATHS else ""
        click.echo(f"  failed: {', '.join(paths[:NAMED_PATHS])}{more}: {reason}", err=True)
    for issue in report.issues:
        click.echo(f"  note: {issue}", err=True)
    if report.warning:
        click.echo(f"  {report.warning}", err=True)
    if report.action:
        click.echo(f"Try: {report.action}", err=True)
