"""`memline export`, `import`, `backup`, `restore` and `forget`: memory that moves, and that goes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from memline.producers.actions import backup as backups
from memline.producers.actions import forget_targets as resolve
from memline.producers.actions.backup import back_up
from memline.producers.actions.forget import forget as do_forget
from memline.producers.ask import catch_up
from memline.producers.bridges.export import export, take_in
from memline.producers.bridges.import_openclaw import take_over_all
from memline.producers.calls.table import CALLS
from memline.producers.cli.options import (
    Invocation,
    advise,
    confirm,
    echo,
    once_a_minute,
    print_result,
)
from memline.producers.cli.table_commands import asks
from memline.shared.clock import SystemClock
from memline.shared.embedders.choice import choose
from memline.shared.errors import ConfigError
from memline.shared.search.dates import parse_bound
from memline.shared.words import counted

if TYPE_CHECKING:
    from memline.producers.bridges.export import Moved
    from memline.producers.bridges.import_openclaw import Taken


@asks(CALLS["backup"])
def backup(invocation: Invocation, folder: str, as_json: bool) -> None:
    """Copy the index of every agent into a folder."""
    saved = back_up(invocation.agents(), Path(folder))
    lines = (
        f"Backed up {each.agent}: {counted(each.files, 'file')}, {counted(each.chunks, 'chunk')},"
        f" {counted(each.vectors, 'vector')}"
        f" ({each.bytes / 1e6:.1f} MB) in {each.path}"
        for each in saved
    )
    print_result([each.to_json() for each in saved], as_json, lines)


@asks(CALLS["restore"])
def restore(invocation: Invocation, path: str, yes: bool, as_json: bool) -> int | None:
    """Put a backup in the place of the index."""
    found = backups.backups_at(Path(path), invocation.agents(), invocation.agent())
    for each in found:
        counts = f"{counted(each.files, 'file')}, {counted(each.chunks, 'chunk')},"
        counts += f" {counted(each.vectors, 'vector')}"
        echo(f"{each.agent}: {counts} from {each.path}", err=True)
    if not confirm(CALLS["restore"].asks, is_answered=yes):
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


@asks(CALLS["export"])
def export_command(invocation: Invocation, path: str, what: str | None, as_json: bool) -> None:
    """Write an agent's notes and vectors into one file."""
    say = once_a_minute()
    moved = export(
        invocation.agent(),
        Path(path),
        what=what or "all",
        on_progress=lambda done: say(f"{counted(done, 'vector')} written"),
    )
    print_result(moved.to_json(), as_json, _export_lines(moved))


@asks(CALLS["import"])
def import_command(invocation: Invocation, source: str, state_dir: str | None, as_json: bool) -> None:
    """Take over the notes and vectors of a file, or the index of OpenClaw."""
    say = once_a_minute()
    if source == "openclaw":
        taken = take_over_all(
            invocation.enabled_agents(),
            Path(state_dir).expanduser().absolute() if state_dir else None,
            prices=invocation.settings.prices,
            on_progress=lambda done: say(counted(done, "file")),
        )
        print_result(
            [each.to_json() for each in taken],
            as_json,
            (line for each in taken for line in openclaw_lines(each)),
        )
    else:
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


@asks(CALLS["forget"])
def forget(
    invocation: Invocation,
    path: str | None,
    query: str | None,
    session: str | None,
    before: str | None,
    dry_run: bool,
    yes: bool,
    keep_note: bool,
    backup: str | None,
    as_json: bool,
) -> int | None:
    """Forget what a path, words, a session or a day names, once it is confirmed."""
    agent = invocation.agent()
    if sum(each is not None for each in (path, query, session, before)) != 1:
        raise ConfigError("say what to forget", hint="one of: PATH, --query, --session, --before")
    if path is not None:
        targets = resolve.targets_of_path(agent, path)
    elif session is not None:
        targets = resolve.targets_of_session(agent, session)
    elif before is not None:
        today = datetime.now(UTC).date()
        targets = resolve.targets_before(agent, parse_bound(before, today, option="--before"))
    else:
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
    if not confirm(CALLS["forget"].asks.format(where=where), is_answered=yes):
        return 1
    done = do_forget(
        agent,
        targets,
        keep_note=keep_note,
        backup=Path(backup) if backup else None,
        queue_address=invocation.settings.queue.address,
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
