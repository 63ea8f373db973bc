"""A fleet of real processes: the lines of the Procfile, each started, killed, stopped and ended at will."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress

from memline.shared.config import environment
from memline.shared.config.installation import QueueAddress
from memline.shared.errors import IndexMissing
from memline.shared.queue import redis_client
from memline.shared.queue.fleet import live_workers, read_fleet
from tests.support.process import ROOT
from tests.support.workspace import timed

#: Seconds a state may take to come; reached only when a test fails.
PATIENCE_S = 150.0

#: Seconds a process that was told to stop may take.
END_S = 120.0

#: The workers that take a note from its file to an answer; the others have tests of their own.
WORKERS = ("chunk", "embed", "store", "query")
LINES = ("watch", *WORKERS)


#: Sets the clock of a process ahead by the seconds of `SKEW_S`, or back; durations stay right.
_CLOCK = (
    "import os, time; ahead_s = float(os.environ.get('SKEW_S', 0)); now, now_ns = time.time, time.time_ns; "
    "time.time = lambda: now() + ahead_s; time.time_ns = lambda: now_ns() + int(ahead_s * 1e9); "
)


def procfile():
    """The command lines of the Procfile, by the name of the process."""
    lines = (ROOT / "Procfile").read_text("utf-8").splitlines()
    named = (re.fullmatch(r"([a-z]+):\s+(.+)", line) for line in lines)
    return {match[1]: match[2] for match in named if match}


class Fleet:
    """Processes of one fleet, by label: the name of a line, or `name-2` for one more of it.

    A context manager; every process it started is ended at the end.
    """

    def __init__(self, place, url, *, lease_s=None, **variables):
        """`lease_s`: seconds of a lease; None for what the time limit of a request needs."""
        self.place = place
        self.url = url
        self._variables = variables
        self._bin = place.folder / "bin"
        self._logs = place.folder / "logs"
        self._processes = {}
        for folder in (self._bin, self._logs):
            folder.mkdir(exist_ok=True)
        # The commands of an installation: of these sources, run by this interpreter.
        short = "from memline.shared.scheduling import leases; "
        short += f"leases.lease_s, leases.CLOCKS_S = lambda _: {lease_s}, 0; "
        start = "from memline.producers.start import main; main()"
        self._command("memline", _CLOCK + short * (lease_s is not None) + start)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for label in self._processes:
            self.kill(label)

    @property
    def address(self):
        """The server with the name that this fleet has on it."""
        name = self._variables.get("MEMLINE_QUEUE_NAME", environment.fleet_name(self.place.home))
        return QueueAddress(self.url, name)

    @property
    def environment(self):
        """What the processes find, and nothing of the developer's own."""
        return {
            "PATH": f"{self._bin}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.place.folder),
            "PYTHONPATH": str(ROOT),
            "MEMLINE_CONFIG": str(self.place.config),
            "MEMLINE_HOME": str(self.place.home),
            "MEMLINE_QUEUE_URL": self.url,
            **self._variables,
        }

    # Processes.

    def start(
        self,
        *labels,
        env=None,
        before="",
        line="",
        cwd=ROOT,
    ):
        """Start the lines of these labels, or `line` in their place; `before` is a command that runs them."""
        for label in labels:
            command = line or procfile()[label.partition("-")[0]]
            log = (self._logs / f"{label}.log").open("ab")
            self._processes[label] = subprocess.Popen(
                ["sh", "-c", f"exec {before} {command}"],
                env={**self.environment, **(env or {})},
                cwd=cwd,
                stdout=log,
                stderr=log,
                # A group of its own: what a container or a unit is, ended as a whole.
                start_new_session=True,
            )
            log.close()

    def up(self, *more):
        """Start the watcher, `WORKERS` and some more, and wait until all workers are there."""
        labels = (*LINES, *more)
        self.start(*labels)
        self.until_alive(*(label for label in labels if label != "watch"))

    def up_together(self, *alone):
        """The same with one process `work` for all roles that need not stand alone: a start takes a third."""
        self.start("watch", *alone)
        roles = [role for role in WORKERS if role not in alone]
        self.start_work(*roles)
        self.until_alive("+".join(roles), *alone)

    def start_work(self, *roles):
        """Start one process `work` for these roles."""
        self.start("work", line=f"memline worker {' '.join(roles)}")

    def until_alive(self, *labels):
        """Wait until the workers of these labels, and no less, have told that they are there."""
        wanted = sorted(label.partition("-")[0] for label in labels)
        self.until(lambda: sorted(self.roles()) == wanted, f"workers {wanted}")

    def roles(self):
        """The queue of every worker process that is alive, as Redis knows it."""
        with redis_client.client(self.address) as client:
            return ["+".join(one.queues) for one in live_workers(client)]

    def pid(self, label):
        return self._processes[label].pid

    def is_running(self, label):
        return self._processes[label].poll() is None

    def kill(self, label):
        """kill -9 of a process with its children."""
        self.signal(label, signal.SIGKILL)
        self._processes[label].wait()

    def restart(self, label):
        self.kill(label)
        self.start(label)

    def restart_all(self):
        """Start all processes again, as for other settings."""
        for label in [*self._processes]:
            self.restart(label)

    def signal(self, label, number):
        """Send a signal to a process and its children."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid(label), number)

    def terminate(self, *labels):
        """SIGTERM as a supervisor sends it, to the process alone; no wait."""
        for label in labels:
            os.kill(self.pid(label), signal.SIGTERM)

    def ended(self, label):
        """The exit status of a process that is ending; fails when it takes too long."""
        return self._processes[label].wait(END_S)

    # What they do.

    def log(self, label):
        return (self._logs / f"{label}.log").read_text("utf-8")

    def logs(self):
        """All lines of all processes."""
        for file in sorted(self._logs.iterdir()):
            yield from file.read_text("utf-8").splitlines()

    def vectors(self):
        """How many vectors the index has in each state; none while there is no index."""
        try:
            return self.place.vector_states()
        except IndexMissing:
            return {}

    def queue(self, name):
        with redis_client.client(self.address) as client:
            return next(one for one in read_fleet(client).queues if one.name == name)

    def dead(self):
        """What `memline queue dead` lists."""
        listed = self.run("queue", "dead", "--json")
        assert listed.status == 0, listed.stderr
        found = listed.json
        return found

    def run(self, *args, before=""):
        """A command line of a user of this fleet; `before` is Python that its process runs first."""
        return self.place.run(*args, env={"MEMLINE_QUEUE_URL": self.url, **self._variables}, before=before)

    def until(self, holds, what, *, within_s=PATIENCE_S):
        """Look again and again until `holds`; the seconds it took. If not, the logs are shown."""
        began = time.monotonic()
        while not timed(holds, 0.05):
            if time.monotonic() > began + within_s:
                tails = "\n".join(
                    f"== {file.name}\n{file.read_text()[-3000:]}" for file in self._logs.iterdir()
                )
                raise AssertionError(f"{what} did not come within {within_s:g} s\n{tails}")
        return time.monotonic() - began

    def _command(self, name, script):
        file = self._bin / name
        file.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(script)} "$@"\n')
        file.chmod(0o755)
