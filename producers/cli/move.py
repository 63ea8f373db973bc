"""`memline export` and `memline import`: notes and vectors in one file, for another machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memline.producers.cli.options import Invocation, command, echo, once_a_minute, print_result

if TYPE_CHECKING:
    from memline.producers.moving.export import Moved

#: Files named in a report at most.
MAX_NAMED = 10


@command(
    "memline export notes.memline",
    "memline export vectors.memline --what vectors --agent main",
    name="export",
    json=True,
)
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--what",
    type=click.Choice(["all", "notes", "vectors", "cache"]),
    default="all",
    help="Notes, vectors that chunks need, cached vectors, or all of these.  [default: all]",
)
def export_command(invocation: Invocation, path: Path, what: str, as_json: bool) -> None:
    """Write an agent's notes and vectors into one file, for another machine.

    Killed and run again it goes on. The file is for its owner alone and holds no key.
    """
    from memline.producers.moving.export import export

    say = once_a_minute()
    moved = export(
        invocation.agent(), path, what=what, on_progress=lambda done: say(f"{done} vectors written")
    )
    print_result(moved.to_json(), as_json, _export_lines(moved))


@command("memline import notes.memline", name="import", json=True)
@click.argument("source", metavar="FILE", type=click.Path(exists=True, path_type=Path))
def import_command(invocation: Invocation, source: Path, as_json: bool) -> None:
    """Take over the notes and vectors of a file that memline export wrote.

    The whole file is checked first; a damaged or foreign one changes nothing. Notes that are missing are
    written, none is overwritten. Vectors serve every text that is the same, without a request.
    """
    from memline.producers.moving.export import take_in

    say = once_a_minute()
    moved = take_in(invocation.agent(), source, on_progress=lambda done: say(f"{done} vectors read"))
    print_result(moved.to_json(), as_json, _import_lines(moved))
    if not as_json:
        echo("Try: memline index", err=True)


def _export_lines(moved: Moved) -> Iterator[str]:
    yield (
        f"Exported {moved.agent}: {moved.notes} notes, {moved.vectors} vectors"
        f" ({moved.bytes / 1e6:.1f} MB) in {moved.path}"
    )
    yield from _named("left out", moved.left_out)


def _import_lines(moved: Moved) -> Iterator[str]:
    yield (
        f"Imported into {moved.agent}: {moved.notes} notes ({moved.known_notes} were there),"
        f" {moved.vectors} vectors ({moved.known_vectors} were there)"
    )
    yield from _named("kept, yours differs", moved.kept)
    yield from _named("left out", moved.left_out)
    for model in moved.other_models:
        yield f"  the vectors of {model} wait: this configuration embeds with another model"


def _named(what: str, names: tuple[str, ...]) -> Iterator[str]:
    for name in names[:MAX_NAMED]:
        yield f"  {what}: {name}"
    if len(names) > MAX_NAMED:
        yield f"  … and {len(names) - MAX_NAMED} more"
