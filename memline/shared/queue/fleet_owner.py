"""Let one home own a fleet: `store` workers of two homes would take each other's paid answers.

    <fleet>:owner   string, JSON: the id of the home, its host and its path

The id is that of the home's files (`<home>/fleet.id`), so a home that was moved, or that each container sees
under another name, is still the same.
"""

from __future__ import annotations

import fcntl
import json
import socket
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

from memline.shared.config.config_file import for_owner
from memline.shared.config.installation import QueueAddress
from memline.shared.errors import IndexUnwritable, QueueError
from memline.shared.queue import redis_client


def refuse_other(address: QueueAddress, home: Path, *, is_claimed: bool = False) -> None:
    """Raise QueueError when another home owns the fleet; with `is_claimed` make this one the owner."""
    ours = {"id": _id_of(home), "host": socket.gethostname(), "home": str(home.resolve())}
    with closing(redis_client.client(address)) as server:
        name, text = server.key("owner"), json.dumps(ours)
        if is_claimed:
            server.set(name, text, nx=True)
        stored: Any = server.get(name)
        owner = json.loads(stored) if stored else ours
        if owner["id"] == ours["id"]:
            if is_claimed:
                # It may have moved since.
                server.set(name, text)
            return
    fleet = name.split(":")[1]
    raise QueueError(
        f"the fleet {fleet} works on the indexes of {owner['home']} on {owner['host']}; this process is of"
        f" {ours['home']} on {ours['host']}",
        hint=f"set another queue.name; if that home is gone for good: redis-cli del {name}",
        code="fleet_taken",
    )


def _id_of(home: Path) -> str:
    """Return the id of a home, made when it has none."""
    path = home / "fleet.id"
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(path, "a+", opener=for_owner) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            found = file.read().strip()
            if not found:
                found = uuid.uuid4().hex
                file.write(found)
            return found
    except OSError as error:
        raise IndexUnwritable(f"cannot write {path}: {error.strerror}", hint="set MEMLINE_HOME") from error
