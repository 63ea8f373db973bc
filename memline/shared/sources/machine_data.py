"""Tell lines of Markdown that are data of machines: drawings, base64, minified JSON. They are not text.

Obsidian's drawings are Markdown with a scene in a fence, plain or compressed; other plugins write their state
into a comment, `%% ... %%`, and mail and certificates have base64 on many lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import groupby

#: Characters of a line of base64 or JSON that is data by itself; lines of base64 in a row that are.
LONG, RUN = 200, 4

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{40,}={0,2}")


def data_lines(lines: Sequence[str], fences: Sequence[tuple[int, int]]) -> set[int]:
    """Return the lines, from 0, that are no text; `fences`: the first and last line of each fenced block."""
    found = {at for at, line in enumerate(lines) if len(line) >= LONG and _is_data(line)}
    for is_run, group in groupby(range(len(lines)), key=lambda at: _is_base64(lines[at])):
        run = [*group]
        if is_run and len(run) >= RUN:
            found.update(run)
    for first, last in fences:
        info, inside = lines[first].lstrip("`~ ").lower(), [*range(first + 1, last)]
        text = "".join(lines[at] for at in inside if lines[at].strip())
        is_comment = any(line.strip() == "%%" for line in lines[max(0, first - 3) : first])
        is_json = text[:1] in ("{", "[") and text[-1:] in ("}", "]")
        if info.startswith("compressed-json") or (is_json and (is_comment or _is_scene(text))):
            found.update((first, *inside, last))
    # Marks beside it, such as the end of a comment.
    for at in sorted(found):
        for near in (at - 1, at + 1):
            if 0 <= near < len(lines) and near not in found and not any(map(str.isalnum, lines[near])):
                found.add(near)
    return found


def _is_base64(line: str) -> bool:
    return len(line) >= 40 and _BASE64.fullmatch(line.strip()) is not None and not line.isalpha()


def _is_data(line: str) -> bool:
    return _is_base64(line) or _is_json(line.strip().removesuffix(","))


def _is_json(text: str) -> bool:
    """Tell an object or a list of objects in JSON; prose in brackets is none."""
    if '":' not in text or text[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _is_scene(text: str) -> bool:
    """Tell the JSON of a drawing or a canvas."""
    return '"type"' in text[:200] and ('"elements"' in text[:400] or '"nodes"' in text[:400])
