"""`memline backup` and `memline restore`: copies of indexes, made and put back while everything runs."""

from __future__ import annotations

from pathlib import Path

import click

from memline.producers.cli.options import Invocation, command, confirm, echo, print_result


@command("memline backup ~/backups/memline", "memline backup /mnt/usb/memline --agent main --json", json=True)
@click.argument("folder", metavar="PATH", type=click.Path(path_type=Path))
def backup(invocation: Invocation, folder: Path, as_json: bool) -> None:
    """Write the index of every agent into the folder PATH, while everything runs.

    Each agent has a file there, <agent>.sqlite, whole and readable by its owner alone. Notes are not in it:
    they are your files (memline export takes them along).
    """
    from memline.producers.moving.backup import back_up

    saved = back_up(invocation.agents(), folder)
    lines = (
        f"Backed up {each.agent}: {each.files} files, {each.chunks} chunks, {each.vectors} vectors"
        f" ({each.bytes / 1e6:.1f} MB) in {each.path}"
        for each in saved
    )
    print_result([each.to_json() for each in saved], as_json, lines)


@command("memline restore ~/backups/memline", "memline restore main.sqlite --agent main --yes", json=True)
@click.argument("path", metavar="PATH", type=click.Path(exists=True, path_type=Path))
@click.option("--yes", is_flag=True, help="Do not ask.")
def restore(invocation: Invocation, path: Path, yes: bool, as_json: bool) -> int | None:
    """Put a backup in the place of the index, while everything runs.

    PATH is a folder that memline backup has written, or one file of it. A damaged or foreign file changes
    nothing. Vectors paid for since the backup are kept.
    """
    from memline.producers.moving import backup as backups

    found = backups.backups_at(path, invocation.agents(), invocation.agent())
    for each in found:
        counts = f"{each.files} files, {each.chunks} chunks, {each.vectors} vectors"
        echo(f"{each.agent}: {counts} from {each.path}", err=True)
    if not confirm("Put this in the place of the present index?", is_answered=yes):
        return 1
    restored = [backups.restore(each, invocation.agent(each.agent)) for each in found]
    lines = (f"Restored {each.agent}: {each.files} files, {each.vectors} vectors." for each in restored)
    print_result([each.to_json() for each in restored], as_json, lines)
    if not as_json:
        echo("Try: memline index", err=True)
    return None
