"""`memline forget`: memory that goes."""

import click

from memline.producers.actions import forget as forgetting
from memline.producers.ask import catch_up
from memline.producers.cli.invocation import AS_JSON, Invocation, command, confirm
from memline.producers.cli.output import echo, note, print_result
from memline.shared.clock import SystemClock
from memline.shared.embedders.choice import choose
from memline.shared.errors import ConfigError
from memline.shared.sources.dates import day_of_time, parse_bound
from memline.shared.words import counted

#: Characters of a line that are shown before the question whether to forget it.
MAX_SHOWN = 80


@command(
    "memline forget 'memory/2026-02-10.md#L5-L7'",
    "memline forget --query 'door code' --dry-run",
    "memline forget --session agent:main:dm:anna",
    "memline forget --before 2025-01-01 --yes",
)
@click.argument("path", required=False)
@click.option("--query", help="Each line with all these words, in upper or lower case.")
@click.option("--session", metavar="KEY", help="A session, by its key or the name of its transcript.")
@click.option("--before", metavar="DATE", help="Dated notes and sessions before this day (2025-01-01, 90d).")
@click.option("--dry-run", is_flag=True, help="Only list what would be forgotten.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@AS_JSON
def forget(
    invocation: Invocation,
    path: str | None,
    query: str | None,
    session: str | None,
    before: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int | None:
    """Forget lines of notes, or sessions, for good.

    It lists what it will touch and asks. PATH is a path or citation as `memline search` gives it, of a
    session its path alone. The lines go out of the note, the index, its vectors and its free pages. A session
    goes as a whole: it stays where its program has it, and is never read again. Backups, logs and open
    batches that have the text are named, and left to you.
    """
    agent = invocation.agent()
    if (given := sum(each is not None for each in (path, query, session, before))) != 1:
        reason = "say one thing, not several" if given else "say what to forget"
        raise ConfigError(reason, hint="give one of: PATH, --query, --session, --before")
    if path is not None:
        targets = forgetting.targets_of_path(agent, path)
    elif session is not None:
        targets = forgetting.targets_of_session(agent, session)
    else:
        # Sessions, and days in front matter, are known by the index.
        catch_up(agent, choose(agent), clock=SystemClock())
        if before is not None:
            today = day_of_time(SystemClock().now())
            targets = forgetting.targets_before(agent, parse_bound(before, today, option="--before"))
        else:
            targets = forgetting.targets_of_query(agent, query or "")
    if not targets:
        note("Nothing to forget.")
        invocation.advise("memline search QUERY, then memline forget PATH#L5   (the lines to forget)")
        return 1
    for target in targets:
        text = " ".join(" ".join(target.lines[:3]).split())
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
    lines = [
        f"Forgotten: {counted(done.lines, 'line')}, {counted(done.vectors, 'vector')}.",
        *(f"  holds a line of it, and is left to you: {name}" for name in done.out_of_reach),
        *(f"  a batch has it: {name}" for name in done.at_provider),
        f"  out of reach: copies outside of {agent.home} (backups, version control)",
    ]
    print_result(done.to_json(), as_json, lines)
    return None
