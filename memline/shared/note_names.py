"""Tell notes by the names of their files, and fold letters that are one to a reader and two to a computer.

NFKC makes of full-width and half-width forms, ligatures and raised figures what they stand for, and of
letters that come in parts (file names of macOS) whole ones. ё is е to most who write it, ß is ss, ø is o and
ł is l where the keyboard has none, I is also the capital of ı, and ٣ is 3. Hyphens of every kind are one,
what is a character reference (`Caf&eacute;`) is its character, and what cannot be seen within a word is
left out. Upper case and the accents of Latin letters are SQLite's: `unicode61 remove_diacritics 2`.
"""

from __future__ import annotations

import os
import re
from html import unescape
from unicodedata import combining, normalize

#: Endings of a Markdown file, in any case: `README.MD` is one too.
MARKDOWN = (".md", ".markdown", ".mdown", ".mkd", ".mdx", ".qmd")

#: All Markdown of a folder, in the words of a pattern.
ANY_MARKDOWN = f"**/*.{{{','.join(ending[1:] for ending in MARKDOWN)}}}"

#: Hidden names of editors and systems that end like a note: Emacs' locks, macOS' resource forks.
_LITTER = (".#", "._")


def is_markdown(name: str) -> bool:
    """Tell whether a file of this name is Markdown; of a path only the ending counts."""
    return name.lower().endswith(MARKDOWN) and not name.startswith(_LITTER)


def without_ending(name: str) -> str:
    """Return the name or path of a note without the ending of Markdown, if it has one."""
    lower = name.lower()
    return next((name[: -len(ending)] for ending in MARKDOWN if lower.endswith(ending)), name)


_LETTERS = str.maketrans(
    {"ё": "е", "Ё": "Е", "ß": "ss", "ẞ": "SS", "ı": "i", "ς": "σ", "ی": "ي", "ى": "ي", "ک": "ك"}
    | {"æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "þ": "th", "Þ": "Th"}
    | dict(zip("øØłŁđĐðÐħĦάέήίόύώϊϋΐΰΆΈΉΊΌΎΏΪΫ", "oOlLdDdDhHαεηιουωιυιυΑΕΗΙΟΥΩΙΥ", strict=True))
    # Arabic, Persian, Devanagari and Bengali figures.
    | {chr(zero + figure): str(figure) for zero in (0x660, 0x6F0, 0x966, 0x9E6) for figure in range(10)}
    | dict.fromkeys("\u00ad\u0640\u200b\u2060\ufeff", "")
    | dict.fromkeys("\u2010\u2011\u2012\u2013\u2212", "-")
)
#: Most texts have none of these, and are not translated.
_HAS_LETTERS = f"[{''.join(map(chr, _LETTERS))}]"
_REFERENCE = r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});"


def fold(text: str) -> str:
    """Return `text` as it is compared."""
    if "&" in text:
        # Lines stay as many as they are.
        text = re.sub(_REFERENCE, lambda match: unescape(match[0]).replace("\n", " "), text)
    if text.isascii():
        return text
    made = normalize("NFKC", text)
    return made.translate(_LETTERS) if re.search(_HAS_LETTERS, made) else made


def path_key(path: str) -> str:
    """Return a path or a name as it is compared, whatever its case."""
    return fold(path).casefold()


def name_key(name: str) -> str:
    """Bring a title, an alias or the name of a file into the form in which they are compared."""
    plain = name.strip().removeprefix("[[").removesuffix("]]").partition("|")[0]
    return "-".join(path_key(plain).replace("_", " ").replace("-", " ").split())


def stem_key(path: str) -> str:
    """Return the same of the name of a note's file."""
    return name_key(os.path.splitext(path.rpartition("/")[2])[0])


def without_accents(text: str) -> str:
    """Take the accents off, as SQLite does when it looks words up."""
    return (
        text if text.isascii() else "".join(each for each in normalize("NFKD", text) if not combining(each))
    )
