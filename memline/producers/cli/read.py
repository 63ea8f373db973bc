"""`memline get` and `memline lint`: lines of a note, or of what was said, and what is wrong with links."""

from __future__ import annotations

from memline.producers.calls.table import CALLS
from memline.producers.cli.invocation import (
    Invocation,
    current_folder,
    echo,
    echo_file,
    print_json,
    print_result,
)
from memline.producers.cli.table_commands import asks
from memline.producers.memory import Memory
from memline.shared.errors import PathNotAllowed
from memline.shared.index.ledger import GONE_HERE
from memline.shared.sources.excerpt import READABLE
from memline.shared.sync.vanished import KeptRoot
from memline.shared.visible_text import in_name


@asks(CALLS["get"])
def get(
    invocation: Invocation, path: str, first: int | None, lines: int | None, around: int | None, as_json: bool
) -> int:
    """Print lines of a note or of a past conversation."""
    settings = invocation.agent()
    memory = Memory.of(invocation.settings, settings)
    excerpt = memory.get(path, first=first, lines=lines, around=around or 0)
    if as_json:
        print_json(excerpt.to_json())
        return 1 if excerpt.status == "not_found" else 0
    invocation.name_workspace(settings)
    for each in excerpt.kept:
        echo(KeptRoot(**each).words(), err=True)
    if excerpt.status == "not_found":
        raise PathNotAllowed(f"{path} does not exist", hint=READABLE)
    echo_file(excerpt.text)
    if not excerpt.lines and excerpt.first > 1:
        echo(f"[it has no line {excerpt.first:,}]", err=True)
    if excerpt.cut:
        echo(f"[line {excerpt.first:,} is longer, and cut here]", err=True)
    if excerpt.gone:
        echo(f"[{GONE_HERE}]", err=True)
    if excerpt.next_from:
        echo(f"[more: --from {excerpt.next_from}]", err=True)
    return 0


@asks(CALLS["lint"])
def lint(invocation: Invocation, as_json: bool) -> int:
    """Name the dead links and the orphans of the notes."""
    settings = invocation.agent()
    found = Memory.of(invocation.settings, settings).lint()
    if not as_json:
        invocation.name_workspace(settings)
    # As an editor opens it from the current folder.
    above = "" if current_folder() == settings.workspace.resolve() else f"{settings.workspace}/"
    told = [f"{above}{each.path}:{each.line}: dead link: {each.target}" for each in found.dead_links]
    told += [
        f"{above}{each.path}:{each.line}: orphan: no link joins it with another note"
        for each in found.orphans
    ]
    # One line each, whatever is in the name of a file.
    print_result(found.to_json(), as_json, map(in_name, told))
    return 1 if told else 0
