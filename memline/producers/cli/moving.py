"""`memline export`, `import`, `backup`, `restore` and `agent`: memory that moves."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import is_zipfile

import click

from memline.producers.actions import backup as backups
from memline.producers.actions.backup import back_up
from memline.producers.bridges import import_chats
from memline.producers.bridges.export import export, export_into, take_in
from memline.producers.bridges.import_chats import PROGRAMS
from memline.producers.calls.table import CALLS
from memline.producers.cli.invocation import Invocation, echo, print_result
from memline.producers.cli.options import advise, confirm, once_a_minute
from memline.producers.cli.table_commands import asks
from memline.shared.config.check import nearest
from memline.shared.errors import ConfigError, NoWorkspace
from memline.shared.scheduling import health
from memline.shared.values import to_json
from memline.shared.words import counted

if TYPE_CHECKING:
    from memline.producers.bridges.export import Moved
    from memline.producers.bridges.import_chats import TakenChats


@asks(CALLS["backup"])
def backup(invocation: Invocation, folder: str, as_json: bool) -> None:
    saved = back_up(invocation.agents(), Path(folder))
    lines = (
        f"Backed up {each.agent}: {_contents(each)} ({each.bytes / 1e6:.1f} MB) in {each.path}"
        for each in saved
    )
    print_result([to_json(each) for each in saved], as_json, lines)


def _contents(saved: backups.Saved) -> str:
    counts = {"file": saved.files, "chunk": saved.chunks, "vector": saved.vectors}
    return ", ".join(counted(count, noun) for noun, count in counts.items())


@asks(CALLS["restore"])
def restore(invocation: Invocation, path: str, yes: bool, as_json: bool) -> int | None:
    found = backups.backups_at(Path(path), invocation.agents(), invocation.agent())
    for each in found:
        backups.refuse_other_workspace(each, invocation.agent(each.agent))
        echo(f"{each.agent}: {_contents(each)} from {each.path}", err=True)
    if not confirm(CALLS["restore"].asks, is_answered=yes):
        return 1
    restored = [backups.restore(each, invocation.agent(each.agent)) for each in found]
    lines = (
        f"Restored {each.agent}: {counted(each.files, 'file')}, {counted(each.vectors, 'vector')}."
        f" {_embedding(each)}".rstrip()
        for each in restored
    )
    print_result([to_json(each) for each in restored], as_json, lines)
    if not as_json:
        advise("memline index")
        for each in restored:
            if each.paused:
                advise(f"memline queue resume --agent {each.agent}   (when embedding is to go on)")
            elif each.wanted:
                advise(f"memline queue pause --agent {each.agent}   (when embedding is to wait)")
    return None


def _embedding(restored: backups.Saved) -> str:
    """Say whether an index that was put back goes on to pay for texts."""
    if restored.paused:
        modes = (health.of_mode(*each.split(" ")) for each in restored.paused if each != "all")
        return f"Embedding stays paused{' and'.join(modes)}."
    return f"Embedding goes on: {counted(restored.wanted, 'text', 'wait')}." if restored.wanted else ""


#: Files named in a report at most.
MAX_NAMED = 10


@asks(CALLS["export"])
def export_command(invocation: Invocation, path: str, what: str | None, as_json: bool) -> None:
    say = once_a_minute()

    def on_progress(done: int) -> None:
        say(f"{counted(done, 'vector')} written")

    chosen = what or "all"
    if not _is_standard_output(path):
        moved = export(invocation.agent(), Path(path), what=chosen, on_progress=on_progress)
        print_result(to_json(moved), as_json, _export_lines(moved))
        return
    if as_json:
        raise click.UsageError("standard output is the export: --json has no place there")
    if sys.stdout.isatty():
        raise click.UsageError("an export is not for a terminal: name a file")
    stream = sys.stdout.buffer
    moved = export_into(
        invocation.agent(), stream, Path("standard output"), what=chosen, on_progress=on_progress
    )
    for line in _export_lines(moved):
        echo(line, err=True)


def _is_standard_output(path: str) -> bool:
    """Tell whether a path means standard output: `-`, /dev/stdout, or the file it was led into."""
    with suppress(OSError, ValueError):
        return path == "-" or os.path.samestat(os.stat(path), os.fstat(sys.stdout.fileno()))
    return False


@asks(CALLS["import"])
def import_command(invocation: Invocation, source: str, path: str | None, as_json: bool) -> int | None:
    say = once_a_minute()
    given = Path(path).expanduser().absolute() if path else None
    if source in PROGRAMS:
        if given is None:
            raise ConfigError("name the zip as it was downloaded", hint=f"memline import {source} FILE.zip")
        chats = import_chats.take_in(
            invocation.agent(), source, given, lambda done: say(counted(done, "conversation"))
        )
        print_result(to_json(chats), as_json, _chat_lines(chats))
    else:
        file = Path("/dev/stdin" if source == "-" else source).expanduser()
        if given is not None:
            hint = f"memline import {nearest(source, PROGRAMS) or '|'.join(PROGRAMS)} {path}"
            what = f"{source!r} is not one of {', '.join(PROGRAMS)}, and a FILE is imported by itself"
            raise ConfigError(what, hint=hint)
        if source != "-" and is_zipfile(file):
            first, *others = PROGRAMS
            hint = f"memline import {first} {source}   (or: {', '.join(others)})"
            raise ConfigError(f"{source} is a zip: say whose export it is", hint=hint)
        again = f"import {shlex.quote(source)}"
        try:
            agent = invocation.agent()
        except NoWorkspace as error:
            raise NoWorkspace(
                error.message, hint=f"memline --workspace DIR {again}   (DIR gets the notes)"
            ) from None
        moved = take_in(agent, file, on_progress=lambda done: say(f"{counted(done, 'vector')} read"))
        print_result(to_json(moved), as_json, _import_lines(moved))
        if moved.left_out and not (moved.notes or moved.known_notes):
            if not as_json:
                folder = shlex.quote(str(agent.workspace))
                advise(f"memline add {folder}   (so that all of it is read), then: memline {again}")
            return 1
    if not as_json:
        advise("memline index")
    return None


def _chat_lines(taken: TakenChats) -> Iterator[str]:
    others = {"grown": taken.grown, "known": taken.known, "whose note is gone": taken.gone}
    named = "".join(f", {count} {what}" for what, count in others.items() if count)
    yield f"Imported into {taken.agent}: {counted(taken.new, 'new conversation')}{named}"
    yield f"  notes in {taken.folder}/, secrets masked; the zip is not needed any more"
    yield from _named("left out", taken.left_out)


def _export_lines(moved: Moved) -> Iterator[str]:
    yield (
        f"Exported {moved.agent}: {counted(moved.notes, 'note')}, {counted(moved.vectors, 'vector')}"
        f" ({moved.bytes / 1e6:.1f} MB) in {moved.path}"
    )
    yield from _named("left out", moved.left_out)


def _import_lines(moved: Moved) -> Iterator[str]:
    yield (
        f"Imported into {moved.agent}: {counted(moved.notes, 'note')} ({moved.known_notes} were there),"
        f" {counted(moved.vectors, 'vector')} ({moved.known_vectors} were there)"
    )
    yield from _named("kept, yours differs", moved.kept)
    yield from _named("left out", moved.left_out)
    for model in moved.other_models:
        yield f"  the vectors of {model} wait: this configuration embeds with another model"


def _named(what: str, names: tuple[str, ...]) -> Iterator[str]:
    for name in names[:MAX_NAMED]:
        yield f"  {what}: {name}"
    if len(names) > MAX_NAMED:
        yield f"  … and {len(names) - MAX_NAMED:,} more"
