"""Read the front matter of a note: key, in lower case -> values.

That of Obsidian and of site generators is YAML between two lines of dashes. It is read leniently: people
write `title: Foo: bar`, `tags: #a, #b` or `aliases: [[A]], [[B]]`, and a YAML library loses the whole header
for it. Mappings in mappings and aliases are not read, and neither is TOML.
"""

import re
from collections.abc import Sequence

TITLES, ALIASES, TAGS = ("title",), ("aliases", "alias"), ("tags", "tag")

# Texts, which `re` compiles when they are first needed: a search needs none.
_PROPERTY = r"[\"']?([A-Za-z][\w-]*)[\"']?[ \t]*:(?:\s+(.*)|$)"
_ITEM = r"(?:-\s+)+(.*)"
#: The parts of a list: in quotes a comma is a character like any other.
_PART = r"\s*(?:\"(?:\\.|[^\"\\])*+\"|'(?:''|[^'])*+')\s*(?=[],[]|$)|[^],[]+"
_WIKILINK = r"\[\[[^][]*\]\]"
#: A text on the lines below, and an anchor or a tag of YAML in front of a value.
_BLOCK = r"[>|][-+1-9]{0,2}"
_NODE = r"(?:(?:&\S+|![\w!<]\S*)(?:\s+|$))+"
_COMMENT = r"(?:^|\s)#(?:\s.*)?$"
_UNWRITTEN = "[\x00-\x1f\x7f-\x9f\ud800-\udfff]+"


def from_front_matter(lines: Sequence[str]) -> dict[str, list[str]]:
    """Read front matter, its fences included."""
    written: dict[str, list[str]] = {}
    below: list[str] = []
    for line in lines:
        if match := re.fullmatch(_PROPERTY, line):
            below = written.setdefault(match[1].lower(), [])
            below.append(match[2] or "")
        elif line.startswith((" ", "\t", "-", "]")) and not line.lstrip().startswith("#"):
            below.append(line.strip())
    return {key: _values(key, below) for key, below in written.items()}


def _values(key: str, written: Sequence[str]) -> list[str]:
    """Read a value that stands behind its key, on the lines below it, or as items of a list."""
    bare = [re.sub(_NODE, "", _uncommented(line), count=1) for line in written]
    items = [part for line in bare if (item := re.fullmatch(_ITEM, line)) for part in _parts(item[1])]
    text = " ".join(
        line for line in bare if line and not line.startswith("-") and not re.fullmatch(_BLOCK, line)
    )
    parts = _parts(text)
    if key in TAGS and not text.startswith("["):
        parts = re.split(r"[,\s]+", _plain(text))
    return [value for part in (*parts, *items) if (value := _plain(part))]


def _parts(text: str) -> list[str]:
    is_list = text.startswith("[") and text.endswith("]") and not re.fullmatch(_WIKILINK, text)
    return re.findall(_PART, text) if is_list else [text]


def _uncommented(text: str) -> str:
    text = " ".join(text.split())
    if text.startswith("["):
        return text.partition("] #")[0] + "]" if "] #" in text else text
    return re.sub(_COMMENT, "", text) if "#" in text and text[:1] not in ("'", '"') else text


def _plain(text: str) -> str:
    """Return a value without its quotes and what is behind them; empty for none."""
    text = re.sub(_UNWRITTEN, " ", text).strip(" \t,")
    end = text.rfind(text[:1], 1) if text[:1] in ("'", '"') else -1
    if end > 0 and text[end + 1 :].strip()[:1] in ("", "#"):
        return text[1:end].replace("''", "'").replace('\\"', '"').strip()
    return "" if text in ("null", "~") else text
