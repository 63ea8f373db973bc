"""Writing a flush down: at the end of today's daily note, and nothing twice."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from shared.sources.append import Appended, append


def daily_note(now: datetime) -> str:
    """The path of a day's note in the workspace."""
    return f"memory/{now:%Y-%m-%d}.md"


def why_not_writable(workspace: Path, relative: str) -> str:
    """Why nothing can be added to a note, as far as it can be told without writing; empty when it can."""
    path = workspace / relative
    while not os.path.lexists(path) and path != workspace:
        path = path.parent
    if not workspace.is_dir():
        return f"the workspace {workspace} does not exist"
    if not os.access(path, os.W_OK):
        return f"{path} is not writable"
    return ""


def write(workspace: Path, relative: str, entry: str) -> Appended:
    """Add an entry to a note, without the lines that stand there already. Raises NotAppended."""
    return append(str(workspace), relative, lambda before: _new_lines(before, entry))


def _new_lines(before: str, entry: str) -> str:
    known = {_same(line) for line in before.splitlines()} - {""}
    kept: list[str] = []
    for line in entry.split("\n"):
        same = _same(line)
        # A heading is no fact: it may stand over new lines again.
        if same and not line.lstrip().startswith("#"):
            if same in known:
                continue
            known.add(same)
        kept.append(line.rstrip())
    text = "\n".join(kept).strip("\n")
    if all(not line.strip() or line.lstrip().startswith("#") for line in kept):
        return ""
    # Apart from what stood there: a list in Markdown would go on otherwise.
    return f"\n{text}" if before.strip() and not before.endswith("\n\n") else text


def _same(line: str) -> str:
    """What two lines have in common that say the same with other spacing or list marks."""
    return " ".join(line.strip().lstrip("-*+").split()).casefold()
