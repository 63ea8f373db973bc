"""Read the sessions of Qwen Code that were held in a workspace.

    <QWEN_HOME>/projects/<path, each character but letters and digits made `-`>/chats/<id>.jsonl

Each record names the one before it (`parentUuid`). That of a rewind names the one before what was taken
back. What a compression replaced was said, and stays. Measured with Qwen Code 0.15.10.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from memline.shared.config.schema import AgentSettings
from memline.shared.sources.transcripts.opening import Line, Span, open_file
from memline.shared.sources.transcripts.stores import (
    TranscriptFormat,
    TranscriptStore,
    Turn,
    in_projects,
    is_held_in,
    place_in,
)
from memline.shared.sources.transcripts.transcript_lines import parse
from memline.shared.tables import as_list

NAME = "qwen"

#: Bytes of the first record that are read: a large file may have been pasted into it.
_LOOK_BYTES = 16 << 20

_RELEVANT = rb'"type"\s*:\s*"(?:user|assistant)"|"custom_title"'
_MESSAGE = re.compile(_RELEVANT)

#: How a record begins. Results of tools are most of a session: they are not parsed for this.
_HEAD = re.compile(rb'\{"uuid":"([^"]+)"')

#: What the program adds: the files that a message names.
_REFERENCED = "--- Content from referenced files ---"


def _find(settings: AgentSettings) -> tuple[TranscriptStore, ...]:
    workspace = os.path.abspath(settings.workspace)
    belongs = is_held_in(workspace, _place_of)
    encoded = tuple(re.sub("[^A-Za-z0-9]", "-", each) for each in (workspace, os.path.realpath(workspace)))

    def projects(root: str) -> list[str]:
        return [name for name in sorted(os.listdir(root)) if name.startswith(encoded)]

    root = str(settings.transcript_places[NAME])
    return (in_projects(root, NAME, projects, _taken_back, belongs=belongs),)


@lru_cache(maxsize=8192)
def _place_of(absolute: str, _inode: int) -> str:
    """Return the folder in which a session was held. Raises ValueError."""
    folder, name = os.path.split(absolute)
    with open_file(folder, name).file as file:
        return place_in(parse(file.readline(_LOOK_BYTES)) or {})


def _read(record: dict[str, Any]) -> Turn:
    """Read a record: what a person typed, what the model answered, or the title of the session."""
    stamps = (record.get("timestamp"),)
    kind, message, payload = record.get("type"), record.get("message"), record.get("systemPayload")
    if record.get("subtype") == "custom_title" and isinstance(payload, dict):
        return Turn(title=payload.get("customTitle"), stamps=stamps)
    # With a subtype a timer or an agent in the background wrote as the user.
    if record.get("subtype") or kind not in ("user", "assistant") or not isinstance(message, dict):
        return Turn(stamps=stamps)
    texts = (
        part.get("text")
        for part in as_list(message.get("parts"))
        if isinstance(part, dict) and not part.get("thought")
    )
    text = "\n".join(each for each in texts if isinstance(each, str))
    if kind == "user":
        text = text.partition(_REFERENCED)[0].strip()
    return Turn(role=kind, text=text, stamps=stamps)


def _taken_back(lines: Iterable[Line]) -> Iterator[Span]:
    """Yield the lines of messages that were taken back."""
    messages = list[Span]()
    #: How many messages there were when a record had been written, by its id.
    reached: dict[object, int] = {}
    for span, line in lines:
        head = _HEAD.match(line)
        if head is None:
            continue
        record = parse(line) if b'"rewind"' in line else None
        if record is not None and record.get("subtype") == "rewind":
            left = reached.get(record.get("parentUuid"), 0)
            yield from messages[left:]
            del messages[left:]
        elif _MESSAGE.search(line):
            messages.append(span)
        reached[head[1].decode("utf-8", "replace")] = len(messages)


FORMAT = TranscriptFormat(name=NAME, relevant=_RELEVANT, read=_read, find=_find)
