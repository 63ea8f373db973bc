"""Read the sessions of Gemini CLI that were held in a workspace.

    ~/.gemini/tmp/<project>/chats/session-<time>-<id>.jsonl        beside chats: .project_root, the path

A message that is written again under its id replaces the first one, and `$rewindTo` takes messages back. What
a compression replaced was said, and stays. Measured with Gemini CLI 0.61.
"""

import os
from collections.abc import Iterable, Iterator

from memline.shared.config.schema import AgentSettings
from memline.shared.sessions.said import Record, Said, seconds_of, text_of
from memline.shared.sessions.stores import SessionFiles, open_file, within
from memline.shared.sources.safe_open import FileRefused

#: Bytes of the file with a path.
_MAX_PATH_BYTES = 4096

#: What the program adds: a message of its own, and the files that a message names.
_CONTEXT, _REFERENCED = "<session_context>", "--- Content from referenced files ---"


class GeminiCli(SessionFiles):
    """The sessions that were held in a workspace, or below it."""

    name = "gemini"
    relevant = rb'"type"\s*:\s*"(?:user|gemini)"|"\$rewindTo"'
    patterns = ("*/chats",)

    def __init__(self, settings: AgentSettings) -> None:
        self.root = os.path.abspath(settings.transcript_places[self.name] / "tmp")
        self._is_within = within(settings.workspace)

    def is_own(self, name: str) -> bool:
        try:
            with open_file(os.path.join(self.root, name), ".project_root") as (_, lines):
                path = next(iter(lines), b"")[:_MAX_PATH_BYTES]
                return self._is_within(path.decode("utf-8", "replace").strip())
        except (OSError, ValueError, FileRefused):
            return False

    def belongs(self, absolute: str) -> bool:
        return os.path.basename(absolute).startswith("session-")

    @staticmethod
    def said(records: Iterable[Record]) -> Iterator[Said]:
        """Yield what a person typed and what the model answered, as it was written last."""
        #: By its id, in the order of the conversation.
        messages: dict[object, Said] = {}
        for line, record in records:
            target, identity = record.get("$rewindTo"), record.get("id")
            if isinstance(target, str):
                known = list(messages)
                for each in known[known.index(target) if target in messages else 0 :]:
                    del messages[each]
                continue
            role, text = "", text_of(record.get("content"))
            if record.get("type") == "gemini":
                role = "assistant"
            elif record.get("type") == "user":
                shown = record.get("displayContent")
                text = (text if shown is None else text_of(shown)).partition(_REFERENCED)[0].strip()
                role = "" if text.startswith(_CONTEXT) else "user"
            message = Said(line=line, at=seconds_of(record.get("timestamp")), role=role, text=text)
            messages[identity if isinstance(identity, str) else line] = message
        yield from sorted(messages.values(), key=lambda message: message.line)
