"""Read the sessions of Codex that were held in a workspace.

    <CODEX_HOME>/sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl
    <CODEX_HOME>/archived_sessions/rollout-<time>-<id>.jsonl

The first record says where a session was held (`cwd`). What a person typed is read from the events, where it
is without the instructions that the program adds; what the model answered from the items of the conversation.
Each of the two has the other's words again. Measured with Codex 0.169.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from memline.shared.config.schema import AgentSettings
from memline.shared.sources.discover import DiscoveredFile, discovered, status_of
from memline.shared.sources.paths import FileLocation, is_transcript_name, printable
from memline.shared.sources.transcripts.compressed import ENDING, is_there, open_compressed
from memline.shared.sources.transcripts.opening import Line, OpenTranscript, open_file
from memline.shared.sources.transcripts.stores import (
    TranscriptFolder,
    TranscriptFolders,
    TranscriptFormat,
    TranscriptStore,
    Turn,
    is_held_in,
    place_in,
    text_of,
)
from memline.shared.sources.transcripts.transcript_lines import parse
from memline.shared.tables import as_dict, as_list

NAME = "codex"

_DATED, _ARCHIVED = "sessions", "archived_sessions"

_RELEVANT = rb'"type"\s*:\s*"(?:user_message|UserMessage|message)"'
_COUNTED = re.compile(_RELEVANT + rb'|"thread_rolled_back"')

#: An editor's extension puts what is open there in front of the request.
_REQUEST = "## My request for Codex:"


class _Sessions(TranscriptFolder):
    """The sessions of a day, or the archived ones. A compressed one keeps the name that it had before."""

    def locate(self, path: str) -> FileLocation | None:
        return super().locate(path.removesuffix(ENDING))

    def _stored(self, absolute: str) -> str:
        return is_there(absolute)

    def _open(self, anchor: str, relative: str) -> OpenTranscript:
        return (open_compressed if relative.endswith(ENDING) else open_file)(anchor, relative)

    def _discovered(self, entry: os.DirEntry[str]) -> DiscoveredFile | None:
        name = entry.name.removesuffix(ENDING)
        if name == entry.name:
            return super()._discovered(entry)
        belongs = self._belongs is not None and self._belongs(entry.path)
        if not is_transcript_name(name) or os.path.lexists(entry.path.removesuffix(ENDING)) or not belongs:
            return None
        status = status_of(entry)
        return discovered(printable(self.prefix + name), entry.path, status) if status else None


def _find(settings: AgentSettings) -> tuple[TranscriptStore, ...]:
    belongs = is_held_in(os.path.abspath(settings.workspace), _place_of)

    def places(root: str) -> list[TranscriptFolder]:
        found = [day for day in _folders(root) if day.count(os.sep) == _DAY_DEPTH or day == _ARCHIVED]
        return [_Sessions(root, each, prefix=f"sessions/{NAME}/", belongs=belongs) for each in found]

    def between(root: str) -> list[str]:
        return [root, *(os.path.join(root, each) for each in _folders(root))]

    root = str(settings.transcript_places[NAME])
    return (TranscriptFolders(root, NAME, places=places, between=between, taken_back=_taken_back),)


#: Separators in `sessions/2026/11/23`.
_DAY_DEPTH = 3


def _folders(root: str) -> list[str]:
    """List the folders of sessions and those above them, relative to `root`. Raises OSError."""
    names = set(os.listdir(root))
    found = [_ARCHIVED] if _ARCHIVED in names else []
    level = [_DATED] if _DATED in names else []
    for depth in range(_DAY_DEPTH + 1):
        found += level
        if depth < _DAY_DEPTH:
            level = [os.path.join(above, name) for above in level for name in _numbered(root, above)]
    return found


def _numbered(root: str, folder: str) -> list[str]:
    try:
        with os.scandir(os.path.join(root, folder)) as listing:
            return sorted(each.name for each in listing if each.name.isdigit() and each.is_dir())
    except OSError:
        return []


@lru_cache(maxsize=8192)
def _place_of(absolute: str, _inode: int) -> str:
    """Return the folder in which a session was held. Raises ValueError for what is no session of a person."""
    folder, name = os.path.split(absolute)
    with (open_compressed if name.endswith(ENDING) else open_file)(folder, name) as opened:
        meta = _payload(parse(next(opened.lines, b"")) or {}, "session_meta")
    if isinstance(meta.get("source"), dict):
        raise ValueError("a model was the user")
    return place_in(meta)


def _payload(record: dict[str, Any], kind: str) -> dict[str, Any]:
    return as_dict(record.get("payload")) if record.get("type") == kind else {}


def _prompt(record: dict[str, Any]) -> tuple[str, str] | None:
    """Return in which form a record has what a person typed, and its text, empty of an image; or None."""
    event = _payload(record, "event_msg")
    form, item = str(event.get("type")), event.get("item")
    if form == "user_message":
        text = event.get("message")
    elif form == "item_completed" and isinstance(item, dict) and item.get("type") == "UserMessage":
        text = text_of(as_list(item.get("content")))
    else:
        return None
    return form, text.rpartition(_REQUEST)[2].strip() if isinstance(text, str) else ""


def _read(record: dict[str, Any]) -> Turn:
    """Read a record: what a person typed, or what the model answered."""
    stamps = (record.get("timestamp"),)
    if (prompt := _prompt(record)) and prompt[1]:
        return Turn(role="user", text=prompt[1], stamps=stamps)
    item = _payload(record, "response_item")
    if item.get("type") == "message" and item.get("role") == "assistant":
        text = text_of(as_list(item.get("content")), "output_text")
        return Turn(role="assistant", text=text, stamps=stamps)
    return Turn(stamps=stamps)


def _taken_back(lines: Iterable[Line]) -> Iterator[int]:
    """Yield the lines of turns that were rolled back, and of messages that stand there twice."""
    #: The lines of each turn; one begins with what a person typed.
    turns: list[list[int]] = [[]]
    #: What was typed last, while the model has not answered.
    typed: tuple[str, str] | None = None
    for number, line in lines:
        record = parse(line) if _COUNTED.search(line) else None
        if record is None:
            continue
        event, prompt = _payload(record, "event_msg"), _prompt(record)
        if event.get("type") == "thread_rolled_back":
            count = event.get("num_turns")
            for _ in range(min(count, len(turns) - 1) if isinstance(count, int) else 0):
                yield from turns.pop()
            typed = None
        elif prompt and typed and prompt[1] == typed[1] and prompt[0] != typed[0]:
            # Between two forms of the file both were written.
            yield number
        elif prompt:
            turns.append([number])
            typed = prompt
        elif _read(record).role:
            turns[-1].append(number)
            typed = None


FORMAT = TranscriptFormat(name=NAME, relevant=_RELEVANT, read=_read, find=_find)
