"""A redis-server of the test's own, on a free port: killed, stopped and started again at will."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest
import redis

#: Seconds a server may take to answer; far above what it needs.
START_S = 90.0


def redis_command():
    """Find redis-server on the PATH or beside Python; without it fail under CI, else skip the test."""
    beside_python = str(Path(sys.executable).parent)
    found = shutil.which("redis-server") or shutil.which("redis-server", path=beside_python)
    if found is None:
        reason = "there is no redis-server: sh scripts/redis.sh installs one"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


class RedisServer:
    """One server; a context manager. Without `keeps_data` everything is gone when it ends."""

    def __init__(self, folder, *, keeps_data=False, password=""):
        self._command = redis_command()
        self.folder = folder
        self.keeps_data = keeps_data
        self._password = password
        self._process = None
        # Held and never listened on: no other server is given the port before this one starts, or while it is
        # away.
        self._reserved = socket.socket()
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reserved.bind(("127.0.0.1", 0))
        self.port = self._reserved.getsockname()[1]

    @property
    def url(self):
        login = f":{self._password}@" if self._password else ""
        return f"redis://{login}127.0.0.1:{self.port}/0"

    @property
    def pid(self):
        assert self._process is not None
        return self._process.pid

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """End it and give up its port."""
        self.kill()
        self._reserved.close()

    def start(self, *more):
        """Start it and wait until it answers; `more` are options of redis-server."""
        self.folder.mkdir(parents=True, exist_ok=True)
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", ""]
        if self.keeps_data:
            # Every command is on the disk before it is answered: a kill loses nothing.
            options += ["--appendonly", "yes", "--appendfsync", "always"]
        if self._password:
            options += ["--requirepass", self._password]
        self._process = subprocess.Popen(
            [self._command, *options, *more], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + START_S
        while not self._answers():
            assert self._process.poll() is None, "redis-server ended at once"
            assert time.monotonic() < deadline, f"redis-server does not answer within {START_S:g} s"
            time.sleep(0.01)

    def kill(self):
        """End it without warning, if it runs."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self):
        """Kill it and start it again, with its data when it keeps them."""
        self.kill()
        if not self.keeps_data:
            shutil.rmtree(self.folder)
        self.start()

    def suspend(self):
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self):
        os.kill(self.pid, signal.SIGCONT)

    def client(self):
        """A plain client, to look with and to do harm."""
        return redis.Redis.from_url(self.url)

    def ask(self, *command):
        """The answer to one command."""
        with closing(self.client()) as client:
            return client.execute_command(*command)

    def _answers(self):
        try:
            return bool(self.ask("PING"))
        except redis.RedisError:
            return False
