"""`memline forget`: memory that goes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from memline.producers.actions import forget_batches
from memline.producers.actions import forget_targets as resolve
from memline.producers.actions.forget import forget as do_forget
from memline.producers.actions.forget import listed as do_list
from memline.producers.actions.forget import undo as do_undo
from memline.producers.actions.forget_home import holding
from memline.producers.ask import catch_up
from memline.producers.calls.table import CALLS
from memline.producers.cli.invocation import Invocation, echo, print_result
from memline.producers.cli.options import advise, confirm
from memline.producers.cli.table_commands import asks
from memline.shared.clock import SystemClock
from memline.shared.embedders.choice import choose
from memline.shared.errors import ConfigError
from memline.shared.note_names import is_markdown
from memline.shared.sources.dates import day_of_time, parse_bound
from memline.shared.words import counted

if TYPE_CHECKING:
    from memline.producers.actions.forget_batches import LeftBehind
    from memline.shared.config.schema import AgentSettings


def _forgotten_list(agent: AgentSettings, undo: int | None, as_json: bool) -> int | None:
    """List what was forgotten, or take one off the list."""
    groups = do_list(agent)
    numbered = [
        {"number": number, "path": each.path, "day": day_of_time(each.at).isoformat()}
        for number, each in enumerate(groups, 1)
    ]
    if undo is None:
        lines = [f"{each['number']:>4}  {each['day']}  {each['path']}" for each in numbered]
        print_result(numbered, as_json, lines or ["Nothing was forgotten."])
        return None
    if undo > len(groups):
        raise ConfigError(f"there is no number {undo} on the list", hint="memline forget --list")
    has_held = do_undo(agent, groups[undo - 1])
    chosen = numbered[undo - 1]
    lines = [f"Off the list: {chosen['path']} of {chosen['day']}."]
    if undo < len(groups):
        lines[0] += " The numbers behind it are one less now."
    if not has_held:
        # Nothing that an index run could read.
        is_note = is_markdown(groups[undo - 1].path)
        again = "put it there again" if is_note else "import it again"
        lines.append(f"What was taken out{' of the note' * is_note} is back once you {again}.")
    print_result({"undone": chosen}, as_json, lines)
    if has_held and not as_json:
        advise("memline index")
    return None


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
    as_list: bool,
    undo: int | None,
    backup: str | None,
    as_json: bool,
) -> int | None:
    agent = invocation.agent()
    given = sum(each is not None for each in (path, query, session, before))
    of_list = as_list + (undo is not None)
    if given + of_list != 1:
        reason = "say one thing, not several" if given + of_list else "say what to forget"
        raise ConfigError(reason, hint="give one of: PATH, --query, --session, --before, --list, --undo")
    if of_list:
        return _forgotten_list(agent, undo, as_json)
    if query is not None and not resolve.terms_of(query):
        raise ConfigError("--query has no word to look for", hint="memline forget --query 'door code'")
    found: dict[Path, set[bytes]] = {}
    if path is not None:
        targets = resolve.targets_of_path(agent, path)
    elif session is not None:
        targets = resolve.targets_of_session(agent, session)
    elif before is not None:
        today = day_of_time(SystemClock().now())
        if behind := catch_up(agent, choose(agent), clock=SystemClock()).files_behind:
            unread = f"{counted(behind, 'file')} may say another day than the index knows"
            raise ConfigError(unread, hint="memline index, then again")
        targets = resolve.targets_before(agent, parse_bound(before, today, option="--before"))
    else:
        catch_up(agent, choose(agent), clock=SystemClock())
        targets = resolve.targets_of_query(agent, query or "")
        found = holding(agent, resolve.terms_of(query or ""))
    if not targets and not found:
        return _nothing_to_forget(agent, path, query)
    # What only lists has nothing else to give.
    is_data = dry_run and not as_json
    for target in targets:
        text = " ".join(" ".join(target.shown(agent)).split())
        shown = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
        echo(f"  {target}  {shown}".rstrip(), err=not is_data)
    for file, held in found.items():
        echo(f"  {file}  {counted(len(held), 'line')}", err=not is_data)
    if dry_run:
        would = [*map(str, targets), *map(str, found)]
        print_result({"agentId": agent.agent, "wouldForget": would}, as_json, ())
        return None
    where = "Memline (the notes stay)" if keep_note else "the notes and Memline"
    if not confirm(CALLS["forget"].asks.format(where=where), is_answered=yes):
        return 1
    done = do_forget(
        agent,
        targets,
        keep_note=keep_note,
        backup=Path(backup) if backup else None,
        found=found,
        queue_address=invocation.settings.queue.address,
    )
    counts = ((done.lines, "line"), (done.chunks, "chunk"), (done.vectors, "vector"))
    lines = [
        f"{'Not all is forgotten' if done.at_provider else 'Forgotten'}:"
        f" {', '.join(counted(count, noun) for count, noun in counts)}.",
        *(f"  cleaned: {name}" for name in done.files),
        *(f"  holds a line of it, and is left to you: {name}" for name in done.out_of_reach),
        *(f"  the same text also stands in {name}" for name in done.also_in),
        *(f"  another agent or workspace still has it: {name}" for name in done.other_indexes),
        f"  out of reach: copies outside of {agent.home} (exports, backups, version control)",
    ]
    print_result(done.to_json(), as_json, lines)
    for each in done.at_provider:
        what = f"the file {each.file} of batch" if each.file else "the file of batch"
        why = f": {each.error}" if each.error else ""
        echo(f"Error: {what} {each.batch[:8]}, which may hold it, is still at {each.provider}{why}", err=True)
    if done.at_provider:
        advise("memline index")
    elif query is not None:
        _tell_unnamed(forget_batches.unnamed(agent))
    return 1 if done.at_provider else None


def _nothing_to_forget(agent: AgentSettings, path: str | None, query: str | None) -> int:
    """Say why there is nothing to forget, and what to do; returns the exit status."""
    batches = forget_batches.unnamed(agent) if query is not None else []
    why, what = resolve.why_nothing(agent, path) if path is not None else ("", "")
    echo(f"Nothing to forget{why and f': {why}'}.", err=True)
    if what:
        advise(what)
    if query is not None and not batches and resolve.has_former_texts(agent):
        echo("Of texts that are in no note any more the index has hashes alone.", err=True)
    if query is not None:
        echo(f"No {resolve.MAX_TOGETHER} lines in a row hold all these words.", err=True)
        if not batches:
            advise("memline search QUERY, then memline forget PATH#L5   (the lines to forget)")
        _tell_unnamed(batches)
    return 1


def _tell_unnamed(batches: Sequence[LeftBehind]) -> None:
    """Name the batches in which the words of a query may be, and none can tell."""
    for each in batches:
        what = f"the file {each.file}" if each.file else "the file"
        has = "has texts that are in no note any more, of which only hashes are known here"
        echo(f"Batch {each.batch[:8]}: {what} at {each.provider} {has}; it may hold these words.", err=True)
    if batches:
        advise(f"memline batch cancel {batches[0].batch[:8]}, then: memline index")
