"""Find the outline of a Markdown text: its headings, blocks of code and front matter, by line."""

from __future__ import annotations

from collections.abc import Sequence

from memline.shared.patterns import late
from memline.shared.sources.properties import TITLES, from_yaml
from memline.shared.values import value

#: Longest title kept in a trail; a longer one is a paragraph that begins with "#".
_MAX_TITLE_CHARS = 160

_HEADING = late(r" {0,3}(#{1,6})(?:[ \t]+(.*?))??(?:[ \t]+#+)?[ \t]*")
_FENCE = late(r"[ \t]*(?:[-*+>][ \t]+)*(`{3,}(?=[^`]*$)|~{3,})")
_UNDERLINE = late(r" {0,3}(=+|-{2,})[ \t]*")
#: A line that an underline makes a heading: no block of another kind, and not indented as code.
_PARAGRAPH = late(r"(?! {4}|\t)\s*[^\s#>|`~*+=-]")
#: An anchor behind a title: `{ #id }`, `{: #id .class }`, and `{/* #id */}` of MDX.
_ANCHOR = late(r"\s*\{(?::?\s*[#.][^{}]*|/\*\s*#[^{}]*\*/)\}\s*\Z")
_FRONT_KEY = late(r"#|-{3}|[\w-][\w -]*:")
_BULLET = late(r"\s*(?:[-*+]|\d{1,9}[.)])(?:\s|$)")

#: Code within a line.
CODE_SPAN = late(r"(?<!`)(`++).*?(?<!`)\1(?!`)")

#: First characters of a line that can start or end a block; the others are passed without a closer look.
_MARKS = frozenset("#`~=->*+")


@value
class Heading:
    """A heading; `line` counts from 0 and is that of its text."""

    line: int
    #: The line of its underline; -1 for a heading of one line.
    last_line: int = -1
    #: 1 to 6; 0 is the title of the front matter.
    level: int
    title: str


@value
class Outline:
    """Where a text can be cut well and what its parts are called; lines count from 0."""

    headings: tuple[Heading, ...]
    #: First and last line of each fenced block, its fences included.
    fences: tuple[tuple[int, int], ...]


def outline(lines: list[str]) -> Outline:
    """Return the outline of the lines of a text; nothing in a fence or the front matter is a heading."""
    headings: list[Heading] = []
    fences: list[tuple[int, int]] = []
    body = front_matter_end(lines)
    if title := _front_title(lines[:body]):
        headings.append(Heading(line=0, level=0, title=title))
    fence, opened = "", 0
    for number, line in enumerate(lines):
        mark = line.lstrip()[:1]
        # Almost every line ends here: this test is most of what an outline costs.
        if mark not in _MARKS or number < body:
            continue
        if mark in "`~" or "```" in line or "~~~" in line:
            if fence:
                closing = line.strip()
                if len(closing) >= len(fence) and not closing.strip(fence[0]):
                    fences.append((opened, number))
                    fence = ""
            elif match := _FENCE.match(line):
                fence, opened = match[1], number
        elif fence:
            continue
        elif mark == "#":
            if match := _HEADING.fullmatch(line):
                headings.append(Heading(line=number, level=len(match[1]), title=_title(match[2] or "")))
        elif number > body and (match := _UNDERLINE.fullmatch(line)) and _PARAGRAPH.match(lines[number - 1]):
            level = 1 if match[1][0] == "=" else 2
            title = _title(lines[number - 1])
            headings.append(Heading(line=number - 1, last_line=number, level=level, title=title))
    if fence:
        # Never closed: it reaches to the end, as every Markdown reader has it.
        fences.append((opened, len(lines) - 1))
    return Outline(headings=tuple(headings), fences=tuple(fences))


def code_lines(lines: Sequence[str]) -> set[int]:
    """Return the lines (from 0) that are code: in a fence, or indented behind a blank line and in no list."""
    found = {at for first, last in outline(list(lines)).fences for at in range(first, last + 1)}
    is_list, is_open = False, True
    for at, line in enumerate(lines):
        if not line.strip():
            is_open = True
        elif line.startswith(("    ", "\t")):
            if is_open and not is_list:
                found.add(at)
            else:
                is_open = False
        else:
            is_list = _BULLET.match(line) is not None or (is_list and line[0].isspace())
            is_open = False
    return found


class Trail:
    """Keeps the headings in force, for lines in ascending order."""

    def __init__(self, headings: tuple[Heading, ...]) -> None:
        self._headings = headings
        self._next = 0
        self._open: list[Heading] = []

    def at(self, line: int) -> str:
        """Return the trail at `line` (from 0), a heading on the line itself included: `A > B`."""
        while self._next < len(self._headings) and self._headings[self._next].line <= line:
            heading = self._headings[self._next]
            self._next += 1
            while self._open and self._open[-1].level >= heading.level:
                self._open.pop()
            self._open.append(heading)
        titles = [heading.title for heading in self._open if heading.title]
        # A note whose front matter has the title usually repeats it as its first heading.
        if len(titles) > 1 and titles[0] == titles[1]:
            del titles[0]
        return " > ".join(titles)


def front_matter_end(lines: list[str]) -> int:
    """Count the lines of the front matter, its fences included; 0 when there is none."""
    # A first line of dashes with prose below it is a rule, not the start of front matter.
    if lines[0].rstrip() != "---" or len(lines) < 2 or not _FRONT_KEY.match(lines[1]):
        return 0
    for number in range(1, len(lines)):
        if lines[number].rstrip() in ("---", "..."):
            return number + 1
    return 0


def _front_title(lines: list[str]) -> str:
    return _title(next((text for key in TITLES for text in from_yaml(lines).get(key, ())), ""))


def _title(text: str) -> str:
    return without_anchor(text).strip()[:_MAX_TITLE_CHARS].rstrip()


def without_anchor(title: str) -> str:
    """Return a title without the anchor behind it, unless it is nothing else."""
    return (_ANCHOR.sub("", title) if title.endswith("}") else title) or title
