"""Append the result of a flush to today's daily note, and nothing twice."""

from __future__ import annotations

import os
import re
from pathlib import Path

from memline.shared.sources.append import AppendResult, append

_ITEM = re.compile(r" ?([-*+]|\d+[.)])\s")
_FENCE = re.compile(r"\s*(```+|~~~+)")


def why_not_writable(workspace: Path, relative: str) -> str:
    """Say why a note cannot be appended to, as far as can be known without writing; empty when it can."""
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
        return f"{path} is not a regular file"
    if not os.access(path, os.W_OK):
        return f"{path} is not writable"
    return ""


def write(workspace: Path, relative: str, entry: str) -> AppendResult:
    """Append an entry to a note, without the items that it already has. Raises AppendRefused."""
    return append(str(workspace), relative, lambda before: _new_lines(before, entry))


def _new_lines(before: str, entry: str) -> str:
    known = {_normalized(block) for block in _blocks(before)}
    kept: list[str] = []
    has_news = False
    for block in _blocks(entry):
        # A heading holds no fact: it may repeat above new items.
        if not block[0].startswith("#") and any(char.isalnum() for line in block for char in line):
            if _normalized(block) in known:
                continue
            has_news = True
        kept += block
    if not has_news:
        return ""
    text = "\n".join(line.rstrip() for line in kept).strip("\n")
    # A blank line before it: a list in Markdown would continue otherwise.
    return f"\n{text}" if before.strip() and not before.endswith("\n\n") else text


def _blocks(text: str) -> list[list[str]]:
    """Split into items with what belongs to them, paragraphs, code, headings and blank lines.

    A line below an item says something about the item, so alone it is neither known nor new. An open code
    block is closed, or what is added later would be code.
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


def _normalized(block: list[str]) -> str:
    """Drop spacing, list marks and case, in which equal blocks may differ."""
    lines = (" ".join(line.strip().lstrip("-*+").split()) for line in block)
    return "\n".join(lines).casefold()
