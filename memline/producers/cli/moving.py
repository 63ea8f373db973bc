"""`memline import` and `backup`: memory that moves."""

from collections.abc import Iterator
from pathlib import Path

import click

from memline.producers.actions import backup as backups
from memline.producers.bridges import import_chats
from memline.producers.bridges.import_chats import PROGRAMS, TakenChats
from memline.producers.cli.invocation import AS_JSON, Invocation, command, once_a_minute
from memline.producers.cli.output import print_result
from memline.shared.values import to_json
from memline.shared.words import counted

#: Conversations that are named in a report at most.
MAX_NAMED = 10


@command(
    "memline backup                                 # into backups, in Memline's home",
    "memline backup /mnt/usb/main.sqlite --agent main",
    "memline backup restore /mnt/usb/main.sqlite",
)
@click.argument("words", nargs=-1, metavar="[FILE] | restore FILE")
@AS_JSON
def backup(invocation: Invocation, words: tuple[str, ...], as_json: bool) -> None:
    """Copy the index of each agent, and what the home knows of its providers, while everything runs.

    FILE is a file that ends in .sqlite, for one agent, or a folder, which gets <agent>.sqlite; without one it
    is backups in Memline's home. Each copy is whole, and readable by its owner alone. Notes are not in it.

    backup restore FILE makes a backup the index where that is missing or damaged. An index that is there
    keeps all it has, and takes the vectors over: memline index then pays for no text whose vector they are.
    """
    match words:
        case ("restore", path):
            _restore(invocation, Path(path), as_json)
        case () | (_,) if words != ("restore",):
            saved = backups.back_up(invocation.agents(), Path(words[0]) if words else None)
            lines = (
                f"Backed up {each.agent}: {counted(each.files, 'file')}, {counted(each.chunks, 'chunk')},"
                f" {counted(each.vectors, 'vector')} ({each.bytes / 1e6:.1f} MB) in {each.path}"
                for each in saved
            )
            print_result([to_json(each) for each in saved], as_json, lines)
        case _:
            raise click.UsageError("write memline backup [FILE], or memline backup restore FILE")


def _restore(invocation: Invocation, path: Path, as_json: bool) -> None:
    agent = invocation.agent()
    restored = backups.restore(agent, path)
    count = counted(restored.vectors, "vector")
    line = f"{agent.agent} has an index, which stays. It took {count} of {path} that it did not have."
    if restored.is_index:
        line = f"Restored {agent.agent}: {path} is its index now, with {count}."
    print_result(to_json(restored), as_json, [line])
    if not as_json:
        invocation.advise("memline index")


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
    file = Path(path).expanduser().absolute()
    chats = import_chats.take_in(agent, source, file, lambda done: say(counted(done, "conversation")))
    print_result(to_json(chats), as_json, _chat_lines(chats))
    if not as_json:
        invocation.advise("memline index")


def _chat_lines(chats: TakenChats) -> Iterator[str]:
    others = {"grown": chats.grown, "known": chats.known, "whose note is gone": chats.gone}
    counts = "".join(f", {count} {what}" for what, count in others.items() if count)
    yield f"Imported into {chats.agent}: {counted(chats.new, 'new conversation')}{counts}"
    yield f"  notes in {chats.folder}/, secrets masked; the zip is not needed any more"
    yield from (f"  left out: {name}" for name in chats.left_out[:MAX_NAMED])
    if len(chats.left_out) > MAX_NAMED:
        yield f"  … and {len(chats.left_out) - MAX_NAMED:,} more"
