"""`memline forget`, `import` and `backup`: memory that goes, comes and is kept."""

from collections.abc import Iterator
from pathlib import Path

import click
from msgspec.structs import replace

from memline.producers.actions import backup as backups
from memline.producers.actions import forget as forgetting
from memline.producers.bridges import import_chats
from memline.producers.bridges.import_chats import PROGRAMS, TakenChats
from memline.producers.cli.invocation import AS_JSON, Invocation, command, confirm
from memline.producers.cli.output import echo, note, print_result
from memline.producers.memory import catch_up
from memline.shared.clock import SystemClock
from memline.shared.embedders.choice import choose
from memline.shared.errors import ConfigError, NoWorkspace
from memline.shared.sources.dates import day_of_time, parse_bound
from memline.shared.values import to_json
from memline.shared.words import counted

#: Characters of a line that are shown before the question whether to forget it.
MAX_SHOWN = 80


@command(
    "memline forget 'memory/2026-02-10.md#L5-L7'",
    "memline forget --query 'door code' --dry-run",
    "memline forget --session 4f9c2e1a",
    "memline forget --before 2025-01-01 --yes",
)
@click.argument("path", required=False)
@click.option("--query", help="Each line with all these words, in upper or lower case.")
@click.option("--session", metavar="ID", help="A session, by the whole name of its transcript.")
@click.option("--before", metavar="DATE", help="Dated notes and sessions before this day (2025-01-01, 90d).")
@click.option("--dry-run", is_flag=True, help="Only list what would be forgotten.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@AS_JSON
def forget(
    invocation: Invocation, dry_run: bool, yes: bool, as_json: bool, **options: str | None
) -> int | None:
    """Forget lines of notes, or sessions, for good.

    It lists what it will touch and asks. PATH is a path or citation as `memline search` gives it, of a
    session its path alone. The lines go out of the note, the index, its vectors and its free pages. A session
    goes as a whole: it stays where its program has it, and is never read again. Backups, logs and open
    batches that have the text are named, and left to you.
    """
    agent, clock = invocation.agent(), SystemClock()
    match [(name, text) for name, text in options.items() if text is not None]:
        case [("path", text)]:
            targets = forgetting.targets_of_path(agent, text)
        case [("session", text)]:
            targets = forgetting.targets_of_session(agent, text)
        case [(name, text)]:
            # Sessions, and days in front matter, are known by the index.
            catch_up(agent, choose(agent), clock=clock)
            if name == "before":
                day = parse_bound(text, day_of_time(clock.now()))
                targets = forgetting.targets_before(agent, day)
            else:
                targets = forgetting.targets_of_query(agent, text, on_unread=note)
        case several:
            reason = "say one thing, not several" if several else "say what to forget"
            raise ConfigError(reason, hint="give one of: PATH, --query, --session, --before")
    if not targets:
        note("Nothing to forget.")
        invocation.advise("memline search QUERY, then memline forget PATH#L5")
        return 1
    for target in targets:
        text = " ".join(" ".join(target.lines).split())
        shown = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
        # What only lists has nothing else to give.
        echo(f"  {target}  {shown}".rstrip(), err=not (dry_run and not as_json))
    if dry_run:
        print_result({"agentId": agent.agent, "wouldForget": [*map(str, targets)]}, as_json, ())
        return None
    invocation.name_workspace(agent, changes=True)
    if not confirm("Forget this in the notes and in Memline for good?", is_answered=yes):
        return 1
    done = forgetting.forget(agent, targets)
    whole = sum(not each.first for each in targets)
    files = f", {counted(whole, 'whole file')}" if whole else ""
    lines = [
        f"Forgotten: {counted(done.lines, 'line')}{files}, {counted(done.vectors, 'vector')}.",
        *(f"  contains a line of it, and is left to you: {name}" for name in done.out_of_reach),
        *(f"  a batch has it: {name}" for name in done.at_provider),
        f"  out of reach: copies outside of {agent.home} (backups, version control)",
    ]
    print_result(to_json(done), as_json, lines)
    return None


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

    FILE is a file that ends in .sqlite, for one agent, or a folder, where it has the name of its index;
    without one it is backups in Memline's home. Each copy is whole, and readable by its owner alone. Notes
    are not in it.

    backup restore FILE puts a backup in the place of an index that is missing or damaged. An index that is
    there stays, and takes over the vectors that it lacks, so that memline index does not pay for them again.
    Where nothing says which notes are meant, they are those of the backup.
    """
    is_restore = words[:1] == ("restore",)
    if len(words) != 2 if is_restore else len(words) > 1:
        raise click.UsageError("write memline backup [FILE], or memline backup restore FILE")
    if is_restore:
        try:
            agent = invocation.agent()
        except NoWorkspace:
            # The index is lost that said which folder's notes are meant.
            folder = Path(backups.workspace_of(Path(words[1])))
            invocation = Invocation(replace(invocation.options, workspace=folder))
            agent = invocation.agent()
        restored = backups.restore(agent, Path(words[1]))
        count = counted(restored.vectors, "vector")
        line = f"{restored.agent} has an index, which stays. It took {count} that it did not have."
        if restored.is_index:
            line = f"Restored {restored.agent}: {words[1]} is its index now, with {count}."
        elif restored.other_workspace:
            of = f"{words[1]} is a backup of {restored.other_workspace}"
            line = f"{of}, so {restored.agent} took only vectors, {restored.vectors} that it did not have."
        if restored.missing_accounts:
            what = "sessions that were forgotten may return with the next index"
            note(f"{restored.missing_accounts} is not there: {what}. Copy it to {agent.account_path}.")
        print_result(to_json(restored), as_json, [line, invocation.as_typed("Try: memline index")])
        return
    saved = backups.back_up(invocation.agents(), Path(words[0]) if words else None)
    lines = (
        f"Backed up {each.agent}: {counted(each.files, 'file')}, {counted(each.chunks, 'chunk')},"
        f" {counted(each.vectors, 'vector')} ({each.bytes / 1e6:.1f} MB) in {each.path}"
        + (f", and {each.accounts.name} beside it" if each.accounts else "")
        for each in saved
    )
    print_result([to_json(each) for each in saved], as_json, lines)


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
    agent = invocation.agent()
    invocation.name_workspace(agent, changes=True)
    file = Path(path).expanduser().absolute()

    chats = import_chats.take_in(agent, source, file)
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
