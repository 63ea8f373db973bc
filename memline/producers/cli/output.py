"""Print text and JSON: what a stream cannot show is escaped, and what a terminal obeys is written out."""

import codecs
import json
import os
import sys
from collections.abc import Iterable
from typing import Any

from memline.shared.visible_text import in_json, visible


def put(text: str, *, err: bool = False, end: str = "\n") -> None:
    """Print a line as it is, at once; what the encoding of the stream lacks is escaped.

    A standard error that cannot be written (a full disk, a pipe that was closed) ends no command.
    """
    stream = sys.stderr if err else sys.stdout
    try:
        try:
            stream.write(text + end)
        except UnicodeEncodeError:
            # As click does it: ASCII says that no locale is set up, and then readers are on UTF-8.
            encoding = "utf-8" if codecs.lookup(stream.encoding).name == "ascii" else stream.encoding
            stream.buffer.write((text + end).encode(encoding, "backslashreplace"))
        stream.flush()
    except OSError:
        if not err:
            raise
        # What is still buffered goes nowhere, or each later flush would fail with it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def echo(text: str, *, err: bool = False) -> None:
    """Print a line for a reader, what a terminal obeys or a reader cannot see written out."""
    put(visible(text), err=err)


def echo_file(text: str) -> None:
    """Print text of a file: its bytes into a pipe or a file, as `echo` does on a terminal."""
    put(visible(text) if sys.stdout.isatty() else text)


def print_json(value: Any) -> None:
    """Print a value as JSON; characters that a terminal cannot show, or obeys, are escaped in it."""
    put(json_line(value, indent=2))


def json_line(value: Any, *, indent: int | None = None) -> str:
    """Write a value as JSON, without `indent` on one line; see `print_json`."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(value, indent=indent)
    return in_json(text)


def print_result(value: Any, as_json: bool, lines: Iterable[str]) -> None:
    """Print a command's result: the value as JSON, or its lines for a reader."""
    if as_json:
        print_json(value)
        return
    for line in lines:
        echo(line)
