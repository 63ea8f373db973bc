"""Processes of tests: `memline` as a user starts it, and Python children with fewer rights than ours.

Every process started here is ended here, whatever becomes of the test.
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

#: The checkout: children import the packages from here, wherever they run.
ROOT = Path(__file__).resolve().parents[2]

#: Seconds a process may take; far above what any of them needs.
TIMEOUT_S = 180.0

#: Bytes that fit into the pipe of a process; the usual 64 KiB are a minute of log lines.
PIPE_BYTES = 1 << 20

_MEMLINE = "from memline.producers.start import main; main()"

#: Makes file permissions hold for this process, also when the tests run as root. Root without capabilities
#: is an owner like any other; another user could not even read the interpreter where root has it at home.
_DROP_RIGHTS = """
import ctypes, os
if os.geteuid() == 0:
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    nothing = (ctypes.c_uint32 * 6)()
    if ctypes.CDLL(None, use_errno=True).capset(header, nothing):
        raise OSError(ctypes.get_errno(), "capset")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A process that ended."""

    status: int
    stdout: str
    stderr: str
    args: tuple[str, ...] = ()

    @property
    def json(self):
        """What it printed on standard output."""
        return json.loads(self.stdout)


def memline(*args, env=None, before="", timeout_s=TIMEOUT_S):
    """Run a command line to its end; `before` is Python that the process runs first."""
    return python(f"{before}\n{_MEMLINE}", *args, env=env, timeout_s=timeout_s)


def memline_without_rights(*args, env=None, before=""):
    """The same as a user for whom file permissions hold."""
    return memline(*args, env=env, before=f"{before}\n{_DROP_RIGHTS}")


def python(script, *args, env=None, timeout_s=TIMEOUT_S):
    """Run Python code in a process of its own."""
    done = subprocess.run(
        _command(script, args),
        capture_output=True,
        text=True,
        env=_environment(env),
        timeout=timeout_s,
        check=False,
    )
    return Ran(status=done.returncode, stdout=done.stdout, stderr=done.stderr, args=args)


@contextmanager
def running_memline(*args, env=None, before=""):
    """A command line that runs beside the test; killed at the end if nobody ended it.

    `before`: as in `memline`.
    """
    process = subprocess.Popen(
        _command(f"{before}\n{_MEMLINE}", args),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        # Read at the end: what a process says until then must find room, or it stops in its work.
        pipesize=PIPE_BYTES,
        text=True,
        env=_environment(env),
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def end(process, number=signal.SIGTERM):
    """Send a signal, wait for the end, and give what the process said on standard error."""
    with suppress(ProcessLookupError):
        process.send_signal(number)
    return wait(process)


def wait(process):
    """Wait for the end, and give what the process said on standard error."""
    return process.communicate(timeout=TIMEOUT_S)[1]


def _command(script, args):
    return [sys.executable, "-c", script, *args]


def _environment(more):
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **(more or {})}
