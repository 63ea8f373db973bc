"""Take over the conversations of an export of ChatGPT or Claude, the zip as it was downloaded.

All of it is read once before anything is written: what is no export, is damaged, or would fill memory or
disk, changes nothing. A record that is not a conversation is left out, and named. Conversations are kept
redacted beside the index, so the zip may be deleted. To import again adds what is new; what was forgotten
stays forgotten. Killed and run again it goes on.
"""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path, PurePosixPath
from typing import Any

from memline.shared.config.schema import AgentSettings
from memline.shared.config.transcript_programs import IMPORTED, TRANSCRIPT_PROGRAMS
from memline.shared.config.workspaces import imports_folder
from memline.shared.digests import sha256
from memline.shared.index import copies
from memline.shared.index.archive import ArchiveRefused
from memline.shared.sources.transcripts.formats import format_named
from memline.shared.sources.transcripts.imported import empty, lines_of, path_of, updated
from memline.shared.sources.transcripts.stores import Conversation
from memline.shared.sources.transcripts.transcript_lines import seconds_of
from memline.shared.values import value

#: Bytes that a member of the zip has at most, and how many times what is stored of it.
MAX_MEMBER_BYTES = 1 << 30
MAX_RATIO = 100

#: The flag of a member that is encrypted.
_ENCRYPTED = 1

#: Characters of one conversation.
MAX_CHARS = 128 << 20

#: Characters that are read at a time.
_BLOCK = 1 << 20

#: Large accounts have several files, perhaps in a folder.
_CONVERSATIONS = re.compile(r"conversations(?:-\d+)?\.json")

#: Ids that are names of files as they are; the program's own are UUIDs.
_PLAIN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")

_BLANK = " \t\r\n"

#: What becomes of a conversation.
NEW, GROWN, KNOWN, FORGOTTEN = "new", "grown", "known", "forgotten"


@value
class TakenChats:
    """What was taken over of an export."""

    agent: str
    #: The program that wrote it.
    program: str
    path: Path
    #: Where the conversations are kept.
    folder: Path
    #: Conversations that are new, that have more than before, that were there, and that were forgotten.
    new: int = 0
    grown: int = 0
    known: int = 0
    forgotten: int = 0
    #: Those without a text of a person or the model.
    empty: int = 0
    #: Messages of the new ones and of those that have grown.
    messages: int = 0
    #: Records that are not conversations, with what is wrong with them.
    left_out: tuple[str, ...] = ()


def take_in(
    agent: AgentSettings, command: str, path: Path, *, on_progress: Callable[[int], None] = lambda _: None
) -> TakenChats:
    """Take over the conversations of an export; `command`: what `memline import` calls its program.

    Raises ArchiveRefused, and IndexFaults when they cannot be written.
    """
    name = IMPORTED[command]
    folder = imports_folder(agent.index_path) / name
    counts = dict.fromkeys((NEW, GROWN, KNOWN, FORGOTTEN, "empty", "messages"), 0)
    left_out: list[str] = []
    with _opened(path) as archive:
        for _ in _conversations(archive, path, name, left_out.append):
            pass
        for number, conversation in enumerate(_conversations(archive, path, name), 1):
            on_progress(number)
            if not conversation.said:
                counts["empty"] += 1
                continue
            became = keep(folder / f"{_file_name(conversation.id)}.jsonl", lines_of(conversation))
            counts[became] += 1
            counts["messages"] += len(conversation.said) if became in (NEW, GROWN) else 0
    title = TRANSCRIPT_PROGRAMS[name].title
    return TakenChats(
        agent=agent.agent, program=title, path=path, folder=folder, left_out=tuple(left_out), **counts
    )


def keep(file: Path, data: bytes) -> str:
    """Write a conversation, unless it was forgotten or is there as new as this; returns what became of it.

    Raises IndexUnwritable.
    """
    became = NEW
    if file.exists():
        there = file.read_bytes()
        if not there:
            return FORGOTTEN
        before, now = seconds_of(updated(there)), seconds_of(updated(data))
        if data == there or now < before or (now == before and len(data) <= len(there)):
            return KNOWN
        became = GROWN
    _make_folders(file)
    with copies.private_file(file) as part:
        part.write_bytes(data)
    return became


def _make_folders(file: Path) -> None:
    """Make the folder of its program, of the imports and of the index, for their owner alone."""
    for folder in reversed(file.parents[:3]):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)


def kept(index: Path) -> list[Path]:
    """List the files of the conversations beside an index, those that were forgotten too."""
    return sorted(file for file in imports_folder(index).glob("*/*.jsonl") if path_of(file))


def copy(index: Path, target: Path, *, forgets: bool) -> None:
    """Copy the conversations of an index beside another file; what is as new there, or forgotten, stays.

    `forgets`: what was forgotten here is forgotten there. Raises OSError and IndexUnwritable.
    """
    for file in kept(index):
        beside = imports_folder(target) / file.parent.name / file.name
        if data := file.read_bytes():
            keep(beside, data)
        elif not beside.exists():
            _make_folders(beside)
            beside.touch(mode=0o600)
        elif forgets:
            empty(beside)


def _file_name(identity: str) -> str:
    return (
        identity if _PLAIN_ID.fullmatch(identity) else sha256(identity.encode("utf-8", "replace")).hexdigest()
    )


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open the zip, each member of which is safe to read. Raises ArchiveRefused."""
    if not path.is_file():
        raise ArchiveRefused(f"{path} is not a file", hint="name the zip as it was downloaded")
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                _check(member, path)
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise refused(path, f"it is not a whole zip ({error})") from error


def _check(member: zipfile.ZipInfo, path: Path) -> None:
    name = member.orig_filename
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if ".." in parts or name.startswith(("/", "\\")) or re.match("[A-Za-z]:", name) or "\0" in name:
        raise refused(path, f"its member {name[:80]!r} leads out of it")
    if member.flag_bits & _ENCRYPTED:
        raise refused(path, f"its member {name[:80]!r} needs a password")
    # What holds the conversations is what is to be read.
    is_needed = _CONVERSATIONS.fullmatch(PurePosixPath(name).name)
    without = "" if is_needed else f"it is read when that is taken out: zip -d {path.name} {name[:80]!r}"
    if member.file_size > MAX_MEMBER_BYTES:
        raise refused(path, f"its member {name[:80]!r} has more than {MAX_MEMBER_BYTES >> 30} GB", without)
    if member.file_size > MAX_RATIO * max(1, member.compress_size):
        raise refused(path, f"its member {name[:80]!r} inflates more than {MAX_RATIO} times", without)


def _conversations(
    archive: zipfile.ZipFile, path: Path, name: str, leave_out: Callable[[str], None] = lambda _: None
) -> Iterator[Conversation]:
    """Yield the conversations, one at a time; `leave_out` is told of each record that is none.

    Raises ArchiveRefused for what is no export of this program: also, at the end, when no record is one.
    """
    members = [
        each for each in archive.infolist() if _CONVERSATIONS.fullmatch(PurePosixPath(each.filename).name)
    ]
    if not members:
        raise refused(path, "it has no conversations.json")
    read = format_named(name).conversation
    assert read is not None
    # Of no conversation so far: what is wrong with the first record, and whose it may be.
    wrong: tuple[str, str] | None = None
    has_some = False
    for member in sorted(members, key=lambda each: each.filename):
        with archive.open(member) as file:
            for number, record in enumerate(_elements(file, path, member.filename), 1):
                try:
                    conversation = read(record if isinstance(record, dict) else {})
                except ValueError as error:
                    where = f"number {number} of {member.filename} is not a conversation of"
                    words = f"{where} {TRANSCRIPT_PROGRAMS[name].title} ({error})"
                    wrong = wrong or (words, _whose(record, path))
                    leave_out(words)
                else:
                    has_some = True
                    yield conversation
    if wrong and not has_some:
        raise refused(path, *wrong)


def _whose(record: object, path: Path) -> str:
    """Return the command that takes an export with this record; empty when none does."""
    for command, name in IMPORTED.items():
        read = format_named(name).conversation
        try:
            if read is not None and isinstance(record, dict) and read(record):
                return f"memline import {command} {path}"
        except ValueError:
            continue
    return ""


def _elements(file: Any, path: Path, member: str) -> Iterator[Any]:
    """Yield the elements of an array in JSON, holding one at a time. Raises ArchiveRefused."""
    reader = TextIOWrapper(file, "utf-8-sig", errors="replace")
    decode = json.JSONDecoder(strict=False).raw_decode
    text, at = reader.read(_BLOCK), 0

    def skip(blank: str) -> str:
        """Go on to what is no blank, and return it; empty at the end."""
        nonlocal text, at
        while True:
            while at < len(text) and text[at] in blank:
                at += 1
            if at < len(text):
                return text[at]
            text, at = reader.read(_BLOCK), 0
            if not text:
                return ""

    if skip(_BLANK) != "[":
        raise refused(path, f"{member} is not an array of conversations")
    at += 1
    while (mark := skip(_BLANK + ",")) != "]":
        if not mark:
            raise refused(path, f"{member} is cut short")
        try:
            element, at = decode(text, at)
        except (ValueError, RecursionError) as error:
            # It may go on; twice as much is read each time, so that no part is read often.
            more = reader.read(max(_BLOCK, len(text) - at))
            text, at = text[at:] + more, 0
            if not more or len(text) > MAX_CHARS:
                raise refused(path, f"{member} is not valid JSON, or cut short ({error})") from error
            continue
        yield element
    # To its end: only there its checksum is compared.
    at += 1
    if skip(_BLANK):
        raise refused(path, f"{member} has something behind its array")


def refused(path: Path, why: str, hint: str = "") -> ArchiveRefused:
    return ArchiveRefused(
        f"{path} cannot be imported: {why}; nothing was changed",
        hint=hint or "download the export again, and name the zip as it is",
    )
