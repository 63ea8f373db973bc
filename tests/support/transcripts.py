"""Transcripts as an agent writes them, for tests."""

import json
from pathlib import Path


def said(role: str, text: str, *, at: str = "2026-02-10T10:00:00.000Z") -> str:
    """The line of a message."""
    message = {"role": role, "content": [{"type": "text", "text": text}]}
    return json.dumps({"type": "message", "timestamp": at, "message": message}, ensure_ascii=False) + "\n"


def opening(session: str = "abc") -> str:
    """The first line of a transcript."""
    record = {"type": "session", "version": 3, "id": session, "timestamp": "2026-02-10T10:00:00.000Z"}
    return json.dumps(record) + "\n"


def tool_result(text: str) -> str:
    """The line of what a tool gave."""
    message = {"role": "toolResult", "content": [{"type": "text", "text": text}]}
    return json.dumps({"type": "message", "message": message}) + "\n"


def talk(turns: int, *, first: int = 0, words: int = 40) -> str:
    """Turns of user and agent, each with words of its own."""
    return "".join(
        said(
            "user" if number % 2 == 0 else "assistant",
            " ".join(f"word{number}x{count}" for count in range(words)),
        )
        for number in range(first, first + turns)
    )


def sessions_folder(state_dir: Path, agent: str = "main") -> Path:
    """The sessions folder of an agent, made."""
    folder = state_dir / "agents" / agent / "sessions"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
