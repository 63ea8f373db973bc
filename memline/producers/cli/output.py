"""Print what commands answer: text for a reader and its terminal, tables, findings, JSON.

What a stream cannot show is escaped, and what a terminal obeys is written out.
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click

from memline.shared.visible_text import in_json, visible

#: Word and colour of a finding's level.
_MARKS = {
    "ok": ("ok", "green"),
    "warning": ("warn", "yellow"),
    "problem": ("FAIL", "red"),
    "note": ("note", "cyan"),
}


def put(text: str, *, err: bool = False, end: str = "\n") -> None:
    """Print a line as it is, at once; what the encoding of the stream lacks is escaped.

    A standard error that cannot be written (a full disk, a pipe that was closed) ends no command.
    """
    stream = sys.stderr if err else sys.stdout
    try:
        try:
            click.echo(text + end, nl=False, err=err)
        except UnicodeEncodeError:
            escaped = text.encode(stream.encoding, "backslashreplace").decode(stream.encoding)
            click.echo(escaped + end, nl=False, err=err)
    except OSError:
        if not err:
            raise
        # What is still buffered goes nowhere, or each later flush would fail with it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def echo(text: str, *, err: bool = False) -> None:
    """Print a line for a reader, what a terminal obeys or a reader cannot see written out."""
    put(visible(text), err=err)


def note(text: str) -> None:
    """Print a line for a reader on standard error, beside a result."""
    echo(text, err=True)


def echo_file(text: str) -> None:
    """Print text of a file: its bytes into a pipe or a file, as `echo` does on a terminal."""
    put(visible(text) if sys.stdout.isatty() else text)


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Print a value as JSON; characters that a terminal cannot show, or obeys, are escaped in it."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(value, indent=indent)
    put(in_json(text))


def print_result(value: Any, as_json: bool, lines: Iterable[str]) -> None:
    """Print a command's result: the value as JSON, or its lines for a reader."""
    if as_json:
        print_json(value)
        return
    for line in lines:
        echo(line)


def print_findings(
    findings: Iterable[dict[str, Any]], *, names_agents: bool = False, indent: str = ""
) -> None:
    """Print findings, given as JSON: a mark and the words, below them what to do."""
    for each in findings:
        word, colour = _MARKS[each["level"]]
        agent = f"agent {each['agent']}: " if names_agents and each["agent"] else ""
        put(f"{indent}{click.style(f'{word:<5}', fg=colour)}{visible(agent + each['what'])}")
        if each["action"]:
            echo(f"{indent}     try: {each['action']}")


def width() -> int:
    """Return the columns of the terminal, or of `COLUMNS`; 80 for a pipe or a file, which have none."""
    import shutil  # 4 ms, which JSON does not pay

    return max(20, shutil.get_terminal_size((80, 24)).columns)


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table."""
    cells = [names, *([visible(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(map(str.ljust, row, widths)).rstrip()
