"""`memline get`: lines of a memory file."""

from __future__ import annotations

import click

from producers.cli.options import Invocation, examples, global_options, json_option, print_json


@click.command(
    epilog=examples(
        "memline get MEMORY.md",
        "memline get memory/2026-02-10.md --from 40 --lines 20",
        "memline get memory/2026-02-10.md --json",
    )
)
@click.argument("path")
@click.option("--from", "first", type=click.IntRange(min=0), default=1, help="First line.  [default: 1]")
@click.option("--lines", type=click.IntRange(min=1), help="How many lines.  [default: 120]")
@json_option
@global_options
def get(invocation: Invocation, path: str, first: int, lines: int | None, as_json: bool) -> int:
    """Print a memory file, or some of its lines.

    PATH is a path as `memline search` cites it; `path#L5-L7` is understood too.
    """
    from shared.sources.excerpt import cited, read_excerpt
    from shared.sources.scope import Scope

    settings = invocation.agent()
    named = cited(path)
    excerpt = read_excerpt(
        Scope(settings.workspace, settings.memory.extra_paths),
        named.path,
        first=named.first or first,
        lines=lines or named.lines,
    )
    if as_json:
        print_json(excerpt.to_json())
    elif excerpt.status == "not_found":
        click.echo(f"{excerpt.path} does not exist.", err=True)
    else:
        click.echo(excerpt.text)
        if excerpt.next_from:
            click.echo(f"[more: --from {excerpt.next_from}]", err=True)
    return 1 if excerpt.status == "not_found" else 0
