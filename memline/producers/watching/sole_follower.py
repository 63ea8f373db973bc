"""See that one process alone follows the files of an agent: the next one waits until that one ends.

    <index>.follower    locked by the process that follows; its text is the process's id

Two that follow would read each file twice. The system lets go of the lock when a process is killed.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from memline.shared.config.config_file import for_owner
from memline.shared.config.schema import AgentSettings


class SoleFollower:
    """Keeps the locks of the agents that this process follows; a context manager."""

    def __init__(self) -> None:
        self._held: set[Path] = set()
        self._others: list[AgentSettings] = []
        self._stack = ExitStack()

    def __enter__(self) -> SoleFollower:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def shared(self, agents: Sequence[AgentSettings]) -> tuple[list[AgentSettings], list[str]]:
        """Return the agents that this process follows from now on, and a line for each of the others."""
        self._others = [agent for agent in agents if not self._is_ours(_path(agent))]
        lines = [
            f"memline: agent {agent.agent} is followed by {_holder(_path(agent))} already; this one takes its"
            " place when it ends"
            for agent in self._others
        ]
        return [agent for agent in agents if agent not in self._others], lines

    @property
    def may_follow_more(self) -> bool:
        """Whether the process that followed one of the others has ended: then ask `shared` again."""
        return any(self._is_ours(_path(agent)) for agent in self._others)

    def _is_ours(self, path: Path) -> bool:
        if path in self._held:
            return True
        # A home that cannot be written has no locks: the process works all the same.
        with suppress(OSError), ExitStack() as stack:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = stack.enter_context(open(path, "a", encoding="ascii", opener=for_owner))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            self._stack.push(stack.pop_all())
        self._held.add(path)
        return True


def _path(agent: AgentSettings) -> Path:
    return Path(f"{agent.index_path}.follower")


def _holder(path: Path) -> str:
    with suppress(OSError, ValueError):
        return f"process {int(path.read_text('ascii'))}"
    return "another process"
