"""List the programs whose past sessions can be read: a row each.

A further program is a row here and a module of its format, see `shared.sources.transcripts.formats`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from memline.shared.config import config_file, environment
from memline.shared.config.environment import Environment
from memline.shared.errors import ConfigError
from memline.shared.values import value


@value
class TranscriptProgram:
    """A program that keeps its sessions on this machine, or whose exports are imported."""

    title: str
    #: The module of its format, in `shared.sources.transcripts`.
    module: str
    #: Where its sessions are: a folder or a database; None: they come by `memline import`.
    place: Callable[[Environment], Path] | None = None
    #: What `memline import` calls it.
    imported_as: str = ""
    #: Days after which it deletes a session by itself unless its settings say otherwise; 0: never.
    retention_days: float = 0.0
    #: Its settings, from `place` on, and where in them those days are.
    retention_file: str = ""
    retention_key: tuple[str, ...] = ()


#: By the name in ledger paths (`sessions/<name>/…`), and in `memorySearch.transcripts` where it has a place.
TRANSCRIPT_PROGRAMS = {
    "openclaw": TranscriptProgram(title="OpenClaw", module="openclaw_files", place=environment.state_dir),
    "claude-code": TranscriptProgram(
        title="Claude Code",
        module="claude_code",
        place=environment.claude_projects,
        retention_days=30.0,
        retention_file="../settings.json",
        retention_key=("cleanupPeriodDays",),
    ),
    "codex": TranscriptProgram(title="Codex", module="codex", place=environment.codex_home),
    "gemini": TranscriptProgram(
        title="Gemini CLI",
        module="gemini_cli",
        place=environment.gemini_home,
        retention_days=30.0,
        retention_file="settings.json",
        retention_key=("general", "sessionRetention", "maxAge"),
    ),
    "opencode": TranscriptProgram(title="opencode", module="opencode", place=environment.opencode_database),
    "chatgpt": TranscriptProgram(title="ChatGPT", module="chatgpt", imported_as="chatgpt"),
    "claude-ai": TranscriptProgram(title="Claude", module="claude_ai", imported_as="claude"),
}

#: Names of those whose sessions are read where they are, once that is allowed; and of exports, by command.
READ_IN_PLACE = tuple(name for name, row in TRANSCRIPT_PROGRAMS.items() if row.place)
IMPORTED = {row.imported_as: name for name, row in TRANSCRIPT_PROGRAMS.items() if row.imported_as}

#: Days of the units of a period such as `30d`.
_UNIT_DAYS = {"h": 1 / 24, "d": 1.0, "w": 7.0, "m": 30.0}


def retention_days(name: str, place: Path) -> float:
    """Return after how many days a program deletes a session by itself, as its settings say; 0: never."""
    program = TRANSCRIPT_PROGRAMS[name]
    if not program.retention_key:
        return program.retention_days
    try:
        node: Any = config_file.read(Path(os.path.normpath(place / program.retention_file)))
    except ConfigError:
        return program.retention_days
    for each in program.retention_key:
        node = node.get(each) if isinstance(node, dict) else None
    if isinstance(node, str) and (period := re.fullmatch(r"(\d+)([hdwm])", node)):
        return int(period[1]) * _UNIT_DAYS[period[2]]
    is_days = isinstance(node, (int, float)) and not isinstance(node, bool) and node > 0
    return float(node) if is_days else program.retention_days
