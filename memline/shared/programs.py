"""Run a program of the user's: bounded in time, output and memory, and what it starts ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from tempfile import TemporaryFile

from memline.shared.values import value

#: Seconds between two looks at what a program wrote, and bytes that are kept of its standard error: the end.
_POLL_S = 0.05
_ERROR_BYTES = 2_000

#: What ended a program that did not end by itself.
NOT_STARTED, TOO_LONG, TOO_MUCH, STOPPED = "not started", "too long", "too much", "stopped"

#: Limits the data of a process, and of what it starts, in KiB, before the program begins.
_WITH_LIMIT = ("/bin/sh", "-c", 'ulimit -d "$0" 2>/dev/null; exec "$@"')


@value
class Ran:
    """How a program ended."""

    #: Exit status; negative: the signal that ended it.
    status: int = 0
    #: One of the constants above; empty when it ended by itself.
    problem: str = ""
    #: Why it was not started.
    reason: str = ""
    stdout: str = ""
    #: The end of its standard error.
    stderr: str = ""


def run_program(
    command: Sequence[str],
    *,
    timeout_s: float,
    max_bytes: int,
    text: str = "",
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    max_memory: int = 0,
    keep_open: Sequence[int] = (),
    is_stopped: Callable[[], bool] = lambda: False,
) -> Ran:
    """Give a program the text and wait for its end; after `timeout_s` it is killed with all of its group.

    `max_bytes` is for both outputs together. `max_memory` are the bytes of data of each of its processes; 0:
    no limit. `keep_open` are file descriptors that it inherits: a lock that lasts as long as the program.
    Never raises for what the program does.
    """
    if max_memory:
        command = [*_WITH_LIMIT, str(max_memory // 1024), *command]
    # Files, not pipes: it may answer while it reads, or without reading, and leave a daemon that holds them.
    with TemporaryFile() as stdin, TemporaryFile() as stdout, TemporaryFile() as stderr:
        stdin.write(text.encode("utf-8", "replace"))
        stdin.seek(0)
        try:
            # A session of its own, so that what it started ends with it.
            process = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env=env,
                cwd=cwd,
                pass_fds=keep_open,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = (error.strerror if isinstance(error, OSError) else "") or "not a command"
            return Ran(problem=NOT_STARTED, reason=reason)
        deadline = time.monotonic() + timeout_s
        problem = TOO_LONG
        try:
            while time.monotonic() < deadline:
                is_running = True
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_S)
                    is_running = False
                written = sum(os.fstat(output.fileno()).st_size for output in (stdout, stderr))
                if written > max_bytes or not is_running or is_stopped():
                    problem = TOO_MUCH if written > max_bytes else STOPPED if is_running else ""
                    break
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - _ERROR_BYTES))
        words = stderr.read().decode("utf-8", "replace")
        stdout.seek(0)
        said = "" if problem == TOO_MUCH else stdout.read().decode("utf-8", "replace")
        return Ran(status=process.returncode, problem=problem, stdout=said, stderr=words)
