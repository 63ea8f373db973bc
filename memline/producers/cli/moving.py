"""`memline import` and `backup`: memory that moves."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memline.producers.actions import backup as backups
from memline.producers.bridges import import_chats
from memline.producers.bridges.import_chats import PROGRAMS
from memline.producers.calls.table import CALLS
from memline.producers.cli.invocation import Invocation, print_result
from memline.producers.cli.options import advise, once_a_minute
from memline.producers.cli.table_commands import asks
from memline.shared.config.check import nearest
from memline.shared.errors import ConfigError
from memline.shared.values import to_json
from memline.shared.words import counted

if TYPE_CHECKING:
    from memline.producers.bridges.import_chats import TakenChats


class _Backup(click.Group):
    """`backup` itself writes files; a first word that is the name of one of its commands is that command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = (*self.commands, *ctx.help_option_names)
        return super().parse_args(ctx, args if args and args[0] in named else ["write", *args])


backup = asks(CALLS["backup"], cls=_Backup, subcommand_metavar="[FILE] | restore FILE")(lambda _: None)


@asks(CALLS["backup write"], parent=backup, hidden=True)
def write_backup(invocation: Invocation, path: str | None, as_json: bool) -> None:
    saved = backups.back_up(invocation.agents(), Path(path) if path else None)
    lines = (
        f"Backed up {each.agent}: {counted(each.files, 'file')}, {counted(each.chunks, 'chunk')},"
        f" {counted(each.vectors, 'vector')} ({each.bytes / 1e6:.1f} MB) in {each.path}"
        for each in saved
    )
    print_result([to_json(each) for each in saved], as_json, lines)


@asks(CALLS["backup restore"], parent=backup)
def restore_backup(invocation: Invocation, path: str, as_json: bool) -> None:
    agent = invocation.agent()
    restored = backups.restore(agent, Path(path))
    count = counted(restored.vectors, "vector")
    if restored.is_index:
        line = f"Restored {agent.agent}: {path} is its index now, with {count}."
    else:
        line = f"{agent.agent} has an index, which stays. It took {count} of {path} that it did not have."
    print_result(to_json(restored), as_json, [line])
    if not as_json:
        advise("memline index")


@asks(CALLS["import"])
def import_command(invocation: Invocation, source: str, path: str, as_json: bool) -> None:
    if source not in PROGRAMS:
        known = ", ".join(PROGRAMS)
        hint = f"memline import {nearest(source, PROGRAMS) or '|'.join(PROGRAMS)} {shlex.quote(path)}"
        raise ConfigError(f"{source!r} is not one of {known}", hint=hint)
    say = once_a_minute()
    chats = import_chats.take_in(
        invocation.agent(),
        source,
        Path(path).expanduser().absolute(),
        lambda done: say(counted(done, "conversation")),
    )
    print_result(to_json(chats), as_json, _chat_lines(chats))
    if not as_json:
        advise("memline index")


def _chat_lines(taken: TakenChats) -> Iterator[str]:
    others = {"grown": taken.grown, "known": taken.known, "whose note is gone": taken.gone}
    named = "".join(f", {count} {what}" for what, count in others.items() if count)
    yield f"Imported into {taken.agent}: {counted(taken.new, 'new conversation')}{named}"
    yield f"  notes in {taken.folder}/, secrets masked; the zip is not needed any more"
    yield from _named("left out", taken.left_out)


#: Files named in a report at most.
MAX_NAMED = 10


def _named(what: str, names: tuple[str, ...]) -> Iterator[str]:
    for name in names[:MAX_NAMED]:
        yield f"  {what}: {name}"
    if len(names) > MAX_NAMED:
        yield f"  … and {len(names) - MAX_NAMED:,} more"
