"""Read the sessions of Gemini CLI that were held in a workspace.

    ~/.gemini/tmp/<project>/chats/session-<time>-<id>.jsonl        beside chats: .project_root, the path
    ~/.gemini/tmp/<SHA-256 of the path>/chats/session-….json       of older versions, one document

A message that is written again under its id replaces the first one, and `$rewindTo` takes messages back. What
a compression replaced was said, and stays. Measured with Gemini CLI 0.61.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from memline.shared.config.schema import AgentSettings
from memline.shared.digests import sha256
from memline.shared.sources.discover import DiscoveredFile, discovered, status_of
from memline.shared.sources.outcomes import NOT_TEXT, Problem
from memline.shared.sources.paths import TRANSCRIPT_PREFIX, FileLocation, printable
from memline.shared.sources.safe_open import FileRefused
from memline.shared.sources.transcripts.opening import Line, OpenTranscript, open_file
from memline.shared.sources.transcripts.stores import (
    TranscriptFolder,
    TranscriptFolders,
    TranscriptFormat,
    TranscriptStore,
    Turn,
    within,
)
from memline.shared.sources.transcripts.transcript_lines import parse
from memline.shared.values import replace

NAME = "gemini"

_FIRST = "session-"

#: Bytes of a document of an older version, and of the file with a path.
_MAX_DOCUMENT_BYTES, _MAX_PATH_BYTES = 64 << 20, 4096

_RELEVANT = rb'"type"\s*:\s*"(?:user|gemini)"'
_COUNTED = re.compile(_RELEVANT + rb'|"\$rewindTo"')

#: What the program adds: a message of its own, and the files that a message names.
_CONTEXT, _REFERENCED = "<session_context>", "--- Content from referenced files ---"


class _Chats(TranscriptFolder):
    """The sessions of one project. A document of an older version has the name that it gets when resumed."""

    def locate(self, path: str) -> FileLocation | None:
        return super().locate(f"{path}l" if path.endswith(".json") else path)

    def _stored(self, absolute: str) -> str:
        document = absolute[:-1]
        return document if not os.path.lexists(absolute) and os.path.lexists(document) else absolute

    def _open(self, anchor: str, relative: str) -> OpenTranscript:
        opened = open_file(anchor, relative)
        if not relative.endswith(".json"):
            return opened
        with opened:
            document = b"".join(opened.lines) if opened.size <= _MAX_DOCUMENT_BYTES else b""
        return replace(opened, lines=iter(_lines_of(document)))

    def _discovered(self, entry: os.DirEntry[str]) -> DiscoveredFile | None:
        if not entry.name.startswith(_FIRST):
            return None
        if not entry.name.endswith(".json"):
            return super()._discovered(entry)
        if os.path.lexists(f"{entry.path}l"):
            # It was resumed: all of it is there again.
            return None
        status = status_of(entry)
        return discovered(printable(f"{self.prefix}{entry.name}l"), entry.path, status) if status else None


def _lines_of(document: bytes) -> list[bytes]:
    """Return the messages of a document, one a line. Raises FileRefused when it is none."""
    record = parse(document) or {}
    messages = record.get("messages")
    if not isinstance(messages, list):
        raise FileRefused(Problem(outcome=NOT_TEXT, reason="it is not a session of Gemini CLI"))
    kept = ("id", "timestamp", "type", "content", "displayContent")
    lines = (
        json.dumps({name: each[name] for name in kept if name in each}, ensure_ascii=False)
        for each in messages
        if isinstance(each, dict)
    )
    return [f"{line}\n".encode("utf-8", "replace") for line in lines]


def _find(settings: AgentSettings) -> tuple[TranscriptStore, ...]:
    workspace = os.path.abspath(settings.workspace)
    is_within = within(workspace)
    hashes = {sha256(each.encode()).hexdigest() for each in (workspace, os.path.realpath(workspace))}

    def projects(root: str) -> list[str]:
        # A hash last: what it has was copied into the folder with a name, and goes on there.
        names = sorted(os.listdir(root), key=lambda name: (name in hashes, name))
        return [name for name in names if name in hashes or _is_held_in(root, name, is_within)]

    root = str(settings.transcript_places[NAME] / "tmp")

    def places(root: str) -> list[TranscriptFolder]:
        chats = [os.path.join(project, "chats") for project in projects(root)]
        found = [each for each in chats if os.path.isdir(os.path.join(root, each))]
        return [_Chats(root, each, prefix=f"{TRANSCRIPT_PREFIX}{NAME}/") for each in found]

    def between(root: str) -> list[str]:
        return [root, *(os.path.join(root, each) for each in projects(root))]

    return (TranscriptFolders(root, NAME, places=places, between=between, taken_back=_taken_back),)


def _is_held_in(root: str, project: str, is_within: Callable[[str], bool]) -> bool:
    try:
        with open_file(root, os.path.join(project, ".project_root")) as opened:
            place = next(opened.lines, b"")[:_MAX_PATH_BYTES].decode("utf-8", "replace").strip()
    except (OSError, ValueError, FileRefused):
        return False
    return is_within(os.path.normpath(place))


def _read(record: dict[str, Any]) -> Turn:
    """Read a message: what a person typed, or what the model answered."""
    stamps = (record.get("timestamp"),)
    if record.get("type") == "gemini":
        return Turn(role="assistant", text=_text_of(record.get("content")), stamps=stamps)
    if record.get("type") != "user":
        return Turn(stamps=stamps)
    shown = record.get("displayContent")
    text = _text_of(record.get("content") if shown is None else shown).partition(_REFERENCED)[0].strip()
    return Turn(role="user", text="" if text.startswith(_CONTEXT) else text, stamps=stamps)


def _text_of(content: object) -> str:
    """Return the text of a message: a text, a part, or the parts of text among others."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content]
    texts = (part.get("text") if isinstance(part, dict) else part for part in parts)
    return "\n".join(text for text in texts if isinstance(text, str))


def _taken_back(lines: Iterable[Line]) -> Iterator[int]:
    """Yield the lines of messages that were written again or taken back."""
    #: Where each message was written last, by its id, in the order of the conversation.
    messages: dict[str, int] = {}
    for number, line in lines:
        record = parse(line) if _COUNTED.search(line) else None
        if record is None:
            continue
        target, identity = record.get("$rewindTo"), record.get("id")
        if isinstance(target, str):
            known = list(messages)
            for each in known[known.index(target) if target in messages else 0 :]:
                yield messages.pop(each)
        elif isinstance(identity, str):
            if identity in messages:
                yield messages[identity]
            messages[identity] = number


FORMAT = TranscriptFormat(name=NAME, relevant=_RELEVANT, read=_read, find=_find)
