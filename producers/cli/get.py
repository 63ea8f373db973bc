"""`memline get`: lines of a memory file."""

from __future__ import annotations

import click

from memline.producers.cli.options import Invocation, command, echo, echo_file, print_json


@command(
    "memline get MEMORY.md",
    "memline get memory/2026-02-10.md --from 40 --lines 20",
    "memline get 'Deploy plan'",
    "memline get memory/2026-02-10.md --json",
    json=True,
)
@click.argument("path")
@click.option("--from", "first", type=click.IntRange(min=0), help="First line.  [default: 1]")
@click.option("--lines", type=click.IntRange(min=1), help="How many lines.  [default: 120]")
def get(invocation: Invocation, path: str, first: int | None, lines: int | None, as_json: bool) -> int:
    """Print a memory file, or some of its lines.

    PATH is a path as `memline search` cites it, `path#L5-L7`, or the title, an alias or the file name of a
    note.
    """
    from memline.producers.memory import Memory

    excerpt = Memory.of(invocation.settings, invocation.agent()).get(path, first=first, lines=lines)
    if as_json:
        print_json(excerpt.to_json())
    elif excerpt.status == "not_found":
        echo(f"{excerpt.path} does not exist.", err=True)
    else:
        echo_file(excerpt.text)
        if excerpt.next_from:
            echo(f"[more: --from {excerpt.next_from}]", err=True)
    return 1 if excerpt.status == "not_found" else 0
