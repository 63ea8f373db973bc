"""Read OpenClaw's sessions: JSONL files, and from 2026.9 on rows of the agent's database.

    <state dir>/agents/<agent>/sessions/*.jsonl                    a file a session, and its archives
    <state dir>/agents/<agent>/agent/openclaw-agent.sqlite         the same records as rows

A session is called the same in both, and its lines are the same: row by row in their order. So what was
indexed as a file stays what it is when OpenClaw takes the file into its database.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from memline.shared.config.schema import AgentSettings
from memline.shared.sources.discover import DiscoveredFile, Discovery, first_link, unlisted_mark
from memline.shared.sources.paths import TRANSCRIPT_PREFIX
from memline.shared.sources.safe_open import FileRefused
from memline.shared.sources.transcripts.stores import (
    OpenTranscript,
    TranscriptFolder,
    TranscriptFormat,
    TranscriptStore,
    Turn,
)

#: The database, below the state directory, and what SQLite keeps beside it.
DATABASE = "openclaw-agent.sqlite"

_ENDING = ".jsonl"


class OpenClawTranscripts(TranscriptFolder):
    """The sessions of one agent: rows of its database, then files; a session that is both is its rows."""

    def __init__(self, state_dir: str, agent: str) -> None:
        super().__init__(state_dir, os.path.join("agents", agent, "sessions"))
        self._database = Path(self.anchor, "agents", agent, "agent", DATABASE)

    def discover(self) -> Discovery:
        """Find all transcripts, and all that look so but cannot be read."""
        files = super().discover()
        if not self._has_rows():
            return files
        if not os.path.lexists(self.folder):
            files = Discovery()
        from memline.shared.sources.transcripts import openclaw_rows

        try:
            found = openclaw_rows.list_sessions(self._database)
        except FileRefused as error:
            # Nothing is known of its sessions: none is taken for removed.
            rows = Discovery(issues=(error.problem.reason,), unlisted=(unlisted_mark(TRANSCRIPT_PREFIX),))
            return rows.joined(files)
        rows = Discovery(
            files=tuple(
                DiscoveredFile(
                    path=f"{TRANSCRIPT_PREFIX}{row.session}{_ENDING}",
                    absolute=os.path.join(self.folder, row.session + _ENDING),
                    size=row.size,
                    mtime_ns=row.mtime_ns,
                    ctime_ns=row.ctime_ns,
                )
                for row in found.rows
            ),
            issues=found.issues,
            unlisted=tuple(f"{TRANSCRIPT_PREFIX}{session}{_ENDING}" for session in found.cold),
            left_out=tuple(
                (f"{TRANSCRIPT_PREFIX}{session}{_ENDING}", "OpenClaw has put it into cold storage")
                for session in found.cold
            ),
        )
        known = {file.path for file in rows.files}
        others = tuple(file for file in files.files if file.path not in known)
        return rows.joined(
            Discovery(files=others, issues=files.issues, unlisted=files.unlisted, left_out=files.left_out)
        )

    def open(self, path: str) -> OpenTranscript:
        """Open the transcript of a ledger path. Raises FileRefused."""
        if self._has_rows():
            from memline.shared.sources.transcripts import openclaw_rows

            session = path.removeprefix(TRANSCRIPT_PREFIX).removesuffix(_ENDING)
            if opened := openclaw_rows.open_session(self._database, session):
                return opened
        return super().open(path)

    def folders(self) -> tuple[str, ...]:
        """Return the folder of the files, and the one of the database."""
        return (self.folder, str(self._database.parent))

    def is_shared(self, absolute: str) -> bool:
        """Tell whether it is the database or its log."""
        return absolute in (str(self._database), f"{self._database}-wal")

    def sessions_of(self, key: str) -> set[str]:
        """Return the ids of the sessions that have this key in the database."""
        if not self._has_rows():
            return set()
        from memline.shared.sources.transcripts import openclaw_rows

        return openclaw_rows.sessions_of(self._database, key)

    def _has_rows(self) -> bool:
        try:
            return self._database.is_file() and first_link(self.anchor, str(self._database)) is None
        except OSError:
            return False


def _find(settings: AgentSettings) -> tuple[TranscriptStore, ...]:
    return (OpenClawTranscripts(str(settings.state_dir), settings.agent),)


def _read(record: dict[str, Any]) -> Turn:
    """Read a record: a message of user or agent, or the name of the session."""
    # Its patterns take milliseconds, which a search that reads no transcript does not pay.
    from memline.shared.sources.transcripts import noise

    message = record.get("message")
    message = message if isinstance(message, dict) else {}
    turn = Turn(stamps=(message.get("timestamp"), record.get("timestamp")))
    if record.get("type") == "session_info":
        return Turn(stamps=turn.stamps, title=record.get("name"))
    role = message.get("role")
    if record.get("type") != "message" or role not in ("user", "assistant"):
        return turn
    raw = text_of(message.get("content"))
    provenance = message.get("provenance")
    if role == "user" and isinstance(provenance, dict) and provenance.get("kind") == "inter_session":
        # Another session of the agent wrote as the user.
        return turn
    if role == "assistant":
        return Turn(role=role, text=noise.assistant_words(raw), stamps=turn.stamps)
    return Turn(
        role=role, text=noise.user_words(raw), stamps=turn.stamps, is_timer=bool(raw) and noise.is_timer(raw)
    )


def text_of(content: object) -> str:
    """Return the text of a message: a text, or the blocks of text among others."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(
        block["text"]
        for block in content
        if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)
    )


FORMAT = TranscriptFormat(
    name="openclaw",
    relevant=rb'"role"\s*:\s*"(?:user|assistant)"|"type"\s*:\s*"(?:session|session_info)"',
    read=_read,
    find=_find,
)
