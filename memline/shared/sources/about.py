"""Read what a note says of itself: title, aliases and day above its text, its tags and its links.

A tag is compared as names are: `#Boat`, `tags: [boat]` and `boat` are one, and `boat/dinghy` lies below it.
Links (`[[wikilinks]]`, and Markdown links with a path) are kept as they are written; which note one leads to
is decided when it is asked (`index/links.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from itertools import takewhile
from urllib.parse import unquote

import msgspec

from memline.shared.note_names import is_markdown, name_key, without_ending
from memline.shared.sources.dates import day_named
from memline.shared.sources.markdown import ALIASES, TAGS, TITLES, Outline, outline, without_code

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
_OTHER_PLACE = r"(?i)(?:[a-z][a-z0-9+.-]*:)?//|mailto:"


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
        is_other = not target or re.search(_OTHER_FILE, target) or re.match(_OTHER_PLACE, target)
        return None if is_other else Link(line=line, target=target)
    written = next(filter(None, paths), "")
    target = unquote(written.partition("#")[0].partition("?")[0]).strip()
    # A path may lack the ending, as on sites that are made of notes; `[Alice]: boat is sold` is none.
    is_page = is_markdown(target) or not (match[4] or match[5] or ":" in target or "." in last_part(target))
    if not target or not is_page or len(target) > _MAX_TARGET or re.match(_OTHER_PLACE, written):
        return None
    return Link(line=line, target=target, is_path=True)


def last_part(target: str) -> str:
    """Return the last part of a path or name, without the ending of a Markdown file."""
    return without_ending(target.rstrip("/").rpartition("/")[2])


#: Names and tags of a note that are kept, and characters of each.
_MAX_NAMES, _MAX_TAGS, _MAX_CHARS = 32, 256, 160

#: Begun where a word begins: from each letter of a long one the time would grow with its square.
_ADDRESS = re.compile(r"(?<!\w)\w++://\S+")
#: The year first.
_DAY = re.compile(r"\D{0,2}(\d{4})(?:-?(\d{2})-?(\d{2})|([-/._])(\d{1,2})\4(\d{1,2}))(?!\d)")

#: The strongest first.
_DAYS = ("date", "created", "created-at", "created_at")

# What cannot be in a tag: blanks, ASCII punctuation but `-`, `_` and `/`, that of other scripts.
_INSIDE = "[^\\s!-,.:-@\\[-^`{-~\u2010-\u205e\u3000-\u303f\uff01-\uff0f\uff1a-\uff20]+"
# Not within a word or an address, nor where a link leads; but for emphasis, `**#boat**`.
_BEGIN = r"(?:(?<![^\s(“‘«,;、，。（])|(?<=[\s(][*_])|(?<=[\s(][*_]{2})|(?<=^[*_])|(?<=^[*_]{2}))(?<!\]\()"
#: `#boat/dinghy`, `#[[two words]]`.
_MARKED = rf"{_BEGIN}#(?:\[\[([^\]\n]+)\]\]|({_INSIDE}))"
_NAMED = rf"(?i)(?<!\S)tag:(?:#?({_INSIDE})|\"([^\"]+)\")"


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What a note says of itself."""

    #: Title and aliases, each as `name_key` has it.
    names: tuple[str, ...] = ()
    #: ISO day of `date` or `created`; empty when there is none.
    day: str = ""
    #: Each as `tag_key` has it.
    tags: tuple[str, ...] = ()
    #: To other notes, as written.
    links: tuple[Link, ...] = ()


def about(lines: Sequence[str], shape: Outline) -> About:
    """Read the front matter of a note, then tags and links; there are none in code."""
    properties, code = shape.properties, shape.fenced()
    names = [name for key in (*TITLES, *ALIASES) for name in properties.get(key, ())]
    keys = dict.fromkeys(key for name in names if (key := name_key(name[:_MAX_CHARS])))
    days = (_day(text) for key in _DAYS for text in properties.get(key, ()))
    listed = [tag for key in TAGS for tag in properties.get(key, ())]
    text = {at: line for at, line in enumerate(lines) if at not in code}
    tags = (tag_key(tag) for tag in (*listed, *_inline(text, shape.front)))
    return About(
        names=tuple(keys)[:_MAX_NAMES],
        day=next(filter(None, days), ""),
        tags=tuple(dict.fromkeys(filter(None, tags)))[:_MAX_TAGS],
        links=links(text),
    )


def _day(text: str) -> str:
    if not (match := _DAY.match(text)):
        return str(day_named(text[:_MAX_CHARS]) or "")
    with suppress(ValueError):
        return str(date(*(int(each) for each in match.groups() if each and each.isdecimal())))
    return ""


def _inline(text: Mapping[int, str], front: int) -> Iterator[str]:
    """Yield the tags in the lines of a text behind its front matter; there are none in addresses."""
    for at, line in text.items():
        if at >= front and "#" in line and re.search(_MARKED, line):
            for match in re.finditer(_MARKED, _ADDRESS.sub("x", without_code(line))):
                yield match[1] or match[2]


def tag_key(tag: str) -> str:
    """Bring a tag into the form in which tags are compared; empty for what is not one, such as `#123`."""
    key = name_key(tag.strip().strip("#")[:_MAX_CHARS]).strip("/")
    return key if any(not (char.isdigit() or char in "-/") for char in key) else ""


def asked_tags(text: str) -> tuple[str, tuple[str, ...]]:
    """Return a question without the marks of its tags, and these."""
    if "#" not in text and ":" not in text:
        return text, ()
    tags: dict[str, None] = {}

    def plain(match: re.Match[str]) -> str:
        tag = match[1] or match[2]
        if not (key := tag_key(tag)):
            return match[0]
        tags[key] = None
        return tag

    return re.sub(_MARKED, plain, re.sub(_NAMED, plain, text)), tuple(tags)
