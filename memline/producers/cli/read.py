"""`memline get`: lines of a note, or of what was said."""

from __future__ import annotations

from memline.producers.cli.invocation import Invocation, echo, echo_file, print_json
from memline.producers.memory import Memory


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
    if excerpt.status == "not_found":
        echo(f"{excerpt.path} does not exist.", err=True)
    else:
        echo_file(excerpt.text)
        if excerpt.next_from:
            echo(f"[more: --from {excerpt.next_from}]", err=True)
    return 1 if excerpt.status == "not_found" else 0
