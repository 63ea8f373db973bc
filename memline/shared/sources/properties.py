"""Read properties of a note: key, in lower case -> values.

The front matter of Obsidian and of site generators is YAML between two lines of dashes, of which these forms
are read: a value in quotes or not, also on the indented lines below its key; a text below `>` or `|`; and a
list in brackets or below its key, or one within another. Comments, anchors and tags of YAML (`&a`, `!!seq`)
are passed over. Other mappings than the front matter itself, and aliases (`*a`), are not read.

That of Hugo may be TOML between two lines of pluses. Logseq's properties are lines of `key:: value`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date

from memline.shared.patterns import late
from memline.shared.tables import read_toml

TITLES, ALIASES, TAGS = ("title",), ("aliases", "alias"), ("tags", "tag")

#: Characters of a front matter in TOML that is read: parts of a key (`a.a.a`) cost by the square, here 0.1 s.
_MAX_TOML_CHARS = 8_000

_PROPERTY = late(r"\s*(?:[-*] )?[\"']?([A-Za-z][\w-]*)[\"']?[ \t]*:(:?)(?:\s+(.*))?")
#: A text on the lines below, folded or as it stands.
_BLOCK = late(r"[>|][-+1-9]{0,2}")
_QUOTED = r"""(?:"(?:\\.|[^"\\])*"|'(?:''|[^'])*')"""
#: The parts of lists in brackets: in quotes a comma is one like any other character.
_PARTS = late(rf"\s*{_QUOTED}\s*(?=[],[]|$)|[^],[]+")
_WIKILINK = late(r"\[\[[^][]*\]\]")
#: What is in quotes, up to the end where they stay open, and a comment that is not. Nothing is looked at
#: twice: a line of 100,000 marks is read in milliseconds.
_COMMENT = late(
    r"""((?<![^\s\[,])(?:"(?:\\.|[^"\\])*+(?:"|\\?$)|'(?:''|[^'])*+(?:'|$)))|(?:^|(?<!\s)\s++)#(?:\s.*)?$"""
)
#: An anchor or a tag in front of a value.
_NODE = late(r"^(?:(?:&\S+|![\w!<]\S*)(?:\s+|$))+")
_ITEM = late(r"\s*-(?:\s+-(?=\s|$))*+(?:\s+(.*))?")
_SPACE = late(r"[,\s]+")
#: What quotes may write and no name has: line ends, other controls, halves of a character.
_UNWRITTEN = late("[\x00-\x1f\x7f-\x9f\ud800-\udfff]+")


def from_front_matter(lines: Sequence[str]) -> dict[str, list[str]]:
    """Read front matter, its fences included."""
    return _from_toml("\n".join(lines[1:-1])) if lines and lines[0].startswith("+++") else from_yaml(lines)


def _from_toml(text: str) -> dict[str, list[str]]:
    try:
        table = read_toml(text) if len(text) <= _MAX_TOML_CHARS else {}
    except (ValueError, RecursionError):
        return {}
    found: dict[str, list[str]] = {}
    for key, written in table.items():
        values = written if isinstance(written, list) else [written]
        texts = (str(each) for each in values if isinstance(each, (str, int, date)))
        found[key.lower()] = [_UNWRITTEN.sub(" ", each).strip() for each in texts]
    return found


def from_yaml(lines: Sequence[str]) -> dict[str, list[str]]:
    """Read the lines of front matter, without its fences or with them."""
    found: dict[str, list[str]] = {}
    below: list[str] | None = None
    left = [*reversed(lines)]
    while left:
        line = left.pop()
        if below is not None and (item := _ITEM.fullmatch(line)):
            below += _values(_bare(item[1] or ""))
            continue
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _PROPERTY.fullmatch(line)
        below = None
        if match and not match[2] and not line[:1].isspace():
            key, text = match[1].lower(), _whole(_bare(match[3] or ""), left)
            is_words = key in TAGS and not text.startswith("[")
            values = _SPACE.split(_plain(text)) if is_words and text else _values(text)
            below = found.setdefault(key, [])
            below += values
            below = below if not values else None
    return found


def from_logseq(lines: Sequence[str]) -> dict[str, list[str]]:
    """Read the properties at the beginning of a page."""
    found: dict[str, list[str]] = {}
    for line in lines:
        key, values = _logseq(line)
        if not key:
            break
        found.setdefault(key, []).extend(values)
    return found


def tags_of_block(line: str) -> list[str]:
    """Read the tags of a line below: `tags:: boat, [[two words]]` of a block in Logseq."""
    key, values = _logseq(line)
    return values if key in TAGS else []


def _logseq(line: str) -> tuple[str, list[str]]:
    """Read a line that may be a property; the key of another one is empty."""
    match = _PROPERTY.fullmatch(line)
    if not match or not match[2]:
        return "", []
    key, text = match[1].lower(), match[3] or ""
    parts = text.split(",") if key in (*ALIASES, *TAGS) else [text]
    return key, [*filter(None, map(_plain, parts))]


def _values(text: str) -> list[str]:
    if text.startswith("[") and text.endswith("]") and not _WIKILINK.fullmatch(text):
        # Lists within it are one with it.
        return [each for part in _PARTS.findall(text) if (each := _plain(part))]
    return [text] if (text := _plain(text)) else []


def _whole(text: str, left: list[str]) -> str:
    """Take the lines that go on with the value of a key."""
    parts: list[str] = []
    if _BLOCK.fullmatch(text):
        while left and (not left[-1].strip() or left[-1][:1].isspace()):
            parts.append(left.pop().strip())
        return " ".join(filter(None, parts))
    while left and left[-1][:1].isspace() and _goes_on(left[-1]):
        parts.append(_uncommented(left.pop().strip()))
    text = _bare(" ".join(filter(None, [text, *parts])))
    return _whole_list(text, left) if text.startswith("[") and _depth(text) > 0 else text


def _goes_on(line: str) -> bool:
    return not (line.lstrip()[:1] in ("", "#") or _ITEM.fullmatch(line) or _PROPERTY.fullmatch(line))


def _whole_list(text: str, left: list[str]) -> str:
    """Take the lines up to the end of a list in brackets; none where it does not end."""
    parts, depth = [text], _depth(text)
    for count, line in enumerate(reversed(left), 1):
        if line.strip() in ("---", "...") or (not line[:1].isspace() and _PROPERTY.fullmatch(line)):
            break
        parts.append(_uncommented(line.strip()))
        depth += _depth(parts[-1])
        if depth <= 0:
            del left[-count:]
            return " ".join(parts)
    return text


def _depth(text: str) -> int:
    return text.count("[") - text.count("]")


def _bare(text: str) -> str:
    """Return a value without the comment behind it, and what of YAML's stands in front."""
    text = _uncommented(text.strip()).strip()
    return _NODE.sub("", text, count=1) if text[:1] in ("&", "!") else text


def _uncommented(text: str) -> str:
    return _COMMENT.sub(lambda match: match[1] or "", text) if "#" in text else text


def _plain(text: str) -> str:
    text = _uncommented(text.strip()).strip()
    if len(text) < 2 or text[0] != text[-1] or text[0] not in "\"'":
        return "" if text in ("null", "~") else text
    inside = text[1:-1]
    if text[0] == "'":
        return inside.replace("''", "'")
    try:
        # What YAML writes in double quotes JSON does, but for a few escapes.
        return _UNWRITTEN.sub(" ", str(json.loads(text))).strip()
    except ValueError:
        return inside
