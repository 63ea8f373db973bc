"""Say who works on the queues of a fleet.

    <fleet>:workers    hash: id of a worker -> its `WorkerInfo` in MessagePack, renewed every `HEARTBEAT_S`

Who was silent for `TTL_S`, by the clock of Redis, counts as gone; the next reader (`shared.queue.fleet`)
removes it.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Mapping
from contextlib import closing, suppress

import msgspec
from msgspec.structs import replace

from memline.shared.config.config_file import SettingsFile
from memline.shared.config.installation import QueueAddress
from memline.shared.errors import QueueError
from memline.shared.logs import Log
from memline.shared.packages import own_version
from memline.shared.queue import redis_client
from memline.shared.queue.fleet import WorkerInfo

#: Seconds between two heartbeats.
HEARTBEAT_S = 2.0


class Heartbeat:
    """Tells Redis that this worker process is alive."""

    def __init__(
        self, address: QueueAddress, threads_of: Mapping[str, int], *, file: SettingsFile | None = None
    ) -> None:
        """Serve the queues of these roles, each with so many threads, by the settings of a file."""
        # A connection of its own, which does not wait for long: the others may be busy.
        self._client = redis_client.client(address, looks=True)
        self._file = file or SettingsFile()
        self._info = WorkerInfo(
            id=uuid.uuid4().hex,
            threads_of=dict(threads_of),
            host=socket.gethostname(),
            pid=os.getpid(),
            version=own_version(),
            started=time.time(),
        )
        self._due = 0.0

    def beat(self) -> None:
        """Tell it, when that is due."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + HEARTBEAT_S
        newer_file = self._file.newer()
        if newer_file and not self._info.newer_file:
            Log("settings").warning("settings.old", file=newer_file)
        try:
            seen = self._client.now()
            self._info = replace(self._info, seen=seen, newer_file=newer_file)
            content = msgspec.msgpack.encode(self._info)
            self._client.hset(self._client.key("workers"), self._info.id, content)
        except QueueError as error:
            # The consumers say the same and wait; one heartbeat too few is no loss.
            Log("heartbeat").debug("heartbeat.failed", error=error.message)

    def close(self) -> None:
        """Tell that this process is gone."""
        with closing(self._client), suppress(QueueError):
            self._client.hdel(self._client.key("workers"), self._info.id)
