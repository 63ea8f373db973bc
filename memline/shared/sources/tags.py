"""Read tags, `#x` and `tag:x`, in a question, and bring them into the form in which they are compared.

A tag is compared as names are: `#Boat`, `tags: [boat]` and `boat` are one, and `boat/dinghy` lies below it.
"""

from __future__ import annotations

import re
from functools import cache

from memline.shared.sources.folding import name_key

#: Characters of a tag that are kept.
_MAX_CHARS = 160


@cache
def patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Compile the patterns of `#x` and `tag:x`, where a question or a note has one of the marks."""
    # What cannot be in a tag: blanks, ASCII punctuation but `-`, `_` and `/`, that of other scripts.
    inside = "[^\\s!-,.:-@\\[-^`{-~\u2010-\u205e\u3000-\u303f\uff01-\uff0f\uff1a-\uff20]+"
    # Not within a word or an address, nor where a link leads; but for emphasis, `**#boat**`.
    begin = r"(?:(?<![^\s(“‘«,;、，。（])|(?<=[\s(][*_])|(?<=[\s(][*_]{2})|(?<=^[*_])|(?<=^[*_]{2}))(?<!\]\()"
    return (
        # `#boat/dinghy`, Logseq's `#[[two words]]`.
        re.compile(rf"{begin}#(?:\[\[([^\]\n]+)\]\]|({inside}))"),
        re.compile(rf"(?<!\S)tag:(?:#?({inside})|\"([^\"]+)\")", re.I),
    )


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

    marked, named = patterns()
    return marked.sub(plain, named.sub(plain, text)), tuple(tags)
