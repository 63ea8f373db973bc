"""Read the conversations of an export of Claude.

    [{"uuid", "name", "created_at", "updated_at",
      "chat_messages": [{"uuid", "sender", "created_at", "text", "content": [{"type": "text", "text"}, …],
                         "attachments": [{"file_name"}], "files": [{"file_name"}], "parent_message_uuid"}]}]

Newer exports name the message above each one; then the thread that ends last is the one that is shown.
Anthropic publishes no schema: this is what programs that read these files agree on.
"""

from __future__ import annotations

from typing import Any

from memline.shared.sources.transcripts.imported import imported_format, thread, with_names
from memline.shared.sources.transcripts.stores import Conversation, Said
from memline.shared.tables import as_dict, as_list

NAME = "claude-ai"

_ROLES = {"human": "user", "assistant": "assistant"}

_PARENT = "parent_message_uuid"


def _conversation(record: dict[str, Any]) -> Conversation:
    """Read a conversation. Raises ValueError for what is none."""
    messages, identity = record.get("chat_messages"), record.get("uuid")
    if not isinstance(messages, list) or not isinstance(identity, str) or not identity:
        raise ValueError("it has no uuid and chat_messages")
    shown = _shown([each for each in messages if isinstance(each, dict)], record)
    return Conversation(
        id=identity,
        title=record.get("name") or None,
        created=record.get("created_at"),
        updated=record.get("updated_at"),
        said=tuple(filter(None, map(_said, shown))),
    )


def _shown(messages: list[dict[str, Any]], record: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the messages of the thread that is shown; all of them where none names the one above it."""
    by_id = {each["uuid"]: each for each in messages if isinstance(each.get("uuid"), str)}
    if not any(_above(each, by_id) for each in messages):
        return messages
    last = by_id.get(str(record.get("current_leaf_message_uuid"))) or messages[-1]
    kept = {id(each) for each in thread(last, lambda message: _above(message, by_id))}
    return [each for each in messages if id(each) in kept or not each.get(_PARENT)]


def _above(message: dict[str, Any], by_id: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    return by_id.get(str(message.get(_PARENT)))


def _said(message: dict[str, Any]) -> Said | None:
    """Return what a person or the model wrote; None for what has neither text nor a file."""
    role, blocks = _ROLES.get(str(message.get("sender"))), message.get("content")
    if role is None:
        return None
    # Where there are blocks, `text` has words in the place of those that are not text.
    texts = [message.get("text")]
    if isinstance(blocks, list) and blocks:
        texts = [each.get("text") for each in blocks if isinstance(each, dict) and each.get("type") == "text"]
    text = "\n".join(each.strip() for each in texts if isinstance(each, str) and each.strip())
    attached = [*as_list(message.get("attachments")), *as_list(message.get("files"))]
    text = with_names(text, [as_dict(each).get("file_name") for each in attached])
    return Said(role=role, text=text, time=message.get("created_at")) if text else None


FORMAT = imported_format(NAME, _conversation)
