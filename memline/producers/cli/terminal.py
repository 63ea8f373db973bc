"""What the terminal can do, and text made to fit it: colours, widths, wrapped lines."""

import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import zip_longest

from memline.shared.config import environment
from memline.shared.visible_text import visible

#: Columns of a pipe or a file, which have none.
PIPE_WIDTH = 80

#: The narrowest that text is wrapped to.
_MIN_WIDTH = 20

#: Colours of a text, as terminals know them.
_COLOURS = {"red": 31, "green": 32, "yellow": 33, "cyan": 36}

#: The narrowest that a column of a table is folded to.
_MIN_COLUMN = 8

#: Deepest indentation of a line that is kept, in columns.
_MAX_INDENT = 8


def has_colour() -> bool:
    """Tell whether standard output shows colours: a terminal does, unless the environment says otherwise."""
    wanted = environment.colour(os.environ)
    return sys.stdout.isatty() if wanted is None else wanted


def width() -> int:
    """Return the columns of the terminal, or of `COLUMNS`."""
    return max(_MIN_WIDTH, shutil.get_terminal_size((PIPE_WIDTH, 24)).columns)


def below(head: str, text: str, *, is_command: bool = False) -> Iterator[str]:
    r"""Yield `head` and a text that is wrapped to the terminal below where it begins.

    A command can be copied all the same: `\` ends its rows. For a pipe it is one row, which can be searched.
    """
    room, indent = width() - columns(head), " " * columns(head)
    if not sys.stdout.isatty() or columns(text) <= room:
        yield head + text
        return
    is_whole = all(columns(word) <= room - 2 for word in text.split())
    if is_command and ("'" in text or not is_whole):
        # A row would end in the middle of a word.
        yield head + text
        return
    *rows, last = wrapped(text, room - 2 if is_command else room)
    for row in rows:
        yield f"{head}{row} \\" if is_command else head + row
        head = indent
    yield head + last


def style(text: str, *, fg: str = "", bold: bool = False, dim: bool = False) -> str:
    """Colour a text where colours are shown."""
    if not has_colour():
        return text
    codes = [_COLOURS[name] for name in (fg,) if name] + [1] * bold + [2] * dim
    return "".join(f"\x1b[{code}m" for code in codes) + f"{text}\x1b[0m"


def columns(text: str) -> int:
    """Count the columns that a text takes: two for a wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(each) in "WF" for each in text)
    return len(text) + wide - sum(unicodedata.category(each) in ("Mn", "Me", "Cf") for each in text)


def shorten(text: str, room: int) -> str:
    """Cut a text at its beginning, so that its end fits into `room` columns."""
    if columns(text) <= room:
        return text
    while text and columns(text) > room - 1:
        text = text[1:]
    return f"…{text.lstrip()}"


def wrapped(line: str, room: int) -> Iterator[str]:
    """Wrap a line at words into rows of at most `room` columns, indented as it is; a longer word is cut."""
    line = line.expandtabs(4).rstrip()
    row = indent = " " * min(len(line) - len(line.lstrip()), _MAX_INDENT, room // 2)
    for word in re.findall(r"\S+\s*", line):
        if row != indent and columns(row + word.rstrip()) > room:
            yield row.rstrip()
            row = indent
        while columns(row + word.rstrip()) > room:
            fit = next(
                end for end in range(len(word), 0, -1) if end == 1 or columns(row + word[:end]) <= room
            )
            yield row + word[:fit]
            row, word = indent, word[fit:]
        row += word
    if row.strip():
        yield row.rstrip()


def table(
    names: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    folded: Collection[str] = (),
    right: Collection[str] = (),
) -> Iterator[str]:
    """Yield the lines of a table. Where a terminal is narrow the columns `folded` are wrapped.

    An id or a count is never cut, and for a pipe no row is folded. The columns `right` end at one place.
    """
    cells = [[*names], *([visible(cell) for cell in row] for row in rows)]
    widths = [max(map(columns, column)) for column in zip(*cells, strict=True)]
    wide = [at for at, name in enumerate(names) if name in folded]
    if sys.stdout.isatty():
        while sum(widths) + 2 * len(widths) > width() and wide:
            widest = max(wide, key=widths.__getitem__)
            if widths[widest] <= _MIN_COLUMN:
                break
            widths[widest] -= 1
    for row in cells:
        parts = (
            wrapped(cell, room) if columns(cell) > room else [cell]
            for cell, room in zip(row, widths, strict=True)
        )
        for line in zip_longest(*parts, fillvalue=""):
            padded = []
            for name, cell, room in zip(names, line, widths, strict=True):
                pad = " " * (room - columns(cell))
                padded.append(pad + cell if name in right else cell + pad)
            yield "  ".join(padded).rstrip()
