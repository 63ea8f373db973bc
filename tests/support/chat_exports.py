"""Exports of ChatGPT and Claude, made by hand in the shapes that several parsers agree on."""

import json
import zipfile
from typing import Any

#: 1 October 2026.
T0 = 1_790_812_800.0

Json = dict[str, Any]


def node(name, parent, message=None, children=()):
    """A node of a conversation of ChatGPT."""
    return {"id": name, "parent": parent, "children": [*children], "message": message}


def gpt_said(role, *parts, kind="text", **more):
    """A message of ChatGPT."""
    return {
        "id": f"m-{role}",
        "author": {"role": role, "name": None, "metadata": {}},
        "create_time": T0,
        "content": {"content_type": kind, "parts": [*parts]},
        "status": "finished_successfully",
        "weight": 1.0,
        "metadata": {},
        "recipient": "all",
        "channel": None,
        **more,
    }


def gpt(name, *said, title="A talk", at=T0, **more):
    """A conversation of ChatGPT: what each side said, one below the other."""
    mapping = {"root": node("root", None)}
    above = "root"
    for number, (role, text) in enumerate(said):
        mapping[f"n{number}"] = node(f"n{number}", above, gpt_said(role, text, create_time=at + number))
        above = f"n{number}"
    return {
        "title": title,
        "create_time": at,
        "update_time": at + len(said),
        "mapping": mapping,
        "current_node": above,
        "conversation_id": name,
        "id": name,
        **more,
    }


def claude_said(sender, *blocks, **more):
    """A message of Claude."""
    content = [{"type": "text", "text": each} if isinstance(each, str) else each for each in blocks]
    return {
        "uuid": more.pop("uuid", f"m-{sender}"),
        "text": "This block is not supported on your current device yet.",
        "content": content,
        "sender": sender,
        "created_at": "2026-10-01T08:00:00.000000Z",
        "updated_at": "2026-10-01T08:00:00.000000Z",
        "attachments": [],
        "files": [],
        **more,
    }


def claude(name, *messages, title="A talk", **more):
    """A conversation of Claude."""
    return {
        "uuid": name,
        "name": title,
        "summary": "",
        "created_at": "2026-10-01T08:00:00.000000Z",
        "updated_at": "2026-10-01T09:00:00.000000Z",
        "account": {"uuid": "a-1"},
        "chat_messages": [*messages],
        **more,
    }


def zipped(file, members):
    """Write a zip; what is not bytes is written as JSON."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            archive.writestr(name, data)
    return file


def gpt_zip(file, *conversations):
    """An export of ChatGPT, with what lies beside its conversations."""
    beside = {"chat.html": b"<html></html>", "user.json": {"id": "user-1"}}
    return zipped(file, {"conversations.json": [*conversations], **beside})


def claude_zip(file, *conversations):
    """An export of Claude, in a folder, with what lies beside its conversations."""
    return zipped(file, {"data/conversations.json": [*conversations], "data/users.json": []})
