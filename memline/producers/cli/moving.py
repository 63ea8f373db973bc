"""`memline import` and `backup`: memory that moves."""

from collections.abc import Iterator
from pathlib import Path

import click

from memline.producers.actions import backup as backups
from memline.producers.bridges import import_chats
from memline.producers.bridges.import_chats import PROGRAMS, TakenChats
from memline.producers.cli.invocation import Invocation
from memline.producers.cli.options import AS_JSON, advise, command, group, once_a_minute
from memline.producers.cli.output import print_result
from memline.shared.values import to_json
from memline.shared.words import counted


class _Backup(click.Group):
    """`backup` itself writes files; a first word that is the name of one of its commands is that command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = (*self.commands, *ctx.help_option_names)
        return super().parse_args(ctx, args if args and args[0] in named else ["write", *args])


@group(
    "memline backup                                 # into backups, in Memline's home",
    "memline backup /mnt/usb/main.sqlite --agent main",
    "memline backup restore /mnt/usb/main.sqlite",
    cls=_Backup,
    subcommand_metavar="[FILE] | restore FILE",
)
def backup(_: Invocation) -> None:
    """Copy the index of each agent, and what the home knows of its providers, while everything runs.

    FILE is a file that ends in .sqlite, for one agent, or a folder, which gets <agent>.sqlite; without one it
    is backups in Memline's home. Each copy is whole, and readable by its owner alone. Notes are not in it:
    they are your files.
    """


@command("memline backup ~/backups/memline", parent=backup, name="write", hidden=True)
@click.argument("path", required=False, metavar="[FILE]")
@AS_JSON
def write_backup(invocation: Invocation, path: str | None, as_json: bool) -> None:
    """Copy the index of each agent into FILE, or into a folder; see memline backup."""
    saved = backups.back_up(invocation.agents(), Path(path) if path else None)
    lines = (
        f"Backed up {each.agent}: {counted(each.files, 'file')}, {counted(each.chunks, 'chunk')},"
        f" {counted(each.vectors, 'vector')} ({each.bytes / 1e6:.1f} MB) in {each.path}"
        for each in saved
    )
    print_result([to_json(each) for each in saved], as_json, lines)


@command("memline backup restore ~/backups/memline/main.sqlite --agent main", parent=backup, name="restore")
@click.argument("path", metavar="FILE")
@AS_JSON
def restore_backup(invocation: Invocation, path: str, as_json: bool) -> None:
    """Make a backup the index where that is missing or damaged; else take its vectors over.

    An index that is there keeps all it has: `memline index` reads the notes, and pays for no text whose
    vector is in the backup. A damaged or foreign file, and one of a newer Memline, changes nothing.
    """
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


@command(
    "memline import chatgpt ~/Downloads/chatgpt-export.zip",
    "memline import claude ~/Downloads/claude-export.zip --json",
    name="import",
)
@click.argument("source", type=click.Choice(list(PROGRAMS)))
@click.argument("path", metavar="FILE")
@AS_JSON
def import_command(invocation: Invocation, source: str, path: str, as_json: bool) -> None:
    """Take over the conversations of an export of ChatGPT or Claude, a zip as it was downloaded.

    What a person and the model wrote in the thread that is shown becomes a note, secrets masked. The zip may
    be deleted; a later one adds what is new, and what was deleted or forgotten does not return.
    """
    say, agent = once_a_minute(), invocation.agent()
    invocation.name_workspace(agent, changes=True)
    chats = import_chats.take_in(
        agent,
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
