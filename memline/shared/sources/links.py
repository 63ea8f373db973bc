"""Read the links of a note to other notes: `[[wikilinks]]`, and Markdown links and tags with a path.

A path may lack the ending of a Markdown file, as on sites that are made of notes:
`<Card href="/guide/start">`.

They are kept as they are written; which note one leads to is decided when it is asked (`index/links.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from functools import cache
from itertools import takewhile

from memline.shared.note_names import is_markdown, without_ending
from memline.shared.patterns import late
from memline.shared.sources.dates import day_named
from memline.shared.sources.folding import name_key, stem_key
from memline.shared.sources.markdown import outline, without_code
from memline.shared.values import value

#: Links of a note that are kept; a list of everything has a few thousand.
_MAX_LINKS = 10_000

#: Characters of a path at most.
_MAX_TARGET = 1_000

#: Letters behind a link from which on an item describes what it links to: fewer are a date or a name.
_DESCRIPTION = 15

#: What stands in a line with a link.
_MARKS = ("[[", "](", "]:")

_COMMENTS = (("<!--", "-->"), ("{/*", "*/}"))

#: What an item of a list, a row of a table or a card begins with, before a link.
_ITEM = late(r"\s*(?:(?:[-*+•]\s+|\d{1,9}[.)]\s+|\|\s*)[*_]*(?=\[)|(?=<([A-Z][\w.]*)\s[^<>]*href=))")

#: A tag, or what is left of one at the beginning.
_TAG = late(r"\A[^<>]*>|<[^<>]*>")


@value
class Link:
    """A link as it is written."""

    #: 1-based.
    line: int
    #: Without heading, alias and title.
    target: str
    #: Whether it is a path, that begins at the folder of its note, and no wikilink.
    is_path: bool = False

    @property
    def key(self) -> str:
        """What its last part is looked up by: a day in figures; Logseq's page `a/b` is also in `a___b.md`."""
        day = day_named(self.target)
        return day.isoformat() if day else stem_key(f"{last_part(self.target)}.md").rpartition("/")[2]


@value
class NoteName:
    """A note by its path and title."""

    path: str
    title: str


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Compile what finds a link, what a wikilink shows that is not a note, and an address."""
    place = r"(?:<([^<>\n]{1,1000})>|([^\s()<>]+(?:\([^\s()]*\)[^\s()<>]*)*))"
    return (
        re.compile(
            # `[[note#heading|alias]]`, not the tag `#[[two words]]`; in a table it is `\|`.
            r"(?<![\\#])\[\[([^\[\]|#\n]*)(?:[|#][^\[\]\n]*)?\]\]"
            # `[text](path.md "title")`, `[text](<a path.md>)`
            rf"|(?<!\\)\]\(\s{{0,9}}{place}(?:\s{{1,9}}[\"'(][^\"'()\n]{{0,300}}[\"')])?\s{{0,9}}\)"
            # `[text]: path.md`; `[^1]:` is a footnote.
            rf"|^ {{0,3}}\[[^\[\]^\n]+\]:\s{{1,9}}{place}"
            # `<Card title="text" href="/guide/start">`, not `<link href="/style">`
            r"|(?:(?<!\\)<(?!(?:link|image|use|base)\b)[A-Za-z][\w.]*\s(?:[^<>]*\s)?|^\s+)href="
            r"(?:\"([^\"\s<>{}]+)\"|'([^'\s<>{}]+)')"
        ),
        re.compile(
            r"\.(?:avif|base|bmp|canvas|csv|docx?|excalidraw|flac|gif|html?|jpe?g|json|m4a|mkv|mov|mp[34]|og[gv]"
            r"|pdf|png|pptx?|svg|te?xt|tiff?|wav|web[mp]|xlsx?|zip)$",
            re.I,
        ),
        re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//|mailto:", re.I),
    )


def links(lines: Sequence[str], code: Callable[[], Collection[int]]) -> tuple[Link, ...]:
    """Return the links in the lines of a note; `code` returns the lines (from 0) that are code."""
    found: dict[Link, None] = {}
    pattern, _, _ = _patterns()
    if any(map(_has_comments, lines)):
        lines = _without_comments(lines, code())
    for at, line in enumerate(lines):
        # Most lines end at the first look.
        has_link = "href=" in line or ("]" in line and any(mark in line for mark in _MARKS))
        if not has_link or at in code():
            continue
        for match in pattern.finditer(without_code(line)):
            if link := _link(match, at + 1):
                found[link] = None
        if len(found) >= _MAX_LINKS:
            break
    return tuple(found)[:_MAX_LINKS]


def described(text: str) -> list[tuple[Link, str]]:
    """Return the links with which items of a list, rows of a table or cards begin, each with its text.

    Those with a description behind the link.
    """
    found: list[tuple[Link, str]] = []
    pattern, _, _ = _patterns()
    lines = text.split("\n")
    code = {at for first, last in outline(lines).fences for at in range(first, last + 1)}
    if _has_comments(text):
        lines = _without_comments(lines, code)
    for at, line in enumerate(lines):
        begin = _ITEM.match(line) if at not in code else None
        match = pattern.search(line, begin.end()) if begin else None
        # The first link of the line, and nothing before it.
        if match is None or begin is None or (not begin[1] and "]" in line[begin.end() : match.start()]):
            continue
        link = _link(match, at + 1)
        if link is None or (match.start() > begin.end() and (begin[1] or match[1] is not None)):
            continue
        item = _item(lines, at, tag=begin[1])
        said = item[match.end() :]
        if sum(map(str.isalnum, _TAG.sub(" ", said) if begin[1] else said)) >= _DESCRIPTION:
            found.append((link, item))
    return found


def _item(lines: Sequence[str], at: int, *, tag: str | None) -> str:
    """Return the text of an item that begins on a line: of a card to its end, else the lines indented below.

    Up to the next item at most.
    """
    below = (lines[place] for place in range(at + 1, len(lines)))
    more = takewhile(lambda each: (tag or each[:1].isspace()) and not _ITEM.match(each), below)
    item = "\n".join((lines[at], *more))
    return item.partition(f"</{tag}>")[0] if tag else item


def _link(match: re.Match[str], line: int) -> Link | None:
    """Return what the pattern of links found; None where it is no note: a picture, an address."""
    _, other_file, address = _patterns()
    wikilink, *paths, named, bare, double, single = match.groups()
    if wikilink is not None:
        target = wikilink.strip().rstrip("\\").strip()
        is_other = not target or other_file.search(target) or address.match(target)
        return None if is_other else Link(line=line, target=target)
    written = next(filter(None, (*paths, named, bare, double, single)), "")
    target = _decoded(written.partition("#")[0].partition("?")[0])
    # `[Alice]: boat is sold` is none, and of `data:` and `tel:` no page is called.
    is_page = is_markdown(target) or not (named or bare or ":" in target or "." in last_part(target))
    if not target or not is_page or len(target) > _MAX_TARGET or address.match(written):
        return None
    return Link(line=line, target=target, is_path=True)


def _has_comments(text: str) -> bool:
    return "<!--" in text or "{/*" in text


def _without_comments(lines: Sequence[str], code: Collection[int]) -> list[str]:
    """Return as many lines, with an x for each comment, of HTML or MDX; one that is not closed is none."""
    text = "\n".join("" if at in code else without_code(line) for at, line in enumerate(lines))
    for opening, closing in _COMMENTS:
        kept, end = list[str](), 0
        while (start := text.find(opening, end)) >= 0 and (close := text.find(closing, start + 3)) >= 0:
            kept += text[end:start], "x", "\n" * text.count("\n", start, close)
            end = close + len(closing)
        text = "".join((*kept, text[end:]))
    return text.split("\n")


def line_of(lines: Sequence[str], place: str) -> int:
    """Return the line, from 1, that a link names behind its note: a heading, or a block by its `^id`.

    Of headings below each other (`Boat#Sails`) the last counts. Without a place it is the first line, and 0
    for one that the note does not have.
    """
    if not place:
        return 1
    if place.startswith("^"):
        marked = (at for at, line in enumerate(lines, 1) if f" {line.rstrip()}".endswith(f" {place}"))
        return next(marked, 0)
    wanted = name_key(place.rpartition("#")[2])
    named = (each.line + 1 for each in outline(list(lines)).headings if name_key(each.title) == wanted)
    return next(named, 0)


def last_part(target: str) -> str:
    """Return the last part of a path or name, without the ending of a Markdown file."""
    return without_ending(target.rstrip("/").rpartition("/")[2])


def _decoded(target: str) -> str:
    def plain(match: re.Match[str]) -> str:
        return bytes.fromhex(match[0].replace("%", "")).decode("utf-8", "replace")

    return re.sub(r"(?:%[0-9A-Fa-f]{2})+", plain, target).strip()
