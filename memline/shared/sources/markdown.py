"""Find the outline of a Markdown text: its headings, blocks of code and front matter, by line.

The rules are of thumb. In 2,237 Markdown files of many projects they find the fences that CommonMark finds.
"""

import re
from collections.abc import Iterator, Sequence

import msgspec

TITLES, ALIASES, TAGS = ("title",), ("aliases", "alias"), ("tags", "tag")

#: Longest title kept in a trail; a longer one is a paragraph that begins with "#".
_MAX_TITLE_CHARS = 160

#: What is a text here is compiled (and kept by `re`) where a note needs it, not by each command.
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))??(?:[ \t]+#+)?[ \t]*")
#: A fence, also in quotes and items.
_FENCE = r"[ \t>*+-]*+(?:\d{1,9}[.)][ \t]+)?(`{3,}(?=[^`]*$)|~{3,})"
_UNDERLINE = r" {0,3}(?:=+|-{2,})[ \t]*"
#: A line that an underline makes a heading: no block of another kind, and not indented as code.
_PARAGRAPH = r"(?! {4}|\t)\s*[^\s#>|`~*+=-]"
#: An anchor behind a title: `{ #id }`, `{: #id .class }`, and `{/* #id */}` of MDX.
_ANCHOR = r"\s*\{(?::?\s*[#.][^{}]*|/\*\s*#[^{}]*\*/)\}\s*\Z"
#: How an item of a list begins.
LIST_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])(?:\s|$)")
_YAML_KEY = r"#|-{3}|[\"']?[\w-][\w -]*[\"']?:"

#: Code within a line.
_CODE_SPAN = r"(?<!`)(`++).*?(?<!`)\1(?!`)"

#: Of front matter: a property, how a text on the lines below is announced, and an item of a list there.
_PROPERTY = r"[\"']?([A-Za-z][\w-]*)[\"']?[ \t]*:(?:\s+(.*)|$)"
_FOLDED = r"[>|][-+1-9]{0,2}(?:\s+|$)"
_LISTED = r"\s*(?:-\s+)+(.*)"
#: The parts of a list: in quotes a comma is a character like any other.
_PART = r"\s*(?:\"(?:\\.|[^\"\\])*+\"|'(?:''|[^'])*+')\s*(?=[],[]|$)|[^],[]+"
_QUOTED = r"(['\"])(.*)\1\s*(?:#.*)?"
_COMMENT = r"(?:^|\s)#(?:\s.*)?$"

#: Blocks that begin a line and end at their own mark alone (CommonMark 4.6), and comments of MDX, and of
#: Obsidian the comments and formulas.
_BLOCKS = {rf"<{tag}\b": f"</{tag}>" for tag in ("pre", "script", "style", "textarea")}
_BLOCKS |= {"<!--": "-->", r"<!\[CDATA\[": "]]>", r"\{/\*": "*/}", "%%": "%%", r"\$\$": "$$"}

_UNWRITTEN = "[\x00-\x1f\x7f-\x9f\ud800-\udfff]+"


class Heading(msgspec.Struct, frozen=True, kw_only=True):
    """A heading; `line` counts from 0 and is that of its text."""

    line: int
    #: The line of its underline; -1 for a heading of one line.
    last_line: int = -1
    #: 1 to 6; 0 is the title of the front matter.
    level: int
    title: str


class Outline(msgspec.Struct, frozen=True, kw_only=True):
    """The structure of a text; lines count from 0."""

    #: Lines of the front matter, its fences included.
    front: int
    #: What the front matter says: key, in lower case -> values.
    properties: dict[str, list[str]]
    headings: tuple[Heading, ...]
    #: First and last line of each fenced block, its fences included.
    fences: tuple[tuple[int, int], ...]

    def fenced(self) -> set[int]:
        """Return the lines of all fenced blocks."""
        return {at for first, last in self.fences for at in range(first, last + 1)}

    def trails(self) -> tuple[list[int], list[str]]:
        """Return the lines from which other headings are in force, in order, and these: `A > B`."""
        places, trails, above = list[int](), list[str](), list[Heading]()
        for heading in self.headings:
            above = [each for each in above if each.level < heading.level] + [heading]
            titles = [each.title for each in above if each.title]
            # A note whose front matter has the title usually repeats it as its first heading.
            if len(titles) > 1 and titles[0] == titles[1]:
                del titles[0]
            places.append(heading.line)
            trails.append(" > ".join(titles))
        return places, trails


def outline(lines: Sequence[str]) -> Outline:
    """Return the outline of the lines of a text; nothing in a fence or the front matter is a heading."""
    headings: list[Heading] = []
    fences: list[tuple[int, int]] = []
    body = front_matter_end(lines)
    properties = from_front_matter(lines[:body])
    titles = [text for key in TITLES for text in properties.get(key, ())]
    if titles and (title := _title(titles[0])):
        headings.append(Heading(line=0, level=0, title=title))
    fence, first = "", 0
    for number, line in enumerate(lines):
        if fence:
            if fence in line and not line.strip(" \t>").strip(fence[0]):
                fences.append((first, number))
                fence = ""
        elif number < body or line[:1].isalpha():
            continue
        elif ("```" in line or "~~~" in line) and (match := re.match(_FENCE, line)):
            fence, first = match[1], number
        elif (mark := line.lstrip()[:1]) == "#":
            if match := _HEADING.fullmatch(line):
                headings.append(Heading(line=number, level=len(match[1]), title=_title(match[2] or "")))
        elif mark in ("=", "-") and number > body and _is_underline(line, lines[number - 1]):
            level, title = 1 if mark == "=" else 2, _title(lines[number - 1])
            headings.append(Heading(line=number - 1, last_line=number, level=level, title=title))
    if fence:
        # Never closed: it reaches to the end, as every Markdown reader has it.
        fences.append((first, len(lines) - 1))
    return Outline(front=body, properties=properties, headings=tuple(headings), fences=tuple(fences))


def _is_underline(line: str, before: str) -> bool:
    # Most are items of a list, and end at the first look.
    is_line = not line.strip("=- \t") and re.fullmatch(_UNDERLINE, line)
    return bool(is_line and re.match(_PARAGRAPH, before))


def end_of_block(lines: Sequence[str]) -> str:
    """Return the lines that end what a text leaves open: a fence, a comment or HTML; most often none."""
    shape = outline(lines)
    fences, inside = shape.fences, shape.fenced()
    first, last = fences[-1] if fences else (0, -1)
    if last == len(lines) - 1 and (match := re.match(_FENCE, lines[first])):
        is_closed = last > first and match[1] in lines[last] and not lines[last].strip(f" \t>{match[1]}")
        if not is_closed:
            return f"{match[0][: -len(match[1])].replace('-', ' ')}{match[1]}\n\n"
    text = "\n".join(without_code(line) for at, line in enumerate(lines) if at not in inside)
    # Within a paragraph it is text, unless it is closed there.
    for opening, closing in _BLOCKS.items():
        begins = [match.end() for match in re.finditer(rf"(?mi)^ {{0,3}}{opening}", text)]
        # What is before the first one is text, such as a price.
        is_paired = begins and closing in ("%%", "$$") and text.count(closing, begins[0] - 2) % 2 == 0
        if begins and not is_paired and closing not in text[begins[-1] :].lower():
            return f"{closing}\n\n"
    # Another block of HTML ends at a blank line.
    is_html = text.rpartition("\n\n")[2].lstrip(" ").startswith("<")
    return "\n" if is_html else ""


def sections_of(text: str) -> list[str]:
    """Return the headings in the text of a chunk."""
    if "#" not in text and "\n--" not in text and "\n==" not in text:
        return []
    return [heading.title for heading in outline(text.split("\n")).headings if heading.level]


def without_code(line: str) -> str:
    """Return a line with an x for each code within it."""
    return re.sub(_CODE_SPAN, "x", line) if "`" in line else line


def front_matter_end(lines: Sequence[str]) -> int:
    """Count the lines of the front matter, its fences included; 0 when there is none."""
    first, second = lines[0].rstrip(), lines[1] if len(lines) > 1 else ""
    # A first line of dashes with prose below it is a rule, not the start of front matter.
    if first != "---" or not re.match(_YAML_KEY, second):
        return 0
    for number in range(1, len(lines)):
        if lines[number].rstrip() in ("---", "..."):
            return number + 1
    return 0


def _title(text: str) -> str:
    return without_anchor(text).strip()[:_MAX_TITLE_CHARS].rstrip()


def without_anchor(title: str) -> str:
    """Return a title without the anchor behind it, unless it is nothing else."""
    return (re.sub(_ANCHOR, "", title) if title.endswith("}") else title) or title


def from_front_matter(lines: Sequence[str]) -> dict[str, list[str]]:
    """Read front matter, its fences included: key, in lower case -> values.

    Leniently: people write `title: Foo: bar`, `tags: #a, #b` or `aliases: [[A]], [[B]]`, and a YAML library
    loses the whole header for it. Mappings in mappings and aliases are not read, and neither is TOML.
    """
    whole: list[str] = []
    for line in lines:
        is_more = line.startswith((" ", "\t", "]")) and not re.match(r"\s*(?:-\s|#)", line)
        if whole and is_more:
            whole[-1] += f" {line.strip()}"
        else:
            whole.append(line)
    properties: dict[str, list[str]] = {}
    values: list[str] = []
    for line in whole:
        if match := re.fullmatch(_PROPERTY, line):
            key = match[1].lower()
            values = properties.setdefault(key, [])
            values += _values(match[2] or "", is_split=key in TAGS)
        elif match := re.fullmatch(_LISTED, line):
            values += _values(match[1])
    return properties


def _values(text: str, *, is_split: bool = False) -> Iterator[str]:
    text = re.sub(_FOLDED, "", " ".join(text.split()))
    if text.startswith("[") and "] #" in text:
        text = text.partition("] #")[0] + "]"
    parts = [text]
    if text.startswith("[") and text.endswith("]") and text.count("[[") != 1:
        parts = re.findall(_PART, text)
    elif is_split:
        parts = re.split(r"[,\s]+", _plain(text))
    return filter(None, map(_plain, parts))


def _plain(text: str) -> str:
    """Return a value without its quotes and the comment behind it; empty for none."""
    text = re.sub(_UNWRITTEN, " ", text).strip(" \t,")
    if quoted := re.fullmatch(_QUOTED, text):
        return quoted[2].replace("''", "'").replace('\\"', '"').strip()
    text = re.sub(_COMMENT, "", text)
    return "" if text in ("null", "~") else text
