"""Read the conversations of an export of ChatGPT.

    [{"id", "title", "create_time", "update_time", "current_node", "mapping": {<node>: {"parent", "message":
        {"author": {"role"}, "content": {"content_type", "parts"}, "recipient", "channel", "weight", …}}}}]

The thread that is shown leads from `current_node` up; the rest are edits and answers that were left. OpenAI
publishes no schema: several programs that read these files agree on this one.
"""

from __future__ import annotations

from typing import Any

from memline.shared.sources.transcripts.imported import imported_format, thread, with_names
from memline.shared.sources.transcripts.stores import Conversation, Said
from memline.shared.tables import as_dict, as_list, as_number, as_text

NAME = "chatgpt"

#: Kinds of content that were written to be read; the others are code for tools, their results and thoughts.
_READ = ("text", "multimodal_text")


def _conversation(record: dict[str, Any]) -> Conversation:
    """Read a conversation. Raises ValueError for what is none."""
    nodes, identity = record.get("mapping"), record.get("conversation_id") or record.get("id")
    if not isinstance(nodes, dict) or not isinstance(identity, str) or not identity:
        raise ValueError("it has no id and mapping")
    nodes = {name: each for name, each in nodes.items() if isinstance(each, dict)}
    shown = nodes.get(as_text(record.get("current_node"))) or _last(nodes)
    said = [_said(each) for each in thread(shown, lambda node: nodes.get(as_text(node.get("parent"))))]
    return Conversation(
        id=identity,
        title=record.get("title"),
        created=record.get("create_time"),
        updated=record.get("update_time"),
        said=tuple(filter(None, reversed(said))),
    )


def _last(nodes: dict[str, Any]) -> dict[str, Any] | None:
    """Return the end of the thread that was written to last, where nothing says which is shown."""
    ends = [each for each in nodes.values() if not each.get("children")]
    return max(
        ends, key=lambda node: as_number(as_dict(node.get("message")).get("create_time")), default=None
    )


def _said(node: dict[str, Any]) -> Said | None:
    """Return what a person or the model wrote to the other; None for what is hidden, or for a tool."""
    message = as_dict(node.get("message"))
    metadata, content = as_dict(message.get("metadata")), as_dict(message.get("content"))
    role = as_dict(message.get("author")).get("role")
    is_hidden = message.get("weight") == 0 or metadata.get("is_visually_hidden_from_conversation")
    is_between = message.get("recipient") in (None, "all") and message.get("channel") != "analysis"
    if (
        role not in ("user", "assistant")
        or is_hidden
        or not is_between
        or content.get("content_type") not in _READ
    ):
        return None
    names = [as_dict(each).get("name") for each in as_list(metadata.get("attachments"))]
    text = with_names("\n".join(filter(None, map(_part, as_list(content.get("parts"))))), names)
    return Said(role=role, text=text, time=message.get("create_time")) if text else None


def _part(part: object) -> str:
    """Return the text of a part: a text, or what was spoken."""
    if isinstance(part, dict) and part.get("content_type") == "audio_transcription":
        part = part.get("text")
    return as_text(part).strip()


FORMAT = imported_format(NAME, _conversation)
