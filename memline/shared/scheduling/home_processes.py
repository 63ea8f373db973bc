"""Keep the processes of a home that have no heartbeat in Redis: `up`, `watch`, `serve`, `mcp` and `index`.

A row says which process it is and which agents it works for. It goes with its process; one whose process is
gone without a word stays, so that a reader can tell that nothing follows the files any more, until the next
`index`.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from memline.shared.config.config_file import for_owner
from memline.shared.config.live import SettingsWatch, digest
from memline.shared.errors import IndexFault
from memline.shared.index.accounts import AccountFile
from memline.shared.scheduling import leases
from memline.shared.values import field, value

UP, WATCH, SERVE, MCP, INDEX = "up", "watch", "serve", "mcp", "index"

#: Those that bring changed files into an index, and those that embed what it lacks.
FOLLOWERS, EMBEDDING = (UP, WATCH, INDEX), (UP, INDEX)

#: The file of a home with the random key of the digests of settings.
_KEY = ".settings-key"

_COLUMNS = "kind, owner, boot, started, agents"
_INSERT = f"INSERT OR REPLACE INTO processes ({_COLUMNS}) VALUES (?, ?, ?, ?, ?)"


@value
class Process:
    """A process of a home."""

    kind: str
    #: `host:pid:start`; see `shared.scheduling.leases.current_owner`.
    owner: str
    #: Which start of the host it belongs to; empty where the system does not say.
    boot: str
    #: Seconds since the epoch.
    started: float
    agents: tuple[str, ...]
    #: Keys of settings that changed and that it does not take, and why its settings cannot be read.
    never: tuple[str, ...] = ()
    settings_problem: str = ""
    #: Digest of the settings that it has, but for paths, and that of each key: equal ones are the same.
    settings: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)
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

    def to_json(self) -> dict[str, Any]:
        """Return the JSON contract of a process."""
        return {
            "kind": self.kind,
            "host": self.host,
            "pid": self.pid,
            "startedAt": self.started,
            "agents": list(self.agents),
            "alive": self.is_alive,
            "settings": self.settings or None,
            "restartFor": list(self.never),
            "settingsProblem": self.settings_problem or None,
        }


@contextmanager
def registered(
    path: Path, kind: str, agents: Iterable[str], now: float, watch: SettingsWatch | None = None
) -> Iterator[None]:
    """List this process in the account file of a home while a block runs, and what `watch` sees.

    A home that cannot be written has no list: the process works all the same.
    """
    row = (kind, leases.current_owner(), _boot(), now, json.dumps(sorted(agents)))
    with closing(AccountFile(path)) as file:
        with suppress(IndexFault):
            if kind in FOLLOWERS:
                # What they left undone is done again now.
                forget_gone(file)
            with file.writing() as connection:
                connection.execute(_INSERT, row)

        def tell(never: tuple[str, ...], problem: str) -> None:
            state: dict[str, object] = {"never": never, "settings_problem": problem}
            if watch and (secret := _secret(path.parent)):
                keys = watch.digests((kind,), secret)
                state |= {"settings": digest(secret, repr(keys)), "keys": keys}
            _note(file, state)

        if watch is not None:
            watch.tell = tell
            tell(watch.never, watch.problem)
        try:
            yield
        finally:
            with suppress(IndexFault), file.writing() as connection:
                connection.execute("DELETE FROM processes WHERE kind = ? AND owner = ?", row[:2])


def note_polling(path: Path, reason: str) -> None:
    """Note why this process polls, if the account file of its home lists it; empty: it does not poll."""
    with closing(AccountFile(path)) as file:
        _note(file, {"polling": reason})


def _note(file: AccountFile, state: Mapping[str, object]) -> None:
    """Put a state of this process beside what its row says already."""
    owner = leases.current_owner()
    with suppress(IndexFault), file.writing() as connection:
        rows = connection.execute("SELECT rowid, settings FROM processes WHERE owner = ?", (owner,))
        for row, before in rows.fetchall():
            after = json.dumps(json.loads(before) | state)
            connection.execute("UPDATE processes SET settings = ? WHERE rowid = ?", (after, row))


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
        rows = connection.execute(f"SELECT {_COLUMNS}, settings FROM processes ORDER BY started").fetchall()
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


def _secret(home: Path) -> bytes:
    """Return the random key of the digests of a home; empty where none can be kept."""
    key, part = home / _KEY, home / f"{_KEY}.{os.getpid()}"
    try:
        if not key.exists():
            with open(part, "wb", opener=for_owner) as made:
                made.write(os.urandom(32))
            # Of several processes the first makes it.
            with suppress(FileExistsError):
                os.link(part, key)
            part.unlink()
        return key.read_bytes()
    except OSError:
        return b""


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
