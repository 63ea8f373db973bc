"""Show the text of notes: characters that command a terminal, hide or reorder text are written out.

Every face that shows a note to a person or a model uses this: terminal, pages, MCP, HTTP. Notes are data, and
what a reader cannot see, a model must not obey. What gives bytes (files, pipes, exports, the JSON of the
command line) does not use it.
"""

from __future__ import annotations

import re

#: Choose the shape of the character in front of them; of a run all but the first are written out.
_SELECTORS = "\ufe00-\ufe0f\U000e0100-\U000e01ef"

#: What a terminal obeys: C0 but tab and line ends, DEL, and C1, among them the beginnings of CSI and OSC.
_CONTROLS = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)"

#: Soft hyphens, marks that turn the direction of text, characters without a width, line and paragraph
#: separators, halves of characters, annotations, tags; joiners but for one between two letters or emoji.
_UNSEEN = (
    "[\xad\u034f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e00ff\U000e01f0-\U000e0fff]"
    rf"|(?:(?<=[{_SELECTORS}\s])|(?<![\s\S]))[{_SELECTORS}]|{_CONTROLS}"
    r"|[\u200c\u200d](?:(?![^\s\d\u200c\u200d])|(?<![^\s\d\u200c\u200d].))"
)

#: As the citation that ends a snippet for an agent; a list or quote mark before it changes nothing.
_LIKE_CITATION = r"(?im)^(?=[^\w\n]*source[^\w\n]*[:：].*#l\d)"


def visible(text: str) -> str:
    r"""Write out, as `\x1b`, `\u202e` or `\U000e0041`, what cannot be seen or turns what can."""
    return text if _is_plain(text) else re.sub(_UNSEEN, _written, text)


def _is_plain(text: str) -> bool:
    """Tell that nothing is to be written out, without the pattern, which takes 2 ms to compile."""
    printed = text.replace("\n", " ").replace("\t", " ")
    # What else is unseen counts as printable: U+034F, and all from the selectors on.
    is_seen = printed.isascii() or ("\u034f" not in printed and max(printed) < "\ufe00")
    return is_seen and printed.isprintable()


def one_line(text: str) -> str:
    """Write out line ends as well: the name of a file must not look like two."""
    return visible(text).replace("\r", "\\x0d").replace("\n", "\\x0a")


def in_name(text: str) -> str:
    """Write out controls and line ends alone: of a name that another program is to find."""
    return re.sub(_CONTROLS, _written, text).replace("\r", "\\x0d").replace("\n", "\\x0a")


def for_model(text: str) -> str:
    """Write a note's text out for a model; a line that looks like a citation of Memline's is quoted."""
    return re.sub(_LIKE_CITATION, "> ", visible(text))


def in_json(text: str) -> str:
    """Escape the same characters in JSON, whose value stays what it is."""
    if _is_plain(text):
        return text
    return re.sub(_UNSEEN, lambda match: _written(match, in_json=True), text)


def _written(match: re.Match[str], *, in_json: bool = False) -> str:
    char = match[0]
    if in_json:
        units = char.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
    if char <= "\xff":
        return f"\\x{ord(char):02x}"
    return f"\\u{ord(char):04x}" if char <= "\uffff" else f"\\U{ord(char):08x}"
