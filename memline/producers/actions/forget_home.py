"""Take what was forgotten out of the other files of the home: exports, backups, logs, damaged indexes."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from memline.producers.actions.forget_targets import terms_of_lines
from memline.producers.bridges.qmd.updates import Updater
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import IndexFault
from memline.shared.index import copies, driver
from memline.shared.search.query import Term
from memline.shared.sources.folding import fold

if TYPE_CHECKING:
    from sqlite3 import Connection

#: The file with one line for every time something was forgotten, without its text.
AUDIT = "forgotten.jsonl"

#: Bytes of a line at least that is looked for in other files of the home: shorter ones stand everywhere.
MIN_NEEDLE = 12

#: Bytes of a line that are looked at before and after a word of it.
_LONGEST_LINE = 4_096
_LINE_END = re.compile(rb"[\x00-\x08\x0a-\x1f]+")

#: Bytes of such a file read at a time.
_BLOCK = 1 << 20

#: Files of the home that hold no text of notes and may be large.
_MODELS = (".gguf", ".onnx", ".onnx_data")


def holding(agent: AgentSettings, terms: Sequence[Term]) -> dict[Path, set[bytes]]:
    """Find the other files of the home with lines that hold every term; return those lines by file."""
    words = [term.typed or term.label for term in terms]
    # Other forms of the longest word begin as it does, as it was typed and as it is compared.
    longest = max(words, key=len)
    stubs = {each[: max(3, len(each) - 3)] for each in (longest, fold(longest))}
    stub = re.compile(b"|".join(re.escape(each.encode()) for each in sorted(stubs)), re.IGNORECASE)
    found: dict[Path, set[bytes]] = {}
    for path in _others(agent):
        lines = sorted({line.strip() for line in _lines_with(path, stub)})
        held = terms_of_lines([line.decode("utf-8", "replace") for line in lines], terms) if lines else []
        if chosen := {line for line, each in zip(lines, held, strict=True) if len(each) == len(terms)}:
            found[path] = chosen
    return found


def _lines_with(path: Path, stub: re.Pattern[bytes]) -> Iterator[bytes]:
    """Yield the lines of any file around the matches; a control character ends a line, too."""
    with (
        suppress(OSError, ValueError),
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        end = 0
        for match in stub.finditer(content):
            if match.start() < end:
                continue
            before = content[max(end, match.start() - _LONGEST_LINE) : match.start()]
            after = content[match.start() : match.start() + _LONGEST_LINE]
            head, tail = _LINE_END.split(before)[-1], _LINE_END.split(after, maxsplit=1)[0]
            end = match.start() + len(tail)
            yield head + tail


def _others(agent: AgentSettings) -> Iterator[Path]:
    """Yield the files of the home that are no index in use."""
    for path in sorted(agent.home.rglob("*")):
        if not path.is_symlink() and path.is_file() and not _is_left_alone(path, agent):
            yield path


def clean(
    agent: AgentSettings, hashes: dict[str, set[bytes]], needles: set[bytes], found: Collection[bytes]
) -> tuple[list[str], list[str]]:
    """Clean exports, backups, logs and leftovers of the home; also name other files that hold the text.

    `found`: those of the needles that are in no text of `hashes`, which are by path.
    """
    # It holds whole notes, and is made again of what is left of them.
    cleaned, others = Updater(agent).erase(), list[str]()
    for path in _others(agent):
        if _clean(path, hashes, needles, found):
            cleaned.append(str(path))
        elif _holds(path, needles):
            others.append(str(path))
    return cleaned, others


def other_indexes(agent: AgentSettings, hashes: Collection[bytes], needles: Collection[bytes]) -> list[str]:
    """Name the indexes of other agents and workspaces in the home that hold some of it: they have their own
    list of what was forgotten.
    """
    found = []
    for path in sorted(agent.index_path.parent.glob(f"*{agent.index_path.suffix}")):
        if path != agent.index_path and not path.name.startswith("."):
            with suppress(IndexFault), driver.reading(path) as connection:
                if _has_text(connection, hashes, needles):
                    found.append(str(path))
    return found


def _has_text(connection: Connection, hashes: Collection[bytes], needles: Collection[bytes]) -> bool:
    by_hash = "SELECT 1 FROM chunks WHERE text_hash = ? LIMIT 1"
    if any(connection.execute(by_hash, (digest,)).fetchone() for digest in hashes):
        return True
    texts = connection.execute("SELECT CAST(text AS BLOB) FROM chunks") if needles else ()
    return any(needle in text for (text,) in texts for needle in needles)


def _is_left_alone(path: Path, agent: AgentSettings) -> bool:
    """Tell whether a file of the home is an index in use, or nothing in which a text of ours can be.

    An index in use is never opened but by SQLite: its locks would be lost.
    """
    if path.name.endswith((*copies.COMPANIONS, *_MODELS)) or path.name in (AUDIT, "accounts.sqlite"):
        return True
    is_index = path.parent == agent.index_path.parent and path.suffix == agent.index_path.suffix
    return is_index and not path.name.startswith(".")


def _clean(path: Path, hashes: dict[str, set[bytes]], needles: set[bytes], found: Collection[bytes]) -> bool:
    is_leftover = path.suffix == ".part" or ".sqlite.corrupt-" in path.name or path.name.startswith(".")
    is_log = ".log" in path.suffixes
    if not (is_leftover or is_log) or not _holds(path, needles):
        return False
    if is_log:
        return _overwrite(path, needles)
    path.unlink(missing_ok=True)
    return True


def _holds(path: Path, needles: set[bytes]) -> bool:
    try:
        with path.open("rb") as file:
            return any(True for _ in _places(file, needles))
    except OSError:
        return False


def _overwrite(path: Path, needles: set[bytes]) -> bool:
    """Put asterisks where the needles stand in a log that its process may go on with.

    The file is neither cut nor replaced, so no line is lost that is added meanwhile.
    """
    is_found = False
    with path.open("r+b", buffering=0) as file:
        for first, length in _places(file, needles):
            os.pwrite(file.fileno(), b"*" * length, first)
            is_found = True
    return is_found


def _places(file: IO[bytes], needles: set[bytes]) -> Iterator[tuple[int, int]]:
    """Yield where in a file a needle stands: its first byte, and how many they are."""
    overlap = max(map(len, needles), default=1) - 1
    start, data = 0, b""
    while block := file.read(_BLOCK):
        kept = data[-overlap:] if overlap else b""
        start, data = start + len(data) - len(kept), kept + block
        for needle in needles:
            at = data.find(needle)
            while at >= 0:
                yield start + at, len(needle)
                at = data.find(needle, at + 1)
