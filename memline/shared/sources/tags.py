"""Read tags, `#x` and `tag:x`, in a question, and bring them into the form in which they are compared.

A tag is compared as names are: `#Boat`, `tags: [boat]` and `boat` are one, and `boat/dinghy` lies below it.
"""

import re

from memline.shared.sources.folding import name_key

#: Characters of a tag that are kept.
_MAX_CHARS = 160


# What cannot be in a tag: blanks, ASCII punctuation but `-`, `_` and `/`, that of other scripts.
_INSIDE = "[^\\s!-,.:-@\\[-^`{-~\u2010-\u205e\u3000-\u303f\uff01-\uff0f\uff1a-\uff20]+"
# Not within a word or an address, nor where a link leads; but for emphasis, `**#boat**`.
_BEGIN = r"(?:(?<![^\s(“‘«,;、，。（])|(?<=[\s(][*_])|(?<=[\s(][*_]{2})|(?<=^[*_])|(?<=^[*_]{2}))(?<!\]\()"
#: `#boat/dinghy`, `#[[two words]]`.
MARKED = rf"{_BEGIN}#(?:\[\[([^\]\n]+)\]\]|({_INSIDE}))"
_NAMED = rf"(?i)(?<!\S)tag:(?:#?({_INSIDE})|\"([^\"]+)\")"


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

    return re.sub(MARKED, plain, re.sub(_NAMED, plain, text)), tuple(tags)
