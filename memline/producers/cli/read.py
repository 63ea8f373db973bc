"""`memline get` and `memline lint`: lines of a note, or of what was said, and what is wrong with links."""

import click

from memline.producers.cli.invocation import AS_JSON, Invocation, command, current_folder
from memline.producers.cli.output import echo_file, note, print_json, print_result
from memline.producers.memory import Memory
from memline.shared.errors import PathNotAllowed
from memline.shared.sources.excerpt import READABLE
from memline.shared.visible_text import in_name
from memline.shared.words import counted

#: More than any note has.
MAX_FILE_CHARS = 100_000_000


@command(
    "memline get MEMORY.md",
    "memline get memory/2026-02-10.md --from 40 --lines 20",
    "memline get 'Deploy plan'",
    "memline get memory/2026-02-10.md --json",
    "memline get 'sessions/4f9c2e1a.jsonl#L4-L9' --around 3",
)
@click.argument("path")
@click.option("--from", "first", type=click.IntRange(0), help="First line, 1-based.  [default: 1]")
@click.option(
    "--lines", type=click.IntRange(1), help="How many lines.  [default: 120, or those of the citation]"
)
@click.option(
    "--around",
    type=click.IntRange(0, 200),
    help="Lines of a note, or turns of a past conversation, to add before and after.  [default: 0]",
)
@AS_JSON
def get(
    invocation: Invocation, path: str, first: int | None, lines: int | None, around: int | None, as_json: bool
) -> int:
    """Print a memory file, some of its lines, or what was said in a past conversation.

    PATH is a path as `memline search` cites it, `path#L5-L7` or `path:5-7`. Or it is the title, an alias or
    the file name of a note, in any case, with .md or without. What a note calls itself comes before what its
    file is called, and that before its first heading; where several notes have the name, they are listed.

    With --json there are the notes that the note links to, and those that link to it.
    """
    settings = invocation.agent()
    memory = Memory.of(invocation.settings, settings)
    excerpt = memory.get(path, first=first, lines=lines, around=around or 0)
    if as_json:
        print_json(excerpt.to_json())
        return 1 if excerpt.status == "not_found" else 0
    invocation.name_workspace(settings)
    if excerpt.status == "not_found":
        raise PathNotAllowed(f"{path} does not exist", hint=READABLE)
    if not excerpt.lines and excerpt.first > 1:
        whole = memory.get(excerpt.path, first=1, lines=excerpt.first, max_chars=MAX_FILE_CHARS)
        note(f"Error: {excerpt.path} has {counted(whole.lines, 'line')}, and no line {excerpt.first:,}")
        return 1
    echo_file(excerpt.text)
    if excerpt.cut:
        more = f": memline get '{excerpt.rest}'" if excerpt.rest else ""
        note(f"[line {excerpt.first:,} is longer, and cut here{more}]")
    if excerpt.next_from:
        note(f"[more: --from {excerpt.next_from}]")
    return 0


@command("memline lint", "memline lint --json", "vim -q <(memline lint)")
@AS_JSON
def lint(invocation: Invocation, as_json: bool) -> int:
    """Name the dead links of the notes as path:line, and the orphans: notes that no link joins with another.

    `[[name]]` and Markdown links are read, but for those in code. A note with a day in its name or front
    matter is not an orphan, nor is MEMORY.md: they are found by their day, and read when a session starts.
    Exit status 1 when there is something to mend.
    """
    settings = invocation.agent()
    check = Memory.of(invocation.settings, settings).lint()
    if not as_json:
        invocation.name_workspace(settings)
    # As an editor opens it from the current folder.
    above = "" if current_folder() == settings.workspace.resolve() else f"{settings.workspace}/"
    lines = [f"{above}{each.path}:{each.line}: dead link: {each.target}" for each in check.dead_links]
    orphan = "orphan: no link joins it with another note"
    lines += [f"{above}{each.path}:{each.line}: {orphan}" for each in check.orphans]
    # One line each, whatever is in the name of a file.
    print_result(check.to_json(), as_json, map(in_name, lines))
    return 1 if lines else 0
