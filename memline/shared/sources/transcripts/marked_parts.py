"""Take out of a message what a program wrote between marks, and leave what the message says about marks."""

from __future__ import annotations

import re

from memline.shared.patterns import late


class MarkedParts:
    """Parts between `<name>` and `</name>`. Marks in a code span are words, and so is one that is not closed.

    A message that begins with an open mark was interrupted: nothing of it is left.
    """

    def __init__(self, names: str) -> None:
        """`names`: a regular expression for the names of the marks."""
        self._begin = late(rf"(?<!`)<({names})>", re.IGNORECASE)
        self._end = late(rf"(?<!`)</({names})>", re.IGNORECASE)

    def taken_out(self, text: str) -> str:
        """Return the message without these parts."""
        # Where each is closed last: looking on for an end that is not there would be quadratic.
        last = {end[1].lower(): end.start() for end in self._end.finditer(text)}
        kept, start, is_first = list[str](), 0, True
        for begin in self._begin.finditer(text):
            if begin.start() < start:
                continue
            name = begin[1].lower()
            is_first = is_first and not text[start : begin.start()].strip()
            if last.get(name, -1) >= begin.end():
                kept.append(text[start : begin.start()])
                ends = self._end.finditer(text, begin.end())
                start = next(end.end() for end in ends if end[1].lower() == name)
            elif is_first:
                return ""
        return "".join(kept) + text[start:]
