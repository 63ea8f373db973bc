"""List the programs whose past sessions can be read: a row each.

A further program is a row here and a module, see `shared.sessions.programs`; no other file knows where it
keeps them.
"""

from pathlib import Path

import msgspec

from memline.shared.config import environment
from memline.shared.config.environment import Environment


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a program keeps its sessions: below the folder that a variable names, else the usual one."""

    variable: str
    #: In the user's home.
    usual: str = ""
    below: str = ""
    #: The variable that names another file instead, there or anywhere.
    file_variable: str = ""

    def of(self, env: Environment) -> Path:
        """Return the folder or the database."""
        place = environment.folder(env, self.variable, self.usual) / self.below
        named = environment.read(env, self.file_variable)
        return place.parent / named if named else place


class TranscriptProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A program that keeps its sessions on this machine."""

    title: str
    #: Where its sessions are: a folder or a database.
    place: Place


#: By the name in ledger paths (`sessions/<name>/…`) and in `memorySearch.transcripts`.
TRANSCRIPT_PROGRAMS = {
    "openclaw": TranscriptProgram(
        title="OpenClaw",
        place=Place(variable=environment.STATE_DIR, usual=".openclaw"),
    ),
    "claude-code": TranscriptProgram(
        title="Claude Code",
        place=Place(variable="CLAUDE_CONFIG_DIR", usual=".claude", below="projects"),
    ),
    "codex": TranscriptProgram(title="Codex", place=Place(variable="CODEX_HOME", usual=".codex")),
    "gemini": TranscriptProgram(
        title="Gemini CLI",
        place=Place(variable="GEMINI_CLI_HOME", below=".gemini"),
    ),
    "opencode": TranscriptProgram(
        title="opencode",
        place=Place(
            variable="XDG_DATA_HOME",
            usual=".local/share",
            below="opencode/opencode.db",
            file_variable="OPENCODE_DB",
        ),
    ),
}

#: Their names.
READ_IN_PLACE = tuple(TRANSCRIPT_PROGRAMS)


def place_of(name: str, env: Environment) -> Path:
    """Return where a program keeps its sessions."""
    return TRANSCRIPT_PROGRAMS[name].place.of(env)
