"""Keep the conversations of exports: redacted, a file each, beside the index of an agent.

    <index>.imports/<program>/<id>.jsonl     the first line is the head, each other one a message
    <the same>, empty                        it was forgotten, and is not imported again

What differs between programs is how an export has a conversation: their modules read that.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from memline.shared.config.schema import AgentSettings
from memline.shared.config.transcript_programs import IMPORTED
from memline.shared.config.workspaces import IMPORTS_SUFFIX, imports_folder
from memline.shared.sources.paths import TRANSCRIPT_PREFIX, is_transcript_name
from memline.shared.sources.transcripts.stores import (
    Conversation,
    TranscriptFolder,
    TranscriptFormat,
    TranscriptStore,
    own_turn,
)
from memline.shared.sources.transcripts.transcript_lines import masked


def imported_format(name: str, conversation: Callable[[dict[str, Any]], Conversation]) -> TranscriptFormat:
    """Return the format of a program whose conversations are imported."""

    def find(settings: AgentSettings) -> tuple[TranscriptStore, ...]:
        root = imports_folder(settings.index_path)
        if not (root / name).is_dir():
            return ()
        prefix = f"{TRANSCRIPT_PREFIX}{name}/"
        return (TranscriptFolder(str(root), name, prefix=prefix, belongs=_is_kept),)

    return TranscriptFormat(name=name, relevant=rb"^\{", read=own_turn, find=find, conversation=conversation)


def _is_kept(absolute: str) -> bool:
    try:
        return os.lstat(absolute).st_size > 0
    except OSError:
        return False


def is_imported(path: str) -> bool:
    """Tell whether a ledger path is that of an imported conversation."""
    folders, _, file = path.removeprefix(TRANSCRIPT_PREFIX).rpartition("/")
    return path.startswith(TRANSCRIPT_PREFIX) and folders in IMPORTED.values() and is_transcript_name(file)


def file_of(settings: AgentSettings, path: str) -> Path:
    """Return the file of an imported conversation."""
    return imports_folder(settings.index_path) / path.removeprefix(TRANSCRIPT_PREFIX)


def path_of(file: Path) -> str:
    """Return the ledger path of a file in some folder of imports; empty for any other file."""
    *_, folder, name, rest = ("", *file.parts)
    path = f"{TRANSCRIPT_PREFIX}{name}/{rest}"
    return path if folder.endswith(IMPORTS_SUFFIX) and is_imported(path) else ""


def empty(file: Path) -> None:
    """Forget the conversation of a file, unless someone deleted that. Raises OSError."""
    with suppress(FileNotFoundError):
        os.truncate(file, 0)


def remove_empty(file: Path) -> None:
    """Let a conversation that was forgotten be imported again. Raises OSError."""
    with suppress(FileNotFoundError):
        if not file.stat().st_size:
            file.unlink()


def lines_of(conversation: Conversation) -> bytes:
    """Write a conversation as it is kept, its secrets masked."""
    title = conversation.title
    head = {
        "title": masked(title)[0] if isinstance(title, str) else None,
        "time": conversation.created,
        "updated": conversation.updated,
    }
    messages = (
        {"role": each.role, "time": each.time, "text": masked(each.text)[0]} for each in conversation.said
    )
    return b"".join(_line(each) for each in (head, *messages))


def updated(data: bytes) -> object:
    """Return when a conversation that is kept was written to last, as its export said."""
    try:
        head = json.loads(data.partition(b"\n")[0])
    except ValueError:
        return None
    return head.get("updated") if isinstance(head, dict) else None


def _line(record: Mapping[str, object]) -> bytes:
    given = {name: each for name, each in record.items() if each is not None}
    return f"{json.dumps(given, ensure_ascii=False)}\n".encode("utf-8", "replace")


def thread(start: Any, above: Callable[[Any], Any]) -> Iterator[Any]:
    """Yield what leads up to the message `start`, from it on; ends at a circle, and where one is missing."""
    seen: set[int] = set()
    while start is not None and id(start) not in seen:
        seen.add(id(start))
        yield start
        start = above(start)


def with_names(text: str, names: list[object]) -> str:
    """Return the text of a message with the names of what was attached to it."""
    attached = ", ".join(dict.fromkeys(name for name in names if isinstance(name, str) and name))
    return "\n".join(filter(None, (text, f"Attached: {attached}" if attached else "")))
