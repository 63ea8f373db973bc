"""Read the links of a note to other notes: `[[wikilinks]]`, and Markdown links with a path.

They are kept as they are written; which note one leads to is decided when it is asked (`index/links.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from urllib.parse import unquote

import msgspec

from memline.shared.note_names import is_markdown, without_ending
from memline.shared.sources.folding import name_key
from memline.shared.sources.markdown import outline, without_code

#: Links of a note that are kept; a list of everything has a few thousand.
_MAX_LINKS = 10_000

#: Characters of a path at most.
_MAX_TARGET = 1_000

#: Letters behind a link from which on an item describes what it links to: fewer are a date or a name.
_DESCRIPTION = 15

#: What an item of a list or a row of a table begins with, before a link.
_ITEM = r"\s*(?:[-*+•]\s+|\d{1,9}[.)]\s+|\|\s*)[*_]*(?=\[)"

_PLACE = r"(?:<([^<>\n]{1,1000})>|([^\s()<>]+(?:\([^\s()]*\)[^\s()<>]*)*))"
_LINK = re.compile(
    # `[[note#heading|alias]]`, not the tag `#[[two words]]`; in a table it is `\|`.
    r"(?<![\\#])\[\[([^\[\]|#\n]*)(?:[|#][^\[\]\n]*)?\]\]"
    # `[text](path.md "title")`, `[text](<a path.md>)`
    rf"|(?<!\\)\]\(\s{{0,9}}{_PLACE}(?:\s{{1,9}}[\"'(][^\"'()\n]{{0,300}}[\"')])?\s{{0,9}}\)"
    # `[text]: path.md`; `[^1]:` is a footnote.
    rf"|^ {{0,3}}\[[^\[\]^\n]+\]:\s{{1,9}}{_PLACE}"
)
#: What a wikilink shows that is not a note.
_OTHER_FILE = (
    r"(?i)\.(?:avif|base|bmp|canvas|csv|docx?|excalidraw|flac|gif|html?|jpe?g|json|m4a|mkv|mov|mp[34]|og[gv]"
    r"|pdf|png|pptx?|svg|te?xt|tiff?|wav|web[mp]|xlsx?|zip)$"
)
_ADDRESS = r"(?i)(?:[a-z][a-z0-9+.-]*:)?//|mailto:"


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A link as it is written."""

    #: 1-based.
    line: int
    #: Without heading, alias and title.
    target: str
    #: Whether it is a path, that begins at the folder of its note, and no wikilink.
    is_path: bool = False

    @property
    def key(self) -> str:
        """What its last part is looked up by."""
        return name_key(last_part(self.target))


class NoteName(msgspec.Struct, frozen=True, kw_only=True):
    """A note by its path and title."""

    path: str
    title: str


def links(text: Mapping[int, str]) -> tuple[Link, ...]:
    """Return the links in the lines of a note that are not code, by their number from 0."""
    found: dict[Link, None] = {}
    for at, line in text.items():
        # Most lines end at the first look.
        if "]" not in line or not ("[[" in line or "](" in line or "]:" in line):
            continue
        for match in _LINK.finditer(without_code(line)):
            if link := _link(match, at + 1):
                found[link] = None
        if len(found) >= _MAX_LINKS:
            break
    return tuple(found)[:_MAX_LINKS]


def described(text: str) -> list[tuple[Link, str]]:
    """Return the links with which items of a list or rows of a table begin, each with the text of its item.

    Those with a description behind the link.
    """
    found: list[tuple[Link, str]] = []
    lines = text.split("\n")
    code = outline(lines).fenced()
    for at, line in enumerate(lines):
        begin = re.match(_ITEM, line) if at not in code else None
        match = _LINK.search(line, begin.end()) if begin else None
        # The first link of the line, and nothing before it.
        if match is None or begin is None or "]" in line[begin.end() : match.start()]:
            continue
        link = _link(match, at + 1)
        if link is None or (match.start() > begin.end() and match[1] is not None):
            continue
        # With the lines indented below it, up to the next item.
        below = takewhile(lambda each: each[:1].isspace() and not re.match(_ITEM, each), lines[at + 1 :])
        item = "\n".join((line, *below))
        if sum(map(str.isalnum, item[match.end() :])) >= _DESCRIPTION:
            found.append((link, item))
    return found


def _link(match: re.Match[str], line: int) -> Link | None:
    """Return what the pattern of links found; None where it is no note: a picture, an address."""
    wikilink, *paths = match.groups()
    if wikilink is not None:
        target = wikilink.strip().rstrip("\\").strip()
        is_other = not target or re.search(_OTHER_FILE, target) or re.match(_ADDRESS, target)
        return None if is_other else Link(line=line, target=target)
    written = next(filter(None, paths), "")
    target = unquote(written.partition("#")[0].partition("?")[0]).strip()
    # A path may lack the ending, as on sites that are made of notes; `[Alice]: boat is sold` is none.
    is_page = is_markdown(target) or not (match[4] or match[5] or ":" in target or "." in last_part(target))
    if not target or not is_page or len(target) > _MAX_TARGET or re.match(_ADDRESS, written):
        return None
    return Link(line=line, target=target, is_path=True)


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
