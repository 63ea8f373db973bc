"""Show the hits of a search: a few lines of each for a reader, or a line each for another program."""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from memline.producers.cli import terminal
from memline.producers.cli.output import json_line
from memline.shared.search.results import pattern_of
from memline.shared.sources.markdown import without_anchor
from memline.shared.visible_text import in_name, one_line, visible
from memline.shared.words import counted

#: Rows of a snippet that are shown; with citation and heading a hit has six lines at most.
MOST_ROWS = 4

_INDENT = "    "
_HEADING = re.compile(r"\s*#{1,6}\s+(.*?)\s*#*\s*")

_FRONT_MATTER = re.compile(r"\A---\n.*?\n---(?:\n|\Z)", re.DOTALL)


def rows_of(hit: dict[str, Any], *, with_vectors: bool) -> Iterator[str]:
    """Yield the lines of a hit: citation and scores, headings, and the best rows of its snippet."""
    width = terminal.width()
    citation = one_line(hit.get("citation", hit["path"]))
    scores = f"(vector {hit['vectorScore']:.2f}, " * with_vectors or "("
    scores += f"text {hit['textScore']:.2f})"
    head = f"{hit['score']:.3f} {citation}"
    shown = terminal.style(citation, fg="cyan")
    line = f"{terminal.style(head.partition(' ')[0], bold=True)} {shown}"
    fits = terminal.columns(head) + 2 + len(scores) <= width
    yield f"{line}  {scores}" if fits else line
    room = width - len(_INDENT)
    heading = visible(hit.get("heading", ""))
    others = len(hit.get("alsoIn", ()))
    copies = f" (and in {counted(others, 'other file')})" if others else ""
    if above := (terminal.shorten(heading, room - len(copies)) + copies).strip():
        yield _INDENT + terminal.style(above, dim=True)
    pattern = pattern_of(map(visible, hit.get("matched", ())))
    lines = _body(hit["snippet"], heading)
    rows = [row for line in lines for row in terminal.wrapped(visible(line), room)]
    for row in _best(rows, pattern):
        yield _INDENT + _marked(row, pattern)


def explained(hit: dict[str, Any]) -> Iterator[str]:
    """Yield how the score of a hit came about."""
    explanation = hit["explain"].items()
    parts = {key: value for key, value in explanation if value is not False and value not in (None, "", [])}
    shown = {key: round(each, 4) if isinstance(each, float) else each for key, each in parts.items()}
    text = ", ".join(f"{key}={each}" for key, each in shown.items())
    room = terminal.width() - len(_INDENT)
    yield from (f"{_INDENT}{row}" for row in terminal.wrapped(visible(text), room))


def for_programs(hits: Sequence[dict[str, Any]], form: str, workspace: Path) -> Iterator[str]:
    """Yield the hits in a form for other programs: jsonl, files or vimgrep.

    Paths are absolute where the file is there, so that they work in every folder; a file that is gone is not
    listed.
    """
    if form == "jsonl":
        yield from map(json_line, hits)
        return
    shown = one_line if sys.stdout.isatty() else in_name
    names = {hit["path"]: _absolute(hit["path"], workspace) for hit in hits}
    if form == "files":
        there = (names[hit["path"]] for hit in hits)
        yield from dict.fromkeys(map(shown, there))
        return
    for hit in hits:
        line, column, text = _place(hit, Path(names[hit["path"]]))
        yield shown(f"{names[hit['path']]}:{line}:{column}:{text}")


def _absolute(path: str, workspace: Path) -> str:
    file = workspace / path
    return os.path.normpath(file) if file.is_file() else path


def _place(hit: dict[str, Any], file: Path) -> tuple[int, int, str]:
    """Return line, column and text of the line that answers best; the first line when it is not found."""
    pattern = pattern_of(map(visible, hit.get("matched", ())))
    lines = _body(hit["snippet"], "") or [""]
    best = max(lines, key=lambda line: len(_words_in(line, pattern)))
    number = hit["startLine"]
    # A transcript's lines are records, a file may be gone: then the citation has to do.
    with suppress(OSError, ValueError):
        # As notes are read and editors count: a form feed ends no line, whatever `splitlines` takes it for.
        in_file = file.read_text("utf-8", errors="replace").split("\n")[number - 1 : hit["endLine"]]
        number += next((at for at, line in enumerate(in_file) if line.strip() == best.strip()), 0)
    found = pattern.search(best) if pattern else None
    return number, len(best[: found.start()].encode()) + 1 if found else 1, best.strip()


def _body(snippet: str, heading: str) -> list[str]:
    """Return the lines with text; without front matter and headings that are shown, unless that is all."""
    lines = [line for line in _FRONT_MATTER.sub("", snippet).split("\n") if line.strip()]
    trail = set(heading.split(" > "))
    rest = [
        line
        for line in lines
        if not ((match := _HEADING.fullmatch(line)) and without_anchor(match[1]) in trail)
    ]
    return rest or lines or snippet.split("\n")


def _best(rows: Sequence[str], pattern: re.Pattern[str] | None) -> Sequence[str]:
    """Choose the rows one after another with most of the matched words, the first of them."""
    found = [_words_in(row, pattern) for row in rows]

    def rank(start: int) -> tuple[int, int, int]:
        inside = found[start : start + MOST_ROWS]
        return len(set().union(*inside)), sum(map(len, inside)), -start

    start = max(range(max(1, len(rows) - MOST_ROWS + 1)), key=rank)
    return rows[start : start + MOST_ROWS]


def _words_in(row: str, pattern: re.Pattern[str] | None) -> set[str]:
    return {match[0].lower() for match in pattern.finditer(row)} if pattern else set()


def _marked(row: str, pattern: re.Pattern[str] | None) -> str:
    return (
        pattern.sub(lambda match: terminal.style(match[0], fg="yellow", bold=True), row) if pattern else row
    )
