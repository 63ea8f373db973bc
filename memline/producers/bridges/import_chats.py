"""Take over the conversations of an export of ChatGPT or Claude as notes, from the zip as it was downloaded.

    imported/chatgpt/2026-02-10-boats-in-oslo-1f3a9c2e.md     a conversation, secrets masked
    imported/chatgpt/.imported.jsonl                          what was imported, up to which message

A further import adds what is new behind the last message that was imported, so lines that were forgotten do
not return. A note that is not there any more was deleted, moved or forgotten, and is not written again.
Neither company publishes the form of its export: this is what several programs that read them agree on.
"""

import json
import os
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from memline.shared.config.schema import AgentSettings
from memline.shared.errors import MemlineError, PathNotAllowed
from memline.shared.sessions.said import seconds_of
from memline.shared.sessions.transcripts import masked
from memline.shared.sources.paths import MEMORY_FOLDER, MemoryPaths
from memline.shared.sources.safe_open import FileRefused, open_regular
from memline.shared.sources.writing import append
from memline.shared.values import as_dict, as_list, as_text

#: Bytes of a file with conversations, and how many times as much as it takes in the zip.
MAX_BYTES, MAX_RATIO = 1 << 29, 100

#: It takes half a character, and control characters.
_DECODER = json.JSONDecoder(strict=False)

#: Large accounts have several files, perhaps in a folder. No other member of the zip is opened.
_CONVERSATIONS = re.compile(r"conversations(?:-\d+)?\.json")

_FENCE = re.compile(r"^ {0,3}```", re.MULTILINE)

#: What was imported: a line for each import of a conversation, of which the last counts.
_RECORD = ".imported.jsonl"

#: Who said what, and when (seconds since the epoch; 0: not known).
Said = tuple[str, str, float]


class ExportRefused(MemlineError):
    """The file is no export of this program, or is damaged; what was read before it is kept."""


class TakenChats(msgspec.Struct, frozen=True, kw_only=True):
    """What was taken over of an export."""

    agent: str
    #: The folder of the notes, relative to the workspace.
    folder: str
    #: Conversations that are new, that have more than before, that were there, and whose note is gone.
    new: int = 0
    grown: int = 0
    known: int = 0
    gone: int = 0
    #: Records that are no conversation, and conversations that cannot be written, with the reason.
    left_out: tuple[str, ...] = ()


def take_in(agent: AgentSettings, program: str, path: Path) -> TakenChats:
    """Write the conversations of an export below `imported/`, or `memory/imported/` beside a `MEMORY.md`.

    Safe twice and after a kill: what is there is not written again. Raises ExportRefused.
    """
    root = f"imported/{program}"
    if not MemoryPaths.of(agent).is_whole:
        root = f"{MEMORY_FOLDER}/{root}"
    counts = dict.fromkeys(("new", "grown", "known", "gone"), 0)
    left_out: list[str] = []
    known: dict[str, tuple[str, float]] = {}
    with suppress(FileRefused), os.fdopen(open_regular(str(agent.workspace), f"{root}/{_RECORD}")) as file:
        for line in file:
            # Half a line is left by a process that was killed.
            with suppress(ValueError, KeyError, TypeError):
                row = json.loads(line)
                known[row["id"]] = os.path.basename(row["note"]), float(row["until"])
    for number, record in enumerate(_records(path), 1):
        identity, title, said = PROGRAMS[program](record)
        if not identity and number == 1:
            raise ExportRefused(f"{path} is no export of {program}")
        if not identity:
            left_out.append(f"number {number} is no conversation")
        elif said:
            tag = sha256(identity.encode("utf-8", "replace")).hexdigest()[:16]
            try:
                counts[_keep(str(agent.workspace), root, known.get(tag), tag, title, said)] += 1
            except (PathNotAllowed, OSError) as error:
                left_out.append(f"number {number}: {error}")
    return TakenChats(agent=agent.agent, folder=root, left_out=tuple(left_out), **counts)


def _keep(
    workspace: str, root: str, known: tuple[str, float] | None, tag: str, title: str, said: list[Said]
) -> str:
    """Write a conversation, or what is new of one; return what became of it."""
    if known:
        note, until = known
        if not os.path.lexists(os.path.join(workspace, root, note)):
            return "gone"
        added = _text([each for each in said if each[2] > until], _day(until))
        if not added:
            return "known"
        append(workspace, f"{root}/{note}", lambda text: "" if added in text else f"\n{added}")
        became = "grown"
    else:
        title = " ".join(masked(title).split()) or "A conversation"
        words = "-".join(re.findall(r"\w+", title.lower()))[:60].strip("-")
        note = f"{_day(said[0][2])}-{words}-{tag[:8]}.md".lstrip("-")
        content = f"# {title}\n\n{_text(said, '')}"
        made = append(workspace, f"{root}/{note}", lambda before: "" if before else content)
        became = "new" if made.start_line else "known"
    # Last: after a kill the note is there, and is not written again.
    line = json.dumps({"id": tag, "note": note, "until": max(time for _, _, time in said)})
    append(workspace, f"{root}/{_RECORD}", lambda _: line)
    return became


def _text(said: list[Said], day: str) -> str:
    """Return what was said as Markdown, with a heading for each day after `day`."""
    blocks: list[str] = []
    for role, text, time in said:
        if (now := _day(time)) and now != day:
            blocks.append(f"## {now}")
            day = now
        clean = masked(text).strip()
        # An open block of code would take in what follows.
        blocks.append(f"{role}: {clean}" + "\n```" * (len(_FENCE.findall(clean)) % 2))
    return "\n\n".join(blocks)


def _day(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).date().isoformat() if 0 < time < 1e11 else ""


def _records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of an export. Raises ExportRefused."""
    try:
        with zipfile.ZipFile(path) as archive:
            named = {each.filename: each for each in archive.infolist()}
            names = [each for each in sorted(named) if _CONVERSATIONS.fullmatch(PurePosixPath(each).name)]
            for name in names:
                if named[name].file_size > min(MAX_BYTES, MAX_RATIO * max(1, named[name].compress_size)):
                    raise ExportRefused(f"{path}: {name} would have {named[name].file_size} bytes")
                yield from _elements(archive.read(name).decode("utf-8-sig", "replace"))
            if not names:
                raise ExportRefused(f"{path} has no conversations.json")
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, IndexError, OSError) as error:
        raise ExportRefused(
            f"{path} cannot be read: {error}", hint="name the zip as it was downloaded"
        ) from error


def _elements(text: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of an array one by one: all of them take many times its bytes. Raises ValueError."""
    place = 0
    while not text.startswith("]", place):
        if text[place] in " \t\r\n[,":
            place += 1
        else:
            record, place = _DECODER.raw_decode(text, place)
            yield as_dict(record)


def _thread(messages: dict[str, dict[str, Any]], last: str, above: str) -> list[dict[str, Any]]:
    """Return the messages from the first one down to the last; each names the one above it."""
    found: dict[str, dict[str, Any]] = {}
    while last in messages and last not in found:
        found[last] = messages[last]
        last = as_text(messages[last].get(above))
    return [*reversed(found.values())]


def _said(messages: list[tuple[str, list[str], object]]) -> list[Said]:
    """Leave out what is empty; a message without a time has that of the one before."""
    said, time = list[Said](), 0.0
    for role, texts, stamp in messages:
        time = seconds_of(stamp) or time
        if role and (text := "\n".join(filter(None, map(str.strip, texts)))):
            said.append((role, text, time))
    return said


def _chatgpt(record: dict[str, Any]) -> tuple[str, str, list[Said]]:
    """Read a conversation: id (empty: it is none), title, and the thread that ends in `current_node`."""
    nodes = {name: as_dict(node) for name, node in as_dict(record.get("mapping")).items()}
    last = as_text(record.get("current_node")) or next(reversed(nodes), "")
    said = [_of_chatgpt(as_dict(node.get("message"))) for node in _thread(nodes, last, "parent")]
    identity = as_text(record.get("conversation_id") or record.get("id")) if nodes else ""
    return identity, as_text(record.get("title")), _said(said)


def _of_chatgpt(message: dict[str, Any]) -> tuple[str, list[str], object]:
    metadata, content = as_dict(message.get("metadata")), as_dict(message.get("content"))
    role = {"user": "User", "assistant": "Assistant"}.get(
        as_text(as_dict(message.get("author")).get("role")), ""
    )
    is_hidden = message.get("weight") == 0 or metadata.get("is_visually_hidden_from_conversation")
    is_between = message.get("recipient") in (None, "all") and message.get("channel") != "analysis"
    if is_hidden or not is_between or content.get("content_type") not in ("text", "multimodal_text"):
        role = ""
    # A part that was spoken is an object with its text.
    texts = [as_text(as_dict(part).get("text") or part) for part in as_list(content.get("parts"))]
    return role, texts, message.get("create_time")


def _claude(record: dict[str, Any]) -> tuple[str, str, list[Said]]:
    """Read a conversation: id (empty: it is none), title, and the thread that ends last."""
    messages = [*filter(None, map(as_dict, as_list(record.get("chat_messages"))))]
    by_id, above = {as_text(each.get("uuid")): each for each in messages}, "parent_message_uuid"
    # Older exports have one thread, in order, and name no message above.
    if any(as_text(each.get(above)) in by_id for each in messages):
        messages = _thread(by_id, as_text(messages[-1].get("uuid")), above)
    said = list[tuple[str, list[str], object]]()
    for each in messages:
        role = {"human": "User", "assistant": "Assistant"}.get(as_text(each.get("sender")), "")
        # Where there are blocks, `text` has words in the place of those that are not text.
        blocks = [as_dict(block) for block in as_list(each.get("content"))]
        texts = [as_text(block.get("text")) for block in blocks if block.get("type") == "text"]
        said.append((role, texts if blocks else [as_text(each.get("text"))], each.get("created_at")))
    return (
        as_text(record.get("uuid")) if "chat_messages" in record else "",
        as_text(record.get("name")),
        _said(said),
    )


#: Program -> what reads a record: its id (empty for what is no conversation), title, and what was said.
PROGRAMS = {"chatgpt": _chatgpt, "claude": _claude}
