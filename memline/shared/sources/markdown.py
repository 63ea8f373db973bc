"""Find the outline of a Markdown text: its headings, blocks of code and front matter, by line."""

from __future__ import annotations

from collections.abc import Sequence

from memline.shared.patterns import late
from memline.shared.sources.properties import TITLES, from_front_matter
from memline.shared.values import value

#: Longest title kept in a trail; a longer one is a paragraph that begins with "#".
_MAX_TITLE_CHARS = 160

_HEADING = late(r" {0,3}(#{1,6})(?:[ \t]+(.*?))??(?:[ \t]+#+)?[ \t]*")
#: What a fence stands behind (quotes and items), and its marks.
_FENCE = late(r"([ \t]*+(?:(?:>|(?:[-*+]|\d{1,9}[.)])(?=[ \t]))[ \t]*+)*+)(`{3,}(?=[^`]*$)|~{3,})")
_QUOTE_MARK = late(r" *+> ?")
_ITEM_MARK = late(r" *+(?:[-*+]|\d{1,9}[.)])(?: ++|$)")
_UNDERLINE = late(r" {0,3}(?:=+|-{2,})[ \t]*")
#: A line that an underline makes a heading: no block of another kind, and not indented as code.
_PARAGRAPH = late(r"(?! {4}|\t)\s*[^\s#>|`~*+=-]")
#: An anchor behind a title: `{ #id }`, `{: #id .class }`, and `{/* #id */}` of MDX.
_ANCHOR = late(r"\s*\{(?::?\s*[#.][^{}]*|/\*\s*#[^{}]*\*/)\}\s*\Z")
_YAML_KEY = late(r"#|-{3}|[\"']?[\w-][\w -]*[\"']?:")
_TOML_KEY = late(r"#|\+{3}|[\w.\"'-]+[ \t]*=")
_RULE = late(r" {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}")
_BULLET = late(r"\s*(?:[-*+]|\d{1,9}[.)])(?:\s|$)")

#: Code within a line, in backticks and as HTML: a search for the end stops where another element begins.
_CODE_SPAN = late(r"(?<!`)(`++).*?(?<!`)\1(?!`)")
_CODE_ELEMENT = late(r"(?i)<(code|pre)(?:\s[^<>]*+)?>[^<]*+(?:<(?!/?\1\b)[^<]*+)*+</\1\s*>")

#: First characters of a line that can start or end a block; the others are passed without a closer look.
_MARKS = frozenset("#`~=->*+0123456789")

#: Columns by which code is indented.
_CODE_COLUMNS = 4


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
    #: The first line behind the front matter, and behind the last fence.
    body = front_matter_end(lines)
    if title := _front_title(lines[:body]):
        headings.append(Heading(line=0, level=0, title=title))
    items = _Items(lines, body)
    for number, line in enumerate(lines):
        mark = line.lstrip()[:1]
        # Almost every line ends here: this test is most of what an outline costs.
        if mark not in _MARKS or number < body:
            continue
        if ("```" in line or "~~~" in line) and (match := _FENCE.match(line)):
            last = _fence_end(lines, number, match[2], _containers(match[1]) or items.around(number))
            fences.append((number, last))
            body = last + 1
        elif mark == "#":
            if match := _HEADING.fullmatch(line):
                headings.append(Heading(line=number, level=len(match[1]), title=_title(match[2] or "")))
        elif (
            mark in "=-"
            and number > body
            and line.rstrip()[-1] == mark
            and _UNDERLINE.fullmatch(line)
            and _PARAGRAPH.match(lines[number - 1])
        ):
            level, title = 1 if mark == "=" else 2, _title(lines[number - 1])
            headings.append(Heading(line=number - 1, last_line=number, level=level, title=title))
    return Outline(headings=tuple(headings), fences=tuple(fences))


def sections_of(text: str) -> list[str]:
    """Return the headings in the text of a chunk, at a glance: of one line, or with a line below them."""
    if "#" not in text and "\n--" not in text and "\n==" not in text:
        return []
    titles, is_code, before = list[str](), False, ""
    for line in text.split("\n"):
        if line.startswith(("```", "~~~")):
            is_code = not is_code
        elif not is_code and line.startswith("#") and (match := _HEADING.fullmatch(line)):
            titles.append(_title(match[2] or ""))
        elif (
            not is_code
            and line[:2] in ("--", "==")
            and _UNDERLINE.fullmatch(line)
            and _PARAGRAPH.match(before)
        ):
            titles.append(_title(before))
        before = line
    return titles


def _containers(prefix: str) -> tuple[int, ...]:
    """Return the quotes and items of a prefix: for a quote 0, for items in each other the columns of both."""
    prefix = prefix.expandtabs(4)
    found: list[int] = []
    at = 0
    while match := _QUOTE_MARK.match(prefix, at) or _ITEM_MARK.match(prefix, at):
        width = 0 if match[0].lstrip()[0] == ">" else match.end() - at
        if width and found and found[-1]:
            # Otherwise 50,000 marks in a line would be looked at again for every line below.
            found[-1] += width
        else:
            found.append(width)
        at = match.end()
    return tuple(found)


def _fence_end(lines: list[str], first: int, fence: str, containers: tuple[int, ...]) -> int:
    """Return the last line of the fence that opens at `first`: no fence goes on behind what it stands in."""
    last = first
    for number in range(first + 1, len(lines)):
        line = lines[number]
        if containers:
            if (rest := _within(line, containers)) is None:
                # Blank lines in front of what follows are no code.
                is_apart = 0 in containers or last < number - 1
                return last if is_apart else _late_end(lines, number, fence) or last
            line = rest
        if fence in line and not line.strip().strip(fence[0]):
            return number
        if line.strip():
            last = number
    # Never closed: it reaches to the end, as every Markdown reader has it.
    return len(lines) - 1


def _late_end(lines: list[str], first: int, fence: str) -> int:
    """Return the line that closes a fence whose code is not indented as far as its item; 0 when none does.

    By the rules that line opens another fence, which is not meant: it would swallow the rest of the note.
    """
    for number in range(first, len(lines)):
        line = lines[number].strip()
        if line.startswith(fence) and not line.strip(fence[0]):
            return number
        if not line or fence[0] * 3 in line or _ITEM_MARK.match(line):
            break
    return 0


def _within(line: str, containers: tuple[int, ...]) -> str | None:
    """Return what is left of a line behind the marks of quotes and items; None where it is in one no more."""
    line = line.expandtabs(4)
    at = 0
    for width in containers:
        if width:
            if line[at : at + width].strip():
                return None
            at += width
        elif match := _QUOTE_MARK.match(line, at):
            at = match.end()
        else:
            return None
    return line[at:]


class _Items:
    """Knows the item of a list that an indented line stands in; each line is looked at once."""

    def __init__(self, lines: list[str], first: int) -> None:
        self._lines, self._next = lines, first
        #: For each open item the columns before its text.
        self._open: list[int] = []

    def around(self, number: int) -> tuple[int, ...]:
        """Return the columns by which a line has to be indented to stay in the item or code of `number`."""
        lines, begin = self._lines, number
        if not lines[number][0].isspace():
            return ()
        while begin > self._next:
            begin -= 1
            if not (line := lines[begin]) or line[0].isspace():
                continue
            # A list ends, or begins, at a line that is not indented.
            self._open.clear()
            break
        for line in lines[begin : number + 1]:
            if "\t" in line:
                line = line.expandtabs(4)
            if text := line.lstrip():
                indent = len(line) - len(text)
                while self._open and self._open[-1] > indent:
                    self._open.pop()
                if match := _ITEM_MARK.match(line):
                    self._open.append(match.end())
        self._next = number
        outer = self._open[-1] if self._open else 0
        # Indented further it is code of the other kind, which ends like an item.
        width = outer + _CODE_COLUMNS if indent - outer >= _CODE_COLUMNS else outer
        return (width,) if width else ()


def code_lines(lines: Sequence[str]) -> set[int]:
    """Return the lines (from 0) that are code: in a fence, or indented where no paragraph or list goes on."""
    parts = outline(list(lines))
    found = {at for first, last in parts.fences for at in range(first, last + 1)}
    # Behind these lines begins a new block, as behind a blank line.
    ends = {last for _, last in parts.fences} | {max(each.line, each.last_line) for each in parts.headings}
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
            is_rule = _RULE.fullmatch(line) is not None
            is_list = not is_rule and (_BULLET.match(line) is not None or (is_list and line[0].isspace()))
            is_open = is_rule
        is_open = is_open or at in ends
    return found


def without_code(line: str) -> str:
    """Return a line with an x for each code within it."""
    if "`" in line:
        line = _CODE_SPAN.sub("x", line)
    return _CODE_ELEMENT.sub("x", line) if "</" in line else line


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
    first, second = lines[0].rstrip(), lines[1] if len(lines) > 1 else ""
    # A first line of dashes with prose below it is a rule, not the start of front matter.
    if first == "---" and _YAML_KEY.match(second):
        ends = {"---", "..."}
    elif first == "+++" and _TOML_KEY.match(second):
        ends = {"+++"}
    else:
        return 0
    for number in range(1, len(lines)):
        if lines[number].rstrip() in ends:
            return number + 1
    return 0


def _front_title(lines: list[str]) -> str:
    return _title(next((text for key in TITLES for text in from_front_matter(lines).get(key, ())), ""))


def _title(text: str) -> str:
    return without_anchor(text).strip()[:_MAX_TITLE_CHARS].rstrip()


def without_anchor(title: str) -> str:
    """Return a title without the anchor behind it, unless it is nothing else."""
    return (_ANCHOR.sub("", title) if title.endswith("}") else title) or title
