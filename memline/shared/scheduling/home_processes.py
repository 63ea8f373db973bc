"""Keep the processes of a home that have no heartbeat in Redis: `up`, `watch`, `serve`, `mcp` and `index`.

A row says which process it is and which agents it works for. It goes with its process; one whose process is
gone without a word stays, so that a reader can tell that nothing follows the files any more, until the next
`index`.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from memline.shared.config.config_file import SettingsFile, changed_ns
from memline.shared.errors import IndexFault
from memline.shared.index.accounts import AccountFile
from memline.shared.scheduling import leases

UP, WATCH, SERVE, MCP, INDEX = "up", "watch", "serve", "mcp", "index"

#: Those that bring changed files into an index, and those that embed what it lacks.
FOLLOWERS, EMBEDDING = (UP, WATCH, INDEX), (UP, INDEX)

_COLUMNS = "kind, owner, boot, started, agents, settings"
_INSERT = f"INSERT OR REPLACE INTO processes ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)"


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process of a home."""

    kind: str
    #: `host:pid:start`; see `shared.scheduling.leases.current_owner`.
    owner: str
    #: Which start of the host it belongs to; empty where the system does not say.
    boot: str
    #: Seconds since the epoch.
    started: float
    agents: tuple[str, ...]
    #: Its configuration file, and its time of change as the process read it (nanoseconds); 0: missing.
    config: str = ""
    config_ns: int = 0
    #: Why it finds changed files by polling; empty where the system tells of them.
    polling: str = ""

    @property
    def host(self) -> str:
        return self.owner.rsplit(":", 2)[0]

    @property
    def pid(self) -> int:
        return int(self.owner.rsplit(":", 2)[1] or 0)

    @property
    def name(self) -> str:
        """What users are told that it is."""
        return f"{self.kind} on {self.host} (process {self.pid})"

    @property
    def is_here(self) -> bool:
        return self.host == socket.gethostname()

    @property
    def is_alive(self) -> bool:
        """Whether it still runs; of another host that is not known, and taken for true."""
        return not (self.is_here and self.ended_with_host) and leases.is_owner_alive(self.owner)

    @property
    def ended_with_host(self) -> bool:
        """Whether it went when its host was started again."""
        return self.boot != _boot()

    @property
    def newer_file(self) -> str:
        """Its configuration file, when it was changed after the process had read it; else empty."""
        is_newer = self.is_here and changed_ns(Path(self.config)) not in (0, self.config_ns)
        return self.config if is_newer else ""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON contract of a process."""
        return {
            "kind": self.kind,
            "host": self.host,
            "pid": self.pid,
            "startedAt": self.started,
            "agents": list(self.agents),
            "alive": self.is_alive,
            "oldSettings": bool(self.newer_file),
        }


@contextmanager
def registered(
    path: Path, kind: str, agents: Iterable[str], now: float, config: SettingsFile
) -> Iterator[None]:
    """List this process in the account file of a home while a block runs; `config` has its settings.

    A home that cannot be written has no list: the process works all the same.
    """
    state = json.dumps({"config": str(config.path), "config_ns": config.read_ns})
    row = (kind, leases.current_owner(), _boot(), now, json.dumps(sorted(agents)), state)
    with closing(AccountFile(path)) as file:
        with suppress(IndexFault):
            if kind in FOLLOWERS:
                # What they left undone is done again now.
                forget_gone(file)
            with file.writing() as connection:
                connection.execute(_INSERT, row)

        try:
            yield
        finally:
            with suppress(IndexFault), file.writing() as connection:
                connection.execute("DELETE FROM processes WHERE kind = ? AND owner = ?", row[:2])


def note_polling(path: Path, reason: str) -> None:
    """Note why this process polls, if the account file of its home lists it; empty: it does not poll."""
    change = "UPDATE processes SET settings = json_set(settings, '$.polling', ?) WHERE owner = ?"
    with closing(AccountFile(path)) as file, suppress(IndexFault), file.writing() as connection:
        connection.execute(change, (reason, leases.current_owner()))


def forget_gone(file: AccountFile) -> None:
    """Remove the rows of processes that are gone: the caller does what they left undone."""
    gone = [(each.kind, each.owner) for each in listed(file) if not each.is_alive]
    if gone:
        with suppress(IndexFault), file.writing() as connection:
            connection.executemany("DELETE FROM processes WHERE kind = ? AND owner = ?", gone)


def listed(file: AccountFile) -> list[Process]:
    """List the processes of a home, the oldest first, those that are gone as well."""
    with file.reading() as connection:
        if connection is None:
            return []
        rows = connection.execute(f"SELECT {_COLUMNS} FROM processes ORDER BY started").fetchall()
    return [
        Process(
            kind=kind,
            owner=owner,
            boot=boot,
            started=started,
            agents=tuple(json.loads(agents)),
            **json.loads(state),
        )
        for kind, owner, boot, started, agents, state in rows
    ]


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
