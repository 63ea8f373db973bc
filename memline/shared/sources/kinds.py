"""Find out what kind of folder a workspace is, by the names in it."""

from __future__ import annotations

import os
from pathlib import Path

from memline.shared.values import value


@value
class Kind:
    """A kind of folder, in words for a user."""

    name: str
    #: Whether all Markdown of the folder is memory, also beside `MEMORY.md` and `memory/`.
    is_whole: bool = True


OPENCLAW = Kind(name="an OpenClaw workspace", is_whole=False)
MEMORY_FOLDER = Kind(name="a folder with MEMORY.md or memory/", is_whole=False)
OBSIDIAN = Kind(name="an Obsidian vault")
LOGSEQ = Kind(name="a Logseq graph")
CLAUDE_CODE = Kind(name="the project memory of Claude Code")
REPOSITORY = Kind(name="a repository with documentation")
PLAIN = Kind(name="a folder of Markdown")

#: Files that OpenClaw puts into a workspace.
_OPENCLAW_FILES = ("AGENTS.md", "SOUL.md", "IDENTITY.md", "USER.md", "TOOLS.md", "HEARTBEAT.md")


def kind_of(folder: Path) -> Kind:
    """Return the kind of a folder."""

    def has(*names: str) -> int:
        return sum(os.path.lexists(folder / name) for name in names)

    if has(".obsidian"):
        return OBSIDIAN
    if has("logseq") and has("pages", "journals"):
        return LOGSEQ
    if folder.name == "memory" and ".claude" in folder.parts and "projects" in folder.parts:
        return CLAUDE_CODE
    if has(*_OPENCLAW_FILES) >= 2:
        return OPENCLAW
    if has("MEMORY.md", "memory.md", "memory"):
        return MEMORY_FOLDER
    return REPOSITORY if has(".git", "mkdocs.yml", "docusaurus.config.js", "docs") else PLAIN
