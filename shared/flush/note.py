"""Writing a flush down: at the end of today's daily note, and nothing twice."""

from __future__ import annotations

import os
import re
from pathlib import Path

from shared.sources.append import Appended, append

_ITEM = re.compile(r" ?([-*+]|\d+[.)])\s")
_FENCE = re.compile(r"\s*(```+|~~~+)")


def why_not_writable(workspace: Path, relative: str) -> str:
    """Why nothing can be added to a note, as far as it can be told without writing; empty when it can."""
    if not workspace.is_dir():
        return f"the workspace {workspace} does not exist"
    path = workspace
    for part in relative.split("/"):
        if not os.path.lexists(path / part):
            break
        path /= part
        if path.is_symlink():
            return f"{path} is a symbolic link"
    if path.name == Path(relative).name and not path.is_file():
        return f"{path} is no regular file"
    if not os.access(path, os.W_OK):
        return f"{path} is not writable"
    return ""


def write(workspace: Path, relative: str, entry: str) -> Appended:
    """Add an entry to a note, without the items that stand there already. Raises NotAppended."""
    return append(str(workspace), relative, lambda before: _new_lines(before, entry))


def _new_lines(before: str, entry: str) -> str:
    known = {_same(block) for block in _blocks(before)}
    kept: list[str] = []
    has_news = False
    for block in _blocks(entry):
        if _is_fact(block):
            if _same(block) in known:
                continue
            has_news = True
        kept += block
    if not has_news:
        return ""
    text = "\n".join(line.rstrip() for line in kept).strip("\n")
    # Apart from what stood there: a list in Markdown would go on otherwise.
    return f"\n{text}" if before.strip() and not before.endswith("\n\n") else text


def _blocks(text: str) -> list[list[str]]:
    """Items with what belongs to them, paragraphs, code, headings and blank lines, each as its lines.

    A line below an item says something about the item, so alone it is neither known nor new. Code that is
    not ended is ended, or whatever is added later would be code.
    """
    blocks: list[list[str]] = []
    fence = ""
    is_new = True
    for line in text.splitlines():
        mark = _FENCE.match(line)
        is_apart = not line.strip() or line.startswith("#")
        if fence:
            blocks[-1].append(line)
            if mark and mark[1].startswith(fence) and line.strip() == mark[1]:
                fence = ""
            continue
        if is_new or is_apart or _ITEM.match(line) or (mark and not line[0].isspace()):
            blocks.append([line])
        else:
            blocks[-1].append(line)
        is_new = is_apart
        fence = mark[1] if mark else ""
    if fence:
        blocks[-1].append(fence)
    return blocks


def _is_fact(block: list[str]) -> bool:
    """Whether a block says anything: a heading is no fact, it may stand over new items again."""
    return not block[0].startswith("#") and any(char.isalnum() for line in block for char in line)


def _same(block: list[str]) -> str:
    """What two blocks have in common that say the same with other spacing or list marks."""
    lines = (" ".join(line.strip().lstrip("-*+").split()) for line in block)
    return "\n".join(lines).casefold()
