"""Read properties of a note: key, in lower case -> values.

The front matter of Obsidian and of site generators is YAML between two lines of dashes, of which these forms
are read: `key: value`, in quotes or not, `key: [a, b]`, a list below the key, and a text below `>` or `|`.
Logseq's is lines of `key:: value`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from memline.shared.patterns import late

TITLES, ALIASES, TAGS = ("title",), ("aliases", "alias"), ("tags", "tag")

_PROPERTY = late(r"\s*(?:[-*] )?([A-Za-z][\w-]*):(:?)(?:\s+(.*?))?\s*")
#: A text on the lines below, folded or as it stands.
_BLOCK = late(r"[>|][-+]?")
#: The parts of a list in brackets: in quotes a comma is one like any other character.
_PARTS = late(r"""\s*(?:"(?:\\.|[^"\\])*"|'(?:''|[^'])*')\s*(?=,|$)|[^,]+""")
_ITEM = late(r"\s*-\s+(.*?)\s*")
_COMMENT = late(r"\s+#\s.*$")
_SPACE = late(r"[,\s]+")


def from_yaml(lines: Sequence[str]) -> dict[str, list[str]]:
    """Read the lines of front matter, without its fences or with them."""
    found: dict[str, list[str]] = {}
    below: list[str] | None = None
    left = [*reversed(lines)]
    while left:
        line = left.pop()
        if below is not None and (item := _ITEM.fullmatch(line)):
            below.append(_plain(item[1]))
            continue
        if not line.strip() or line.lstrip().startswith("# "):
            continue
        match = _PROPERTY.fullmatch(line)
        below = None
        if match and not match[2] and not line[:1].isspace():
            key, text = match[1].lower(), _COMMENT.sub("", match[3] or "")
            while text.startswith("[") and "]" not in text and left:
                text += " " + _COMMENT.sub("", left.pop()).strip()
            if _BLOCK.fullmatch(text):
                text = ""
                while left and (not left[-1].strip() or left[-1][:1].isspace()):
                    text = f"{text} {left.pop().strip()}".strip()
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
        match = _PROPERTY.fullmatch(line)
        if not match or not match[2]:
            break
        is_list = match[1].lower() in (*ALIASES, *TAGS)
        text = match[3] or ""
        values = [_plain(part) for part in (text.split(",") if is_list else [text])]
        found.setdefault(match[1].lower(), []).extend(filter(None, values))
    return found


def _values(text: str) -> list[str]:
    if text.startswith("[") and text.endswith("]") and not text.startswith("[["):
        return [each for part in _PARTS.findall(text[1:-1]) if (each := _plain(part))]
    return [text] if (text := _plain(text)) else []


def _plain(text: str) -> str:
    text = _COMMENT.sub("", text.strip())
    if len(text) < 2 or text[0] != text[-1] or text[0] not in "\"'":
        return "" if text in ("null", "~") else text
    if text[0] == "'":
        return text[1:-1].replace("''", "'")
    try:
        # What YAML writes in double quotes JSON does, but for a few escapes.
        return str(json.loads(text))
    except ValueError:
        return text[1:-1]
