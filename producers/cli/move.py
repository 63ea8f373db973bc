"""`memline export` and `memline import`: notes and vectors in one file, for another machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memline.producers.cli.options import Invocation, command, echo, once_a_minute, print_result
from memline.shared.errors import ConfigError

if TYPE_CHECKING:
    from memline.producers.moving.export import Moved
    from memline.producers.moving.openclaw import Taken

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


@command(
    "memline import notes.memline",
    "memline import openclaw          # the index that OpenClaw has of the same notes",
    "memline import openclaw ~/.openclaw --agent main",
    name="import",
    json=True,
)
@click.argument("source", metavar="FILE|openclaw")
@click.argument("state_dir", metavar="[STATE_DIR]", required=False, type=click.Path(path_type=Path))
def import_command(invocation: Invocation, source: str, state_dir: Path | None, as_json: bool) -> None:
    """Take over notes and vectors of a file that memline export wrote, or the index of OpenClaw.

    A FILE is checked as a whole first; a damaged or foreign one changes nothing. Notes that are missing are
    written, none is overwritten. Vectors serve every text that is the same, without a request.

    `openclaw` takes the chunks and vectors of notes that have not changed since OpenClaw indexed them, from
    STATE_DIR or its usual one. Its files stay untouched.
    """
    say = once_a_minute()
    if source == "openclaw":
        from memline.producers.moving.openclaw import take_over_all

        taken = take_over_all(
            invocation.enabled_agents(),
            state_dir.expanduser().absolute() if state_dir else None,
            prices=invocation.settings.prices,
            on_progress=lambda done: say(f"{done} files"),
        )
        print_result(
            [each.to_json() for each in taken],
            as_json,
            (line for each in taken for line in openclaw_lines(each)),
        )
    else:
        from memline.producers.moving.export import take_in

        if state_dir is not None:
            raise ConfigError("a FILE is imported by itself", hint="memline import openclaw STATE_DIR")
        file = Path(source).expanduser()
        moved = take_in(invocation.agent(), file, on_progress=lambda done: say(f"{done} vectors read"))
        print_result(moved.to_json(), as_json, _import_lines(moved))
    if not as_json:
        echo("Try: memline index", err=True)


def openclaw_lines(taken: Taken) -> Iterator[str]:
    """Yield what was taken over of an index of OpenClaw."""
    yield f"OpenClaw's index of {taken.agent}: {taken.path} ({taken.provider} {taken.model})"
    if taken.reason:
        yield f"  nothing was taken over: {taken.reason}"
        return
    yield (
        f"  {taken.files} notes taken over ({taken.known_files} were), {taken.chunks} chunks,"
        f" {taken.vectors} vectors, {taken.cached} more for its cache"
    )
    if taken.sessions_taken:
        yield f"  {taken.sessions_taken} transcripts came too"
    if taken.cost:
        yield f"  saved: about {taken.cost:.4f} {taken.currency} for {taken.tokens} tokens, and the time"
    yield from _named("changed since, left to index", taken.changed)
    yield from _named("contradicts the note, left to index", taken.odd_files)
    if taken.odd_vectors:
        yield f"  {taken.odd_vectors} vectors were not usable and were left out"
    if taken.sessions:
        yield f"  {taken.sessions} transcripts are left to index, which embeds them anew"


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
