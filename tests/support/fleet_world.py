"""A fleet with its Redis, its provider and its home, for faults to be injected into."""

from __future__ import annotations

import ctypes
import json
import subprocess
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from socket import socket
from typing import Any

from memline.shared.errors import IndexFault
from memline.shared.index.accounts import AccountFile
from memline.shared.scheduling import home_processes
from tests.support.embedding_server import EmbeddingServer
from tests.support.fleet import Fleet
from tests.support.redis_server import RedisServer
from tests.support.workspace import Place, note, remote

#: What a capability is called in Linux: reading and writing whatever its mode says.
_READS_ALL = (1, 2)


@dataclass
class World:
    """A fleet, what is around it, and what a fault needs of it."""

    folder: Path
    redis: RedisServer
    provider: EmbeddingServer
    port: int = 0
    place: Place = field(init=False)
    fleet: Fleet = field(init=False)
    _notes: int = 0

    def __post_init__(self) -> None:
        self.place = Place(folder=self.folder / "user")
        with closing(socket()) as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.fleet = Fleet(self.place, self.redis.url)
        self.configure()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def configure(
        self, *, file: Path | None = None, blocks: dict[str, Any] | None = None, **memory: Any
    ) -> None:
        """Write the settings of this world with these changes; without any, as they were."""
        whole = remote(self.provider.url) | {"sync": {"watchDebounceMs": 100}} | memory
        defaults = {"workspace": str(self.place.workspace), "memorySearch": whole}
        body = {"agents": {"defaults": defaults}, "serve": {"port": self.port}} | (blocks or {})
        target = file or self.place.config
        part = target.with_suffix(".part")
        part.write_text(json.dumps(body))
        part.rename(target)
        if file is None:
            self.fleet.restart_all()

    def start(self) -> None:
        for _ in range(4):
            self.write()
        self.fleet.start("api")
        self.fleet.up("batch")
        self.until(lambda: self.fleet.vectors() == {"ready": 3 * self._notes}, "the first vectors")

    def write(self, text: str = "", name: str = "") -> Path:
        """Write a note of its own."""
        self._notes += 1
        return self.place.write(f"memory/{name or f'note-{self._notes}'}.md", text or note(self._notes))

    def write_until(self, holds: Callable[[], bool]) -> None:
        """Write notes until settings that were changed are taken, and hold them up."""
        while not holds():
            self.write()
            time.sleep(1)

    def run(self, *words: str) -> Any:
        ran = self.fleet.run(*words)
        assert ran.status == 0, ran.stderr
        return ran

    def until(self, holds: Callable[[], bool], what: str) -> None:
        self.fleet.until(holds, what)

    def count(self, sql: str) -> int:
        """Return the number that a query of the index gives; 0 while it cannot be asked."""
        with suppress(IndexFault):
            return int(self.place.rows(sql)[0][0] or 0)
        return 0

    @property
    def waiting(self) -> int:
        return self.count("SELECT count(*) FROM vectors WHERE active = 1 AND state IN ('wanted', 'leased')")

    @property
    def failed(self) -> int:
        return self.count("SELECT count(*) FROM vectors WHERE active = 1 AND state = 'failed'")

    @property
    def batches(self) -> int:
        return self.count("SELECT count(*) FROM batches WHERE state <> 'closed'")

    def health(self, column: str) -> Any:
        """Return what the rows say of requests to the provider."""
        with closing(AccountFile(self.place.agent.account_path)) as file, file.reading() as reader:
            row = reader.execute(f"SELECT {column} FROM health WHERE mode = 'requests'") if reader else None
            found = row.fetchone() if row else None
            return found[0] if found else None

    def has_watch(self) -> bool:
        with closing(AccountFile(self.place.agent.account_path)) as file:
            return any(each.kind == "watch" and each.is_alive for each in home_processes.listed(file))

    def set_provider(self, fault: str, **more: Any) -> None:
        self.provider.control({"fault": fault, **more})

    def resume(self) -> None:
        self.set_provider("")
        self.run("queue", "resume")

    def kill(self, label: str) -> None:
        self.fleet.kill(label)

    def restart(self, label: str) -> None:
        """Start a worker anew, and wait until its heartbeat is there."""
        self.fleet.start(label)
        self.until(lambda: label in self.fleet.roles(), label)


def mount(options: str, folder: Path) -> None:
    """Mount a disk in memory, or change it."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)


def drop_rights() -> None:
    """Have file permissions hold for the processes that this one starts."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in _READS_ALL:
        # PR_CAPBSET_DROP
        if libc.prctl(24, capability, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")
