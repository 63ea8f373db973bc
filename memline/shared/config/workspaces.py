"""Name the index of each workspace.

    <home>/memory/<agent>.sqlite                 index of the workspace that is configured for an agent
    <home>/memory/<agent>-<digest>.sqlite        index of any other workspace that the agent is used with

Nothing else is written down about a folder. Settings are never read from a workspace: a repository that was
cloned could set an address that every note is sent to.
"""

import os
from pathlib import Path

from memline.shared.digests import sha256

#: Letters of a digest: 48 bits, far more than a user's workspaces need.
_DIGEST_CHARS = 12


def digest(workspace: str | Path) -> str:
    """Identify a workspace in the names of files, whatever links lead to it."""
    return sha256(os.fsencode(os.path.realpath(workspace))).hexdigest()[:_DIGEST_CHARS]


def is_same(one: str | Path, other: str | Path) -> bool:
    """Tell whether two paths lead to one workspace."""
    return str(one) == str(other) or os.path.realpath(one) == os.path.realpath(other)


def index_file(home: Path, agent: str, workspace: Path, configured: Path | None) -> Path:
    """Name the index of a workspace: the agent's own one has the plain name."""
    is_own = configured is not None and is_same(workspace, configured)
    return home / "memory" / (f"{agent}.sqlite" if is_own else f"{agent}-{digest(workspace)}.sqlite")
