"""Read what a note says of itself: title, aliases and day above its text, its tags and its links.

A tag is compared as names are: `#Boat`, `tags: [boat]` and `boat` are one, and `boat/dinghy` lies below it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date

import msgspec

from memline.shared.sources.dates import days_in
from memline.shared.sources.folding import name_key
from memline.shared.sources.links import Link, links
from memline.shared.sources.markdown import ALIASES, TAGS, TITLES, Outline, without_code

#: Names and tags of a note that are kept, and characters of each.
_MAX_NAMES, _MAX_TAGS, _MAX_CHARS = 32, 256, 160

#: Begun where a word begins: from each letter of a long one the time would grow with its square.
_ADDRESS = re.compile(r"(?<!\w)\w++://\S+")
#: The year first; other ways to write a day are those of a question.
_DAY = re.compile(r"\D{0,2}(\d{4})(?:-?(\d{2})-?(\d{2})|([-/._])(\d{1,2})\4(\d{1,2}))(?!\d)")
_FIGURE = re.compile(r"\d")

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
    if match := _DAY.match(text):
        year, month, day = filter(str.isdecimal, filter(None, match.groups()))
        try:
            return date(int(year), int(month), int(day)).isoformat()
        except ValueError:
            return ""
    # A note is of a day that stays: nothing that is counted from today, and no day of any year.
    found = days_in(text[:_MAX_CHARS], date.max) if _FIGURE.search(text) else ()
    named = (days for days in found if days.has_year and not days.is_relative and days.first == days.last)
    return next((days.first.isoformat() for days in named), "")


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
