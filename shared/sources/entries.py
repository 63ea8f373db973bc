"""An entry of a note, made from text that a model wrote: one item of a list, and no structure of its own.

Whatever the text holds, it cannot become a heading, end a code block, or begin another entry; only an
explicit heading makes one.
"""

from __future__ import annotations

import re
from datetime import datetime

#: Everything that some program takes for the end of a line.
_LINE_ENDS = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")

#: Control characters, lone surrogates, and marks that turn the direction of text around.
_INVISIBLE = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\ufeff]")

#: What begins a block in Markdown: headings and their underlines, fences, rules.
_STRUCTURE = re.compile(r"(#{1,6}(\s|$)|=+\s*$|-+\s*$|(\*\s*){3,}$|(_\s*){3,}$|```|~~~|<!--)")

_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*")
_FENCE = re.compile(r" {0,3}(```|~~~)")


def visible(text: str) -> str:
    """`text` without what cannot be seen or written down, its lines ended by "\\n"."""
    return _INVISIBLE.sub("", _LINE_ENDS.sub("\n", text))


def is_empty(text: str) -> bool:
    """Whether nothing is said: no character but blanks, marks of Markdown and what cannot be seen."""
    return not _INVISIBLE.sub("", text).strip("#=-*_`~\\ \t\r\n\v\f\x85\u2028\u2029")


def daily_entry(text: str, moment: datetime) -> str:
    """An entry of a daily log: `- 14:32 text`."""
    return _item(text, f"{moment:%H:%M} ")


def long_term_entry(text: str, moment: datetime) -> str:
    """An entry of the long-term note: `- text (2026-02-10)`."""
    return f"{_item(text, '')} ({moment.date().isoformat()})"


def heading_line(heading: str) -> str:
    """The heading as one line of Markdown; empty when nothing is left of it."""
    words = " ".join(_LINE_ENDS.sub(" ", _INVISIBLE.sub("", heading)).split()).strip("# ")
    return f"## {words}" if words else ""


def last_heading(text: str) -> str:
    """The words of the last heading of a note, whatever its level; empty when there is none."""
    found, fence = "", ""
    for line in text.split("\n"):
        if mark := _FENCE.match(line):
            fence = "" if fence == mark[1] else fence or mark[1]
        elif not fence and (match := _HEADING.fullmatch(line.rstrip("\r"))):
            found = match[1]
    return found


def _item(text: str, label: str) -> str:
    lines = [_harmless(line) for line in _LINE_ENDS.sub("\n", text).split("\n")]
    kept = [line for line in lines if line]
    # Lines that go on are indented, so that they belong to the item.
    return "\n  ".join(f"{'- ' + label if number == 0 else ''}{line}" for number, line in enumerate(kept))


def _harmless(line: str) -> str:
    shown = _INVISIBLE.sub("", line.replace("\t", " ")).strip()
    return f"\\{shown}" if _STRUCTURE.match(shown) else shown
