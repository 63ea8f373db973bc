"""`memline forget`: take text out of notes, index, cache, batches and the home, and keep it out."""

from __future__ import annotations

from pathlib import Path

import click

from memline.producers.cli.options import Invocation, command, confirm, echo, print_result
from memline.shared.errors import ConfigError


@command(
    "memline forget 'memory/2026-02-10.md#L5-L7'",
    "memline forget memory/old.md --keep-note --yes",
    "memline forget --query 'door code' --dry-run",
    "memline forget --before 2025-01-01 --backup ~/attic",
    json=True,
)
@click.argument("path", required=False)
@click.option("--query", help="Lines that a search for this finds by its words.")
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
    from memline.producers.moving import forget as forgetting

    agent = invocation.agent()
    if sum(each is not None for each in (path, query, session, before)) != 1:
        raise ConfigError("say what to forget", hint="one of: PATH, --query, --session, --before")
    if path is not None:
        targets = forgetting.targets_of_path(agent, path)
    elif session is not None:
        targets = forgetting.targets_of_session(agent, session)
    elif before is not None:
        from datetime import UTC, datetime

        from memline.shared.search.dates import parse_bound

        today = datetime.now(UTC).date()
        targets = forgetting.targets_before(agent, parse_bound(before, today, option="--before"))
    else:
        from memline.producers.memory import Memory

        with Memory.of(invocation.settings, agent) as memory:
            targets = forgetting.targets_of_query(memory.search(query or "").hits)
    if not targets:
        echo("Nothing to forget.", err=True)
        return 1
    for target in targets:
        echo(f"  {target}", err=True)
    if dry_run:
        print_result({"agentId": agent.agent, "wouldForget": [str(each) for each in targets]}, as_json, ())
        return None
    where = "Memline (the notes stay)" if keep_note else "the notes and Memline"
    if not confirm(f"Forget this in {where} for good?", is_answered=yes):
        return 1
    done = forgetting.forget(
        agent, targets, keep_note=keep_note, backup=backup, queue_address=invocation.settings.queue.address
    )
    lines = [
        f"Forgotten: {done.lines} lines, {done.chunks} chunks, {done.vectors} vectors.",
        *(f"  cleaned: {name}" for name in done.files),
        *(f"  holds a line of it, and is left to you: {name}" for name in done.out_of_reach),
        *(f"  the same text also stands in {name}" for name in done.also_in),
        f"  out of reach: copies outside of {agent.home} (exports, backups, version control)",
    ]
    print_result(done.to_json(), as_json, lines)
    return None
