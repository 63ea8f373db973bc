"""Read the sessions of Codex that were held in a workspace.

    <CODEX_HOME>/sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl
    <CODEX_HOME>/archived_sessions/rollout-<time>-<id>.jsonl

The first record says where a session was held (`cwd`). What a person typed is read from the events, where it
is without the instructions that the program adds; what the model answered from the items of the conversation.
Each of the two has the other's words again. Measured with Codex 0.169.
"""

import os
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from memline.shared.config.schema import AgentSettings
from memline.shared.sessions.said import Record, Said, parse, seconds_of, text_of
from memline.shared.sessions.stores import SessionFiles, held_in, within
from memline.shared.values import as_dict, as_list, as_text

#: An editor's extension puts what is open there in front of the request.
_REQUEST = "## My request for Codex:"


def _payload(record: dict[str, Any], kind: str) -> dict[str, Any]:
    return as_dict(record.get("payload")) if record.get("type") == kind else {}


def _prompt(event: dict[str, Any]) -> tuple[str, str] | None:
    """Return in which form an event has what a person typed, and its text, empty of an image; or None."""
    form, item = str(event.get("type")), as_dict(event.get("item"))
    if form == "user_message":
        text = event.get("message")
    elif form == "item_completed" and item.get("type") == "UserMessage":
        text = text_of(as_list(item.get("content")))
    else:
        return None
    return form, text.rpartition(_REQUEST)[2].strip() if isinstance(text, str) else ""


def _cwd(lines: Iterable[bytes]) -> str:
    """Return the folder in which a person held a session; empty where a model was the user."""
    meta = _payload(parse(next(iter(lines), b"")) or {}, "session_meta")
    return "" if isinstance(meta.get("source"), dict) else as_text(meta.get("cwd"))


class Codex(SessionFiles):
    """The sessions that a person held in a workspace, or below it."""

    name = "codex"
    relevant = rb'"type"\s*:\s*"(?:user_message|UserMessage|message|thread_rolled_back)"'
    patterns = ("sessions/*/*/*", "archived_sessions")

    def __init__(self, settings: AgentSettings) -> None:
        self.root = os.path.abspath(settings.transcript_places[self.name])
        self._is_within = within(settings.workspace)

    def belongs(self, absolute: str) -> bool:
        return self._is_within(held_in(absolute, _cwd))

    @staticmethod
    def said(records: Iterable[Record]) -> Iterator[Said]:
        """Yield what a person typed and what the model answered, without the turns that were rolled back."""
        #: What was said in each turn; one begins with what a person typed.
        turns: list[list[Said]] = [[]]
        #: What was typed last, while the model has not answered.
        typed: tuple[str, str] | None = None
        for line, record in records:
            at, event = seconds_of(record.get("timestamp")), _payload(record, "event_msg")
            item, prompt = _payload(record, "response_item"), _prompt(event)
            if event.get("type") == "thread_rolled_back":
                count = event.get("num_turns")
                del turns[max(1, len(turns) - count) if isinstance(count, int) else len(turns) :]
                typed = None
            elif prompt and typed and prompt[1] == typed[1] and prompt[0] != typed[0]:
                # Between two forms of the file both were written.
                continue
            elif prompt:
                turns.append([Said(line=line, at=at, role="user", text=prompt[1])])
                typed = prompt
            elif item.get("type") == "message" and item.get("role") == "assistant":
                text = text_of(as_list(item.get("content")), "output_text")
                turns[-1].append(Said(line=line, at=at, role="assistant", text=text))
                typed = None
        yield from chain.from_iterable(turns)
