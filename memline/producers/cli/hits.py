"""Show the hits of a search: the lines of each for a reader, or a line each for another program."""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from memline.shared.search.results import pattern_of
from memline.shared.visible_text import in_name, one_line, visible
from memline.shared.words import counted

_INDENT = "    "

Pattern = re.Pattern[str] | None


def rows_of(hit: dict[str, Any], *, with_vectors: bool) -> Iterator[str]:
    """Yield the lines of a hit: citation and scores, headings, and the lines that it cites."""
    score, citation = f"{hit['score']:.3f}", one_line(hit.get("citation", hit["path"]))
    parts = f"(vector {hit['vectorScore']:.2f}, " if with_vectors else "("
    parts += f"text {hit['textScore']:.2f})"
    yield f"{click.style(score, bold=True)} {click.style(citation, fg='cyan')}  {parts}"
    heading = hit.get("heading", "")
    others = f" (and in {counted(len(hit['alsoIn']), 'other file')})" if hit.get("alsoIn") else ""
    if heading or others:
        yield _INDENT + click.style(visible(f"{heading}{others}".strip()), dim=True)
    pattern, shown = _pattern(hit), heading.split(" > ")
    lines = [line for line in hit["snippet"].split("\n") if line.strip()]
    # Without headings that are shown, unless that is all.
    for line in [each for each in lines if each[0] != "#" or each.strip("# ") not in shown] or lines:
        text = visible(line.rstrip().expandtabs(4))
        yield _INDENT + (pattern.sub(_marked, text) if pattern else text)
    if "explain" in hit:
        yield _INDENT + visible(_explained(hit["explain"]))


def _explained(explanation: dict[str, Any]) -> str:
    """Say how a score came about."""
    parts = {key: round(each, 4) if isinstance(each, float) else each for key, each in explanation.items()}
    return ", ".join(f"{key}={each}" for key, each in parts.items() if each not in (None, False, "", []))


def for_programs(hits: Sequence[dict[str, Any]], form: str, workspace: Path) -> Iterator[str]:
    """Yield the hits in a form for other programs: files or vimgrep.

    Paths are absolute where the file is there, so that they work in every folder.
    """
    shown = one_line if sys.stdout.isatty() else in_name
    lines = [(_absolute(hit["path"], workspace), hit) for hit in hits]
    if form == "files":
        yield from dict.fromkeys(shown(name) for name, _ in lines)
        return
    for name, hit in lines:
        yield shown(f"{name}:{_place(hit)}")


def _absolute(path: str, workspace: Path) -> str:
    file = workspace / path
    return os.path.normpath(file) if file.is_file() else path


def _place(hit: dict[str, Any]) -> str:
    """Return line, column and text of the line of a snippet that answers best."""
    pattern, lines = _pattern(hit), hit["snippet"].split("\n")
    at = max(range(len(lines)), key=lambda at: len(_words_in(lines[at], pattern)))
    cited = re.search(r"#L(\d+)(?:-L\d+)?\Z", hit.get("citation", ""))
    first = int(cited[1]) if cited else hit["startLine"]
    word = pattern.search(lines[at]) if pattern else None
    column = len(lines[at][: word.start()].encode()) + 1 if word else 1
    return f"{first + at}:{column}:{lines[at].strip()}"


def _pattern(hit: dict[str, Any]) -> Pattern:
    return pattern_of(map(visible, hit.get("matched", ())))


def _words_in(row: str, pattern: Pattern) -> set[str]:
    return {match[0].lower() for match in pattern.finditer(row)} if pattern else set()


def _marked(match: re.Match[str]) -> str:
    return click.style(match[0], fg="yellow", bold=True)
