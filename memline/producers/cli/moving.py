"""`memline export`, `import`, `backup`, `restore` and `forget`: memory that moves, and that goes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memline.producers.cli.options import (
    Invocation,
    advise,
    command,
    confirm,
    echo,
    once_a_minute,
    print_result,
)
from memline.shared.errors import ConfigError
from memline.shared.words import counted

if TYPE_CHECKING:
    from memline.producers.bridges.export import Moved
    from memline.producers.bridges.import_openclaw import Taken


@command("memline backup ~/backups/memline", "memline backup /mnt/usb/memline --agent main --json", json=True)
@click.argument("folder", metavar="PATH", type=click.Path(path_type=Path))
def backup(invocation: Invocation, folder: Path, as_json: bool) -> None:
    """Write the index of every agent into the folder PATH, while everything runs.

    Each agent has a file there, <agent>.sqlite, whole and readable by its owner alone. Notes are not in it:
    they are your files (memline export takes them along).
    """
    from memline.producers.actions.backup import back_up

    saved = back_up(invocation.agents(), folder)
    lines = (
        f"Backed up {each.agent}: {counted(each.files, 'file')}, {counted(each.chunks, 'chunk')},"
        f" {counted(each.vectors, 'vector')}"
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
    from memline.producers.actions import backup as backups

    found = backups.backups_at(path, invocation.agents(), invocation.agent())
    for each in found:
        counts = f"{counted(each.files, 'file')}, {counted(each.chunks, 'chunk')},"
        counts += f" {counted(each.vectors, 'vector')}"
        echo(f"{each.agent}: {counts} from {each.path}", err=True)
    if not confirm("Put this in the place of the present index?", is_answered=yes):
        return 1
    restored = [backups.restore(each, invocation.agent(each.agent)) for each in found]
    lines = (
        f"Restored {each.agent}: {counted(each.files, 'file')}, {counted(each.vectors, 'vector')}."
        for each in restored
    )
    print_result([each.to_json() for each in restored], as_json, lines)
    if not as_json:
        advise("memline index")
    return None


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
    from memline.producers.bridges.export import export

    say = once_a_minute()
    moved = export(
        invocation.agent(),
        path,
        what=what,
        on_progress=lambda done: say(f"{counted(done, 'vector')} written"),
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
        from memline.producers.bridges.import_openclaw import take_over_all

        taken = take_over_all(
            invocation.enabled_agents(),
            state_dir.expanduser().absolute() if state_dir else None,
            prices=invocation.settings.prices,
            on_progress=lambda done: say(counted(done, "file")),
        )
        print_result(
            [each.to_json() for each in taken],
            as_json,
            (line for each in taken for line in openclaw_lines(each)),
        )
    else:
        from memline.producers.bridges.export import take_in

        if state_dir is not None:
            raise ConfigError("a FILE is imported by itself", hint="memline import openclaw STATE_DIR")
        file = Path(source).expanduser()
        moved = take_in(
            invocation.agent(), file, on_progress=lambda done: say(f"{counted(done, 'vector')} read")
        )
        print_result(moved.to_json(), as_json, _import_lines(moved))
    if not as_json:
        advise("memline index")


def openclaw_lines(taken: Taken) -> Iterator[str]:
    """Yield what was taken over of an index of OpenClaw."""
    yield f"OpenClaw's index of {taken.agent}: {taken.path} ({taken.provider} {taken.model})"
    if taken.reason:
        yield f"  nothing was taken over: {taken.reason}"
        return
    yield (
        f"  {counted(taken.files, 'note')} taken over ({taken.known_files} were),"
        f" {counted(taken.chunks, 'chunk')}, {counted(taken.vectors, 'vector')},"
        f" {taken.cached} more for its cache"
    )
    if taken.sessions_taken:
        yield f"  {counted(taken.sessions_taken, 'transcript')} came too"
    if taken.cost:
        tokens = counted(taken.tokens, "token")
        yield f"  saved: about {taken.cost:.4f} {taken.currency} for {tokens}, and the time"
    yield from _named("changed since, left to index", taken.changed)
    yield from _named("contradicts the note, left to index", taken.odd_files)
    if taken.odd_vectors:
        yield f"  {counted(taken.odd_vectors, 'vector', 'were')} not usable and were left out"
    if taken.sessions:
        yield f"  {counted(taken.sessions, 'transcript', 'are')} left to index, which embeds them again"


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
        yield f"  … and {len(names) - MAX_NAMED} more"


#: Characters of a line that are shown before the question whether to forget it.
MAX_SHOWN = 80


@command(
    "memline forget 'memory/2026-02-10.md#L5-L7'",
    "memline forget memory/old.md --keep-note --yes",
    "memline forget --query 'door code' --dry-run",
    "memline forget --before 2025-01-01 --backup ~/attic",
    json=True,
)
@click.argument("path", required=False)
@click.option("--query", help="Each line that holds all these words, in any form.")
@click.option("--session", metavar="KEY", help="A session, by its key or the name of its transcript.")
@click.option("--before", metavar="DATE", help="Dated notes and sessions before this day (2025-01-01, 90d).")
@click.option("--dry-run", is_flag=True, help="Only list what would be forgotten.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--keep-note", is_flag=True, help="Leave the notes as they are; only Memline forgets.")
@click.option("--backup", metavar="DIR", type=click.Path(path_type=Path), help="Copy the notes there first.")
def forget(
    invocation: Invocation,
    path: str | None,
    query: str | None,
    session: str | None,
    before: str | None,
    dry_run: bool,
    yes: bool,
    keep_note: bool,
    backup: Path | None,
    as_json: bool,
) -> int | None:
    """Forget lines of notes, or sessions, for good.

    It lists what it will touch and asks. PATH is a path or citation as `memline search` gives it. The lines
    go out of the note, the index, its vectors and cache, the batches at the provider and every file of
    Memline's home; what stays in a kept note or a transcript is not read again.
    """
    from memline.producers.actions import forget_targets as resolve
    from memline.producers.actions.forget import forget as do_forget
    from memline.shared.words import counted

    agent = invocation.agent()
    if sum(each is not None for each in (path, query, session, before)) != 1:
        raise ConfigError("say what to forget", hint="one of: PATH, --query, --session, --before")
    if path is not None:
        targets = resolve.targets_of_path(agent, path)
    elif session is not None:
        targets = resolve.targets_of_session(agent, session)
    elif before is not None:
        from datetime import UTC, datetime

        from memline.shared.search.dates import parse_bound

        today = datetime.now(UTC).date()
        targets = resolve.targets_before(agent, parse_bound(before, today, option="--before"))
    else:
        from memline.producers.ask import catch_up
        from memline.shared.clock import SystemClock
        from memline.shared.embedders.choice import choose

        catch_up(agent, choose(agent), clock=SystemClock())
        targets = resolve.targets_of_query(agent, query or "")
    if not targets:
        echo("Nothing to forget.", err=True)
        if query is not None:
            echo(f"No {resolve.MAX_TOGETHER} lines in a row hold all these words.", err=True)
            advise("memline search QUERY, then memline forget PATH#L5   (the lines to forget)")
        return 1
    for target in targets:
        text = " ".join(" ".join(target.shown(agent)).split())
        shown = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
        echo(f"  {target}  {shown}".rstrip(), err=True)
    if dry_run:
        print_result({"agentId": agent.agent, "wouldForget": [str(each) for each in targets]}, as_json, ())
        return None
    where = "Memline (the notes stay)" if keep_note else "the notes and Memline"
    if not confirm(f"Forget this in {where} for good?", is_answered=yes):
        return 1
    done = do_forget(
        agent, targets, keep_note=keep_note, backup=backup, queue_address=invocation.settings.queue.address
    )
    counts = ((done.lines, "line"), (done.chunks, "chunk"), (done.vectors, "vector"))
    lines = [
        f"Forgotten: {', '.join(counted(count, noun) for count, noun in counts)}.",
        *(f"  cleaned: {name}" for name in done.files),
        *(f"  holds a line of it, and is left to you: {name}" for name in done.out_of_reach),
        *(f"  the same text also stands in {name}" for name in done.also_in),
        f"  out of reach: copies outside of {agent.home} (exports, backups, version control)",
    ]
    print_result(done.to_json(), as_json, lines)
    return None
