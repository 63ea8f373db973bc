"""Commands as child processes: their CPU time, their wall time, what they print.

The variables that would make a child compile every module again, or find a key, are not handed on.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

#: The folder that holds the packages: children run there, so that a checkout needs no installation.
ROOT = Path(__file__).resolve().parent.parent

#: A small real model beside the repository; it is no part of it.
MODEL = ROOT.parent / "shared/models/all-MiniLM-L6-v2-q8_0.gguf"

_FOREIGN = ("MEMLINE_", "OPENCLAW_", "OPENAI_", "GEMINI_", "GOOGLE_", "VOYAGE_", "MISTRAL_")
_SLOW = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONDEVMODE", "PYTHONTRACEMALLOC")

BARE = (sys.executable, "-c", "pass")

#: What the console script does.
_MAIN = "from memline.producers.start import main; main()"

#: Statements that tell, at the end of a child, the most it has held. Not ru_maxrss: that begins with the
#: memory of the parent.
PEAK = """
import atexit, sys
def peak():
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                print("peak", line.split()[1], file=sys.stderr)
atexit.register(peak)
"""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A child that has ended."""

    cpu_s: float = 0.0
    wall_s: float = 0.0
    stdout: str = ""
    stderr: str = ""
    #: The most that it has held with its children; 0 without a time limit.
    peak_mb: float = 0.0


def environment() -> dict[str, str]:
    """The environment of children: the one of this process without what would spoil a figure."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_FOREIGN) and name not in _SLOW
    }


def memline(*args: str | Path, before: str = "") -> list[str]:
    """The command line of `memline ARGS`; `before`: statements to run ahead of it in the same process."""
    script = Path(sys.executable).with_name("memline")
    if script.exists() and not before:
        return [str(script), *map(str, args)]
    return [sys.executable, "-c", f"{before}\n{_MAIN}", *map(str, args)]


def run(
    command: Sequence[str],
    *,
    variables: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
    within_s: float | None = None,
) -> Run:
    """Run a command to its end; one that takes longer than `within_s` is killed. Raises RuntimeError.

    With a time limit its memory is read five times a second.
    """
    began, peak = time.perf_counter(), 0.0
    with (
        tempfile.TemporaryFile("w+") as stdout,
        tempfile.TemporaryFile("w+") as stderr,
        subprocess.Popen(
            command, env=variables or environment(), cwd=cwd, stdout=stdout, stderr=stderr
        ) as child,
    ):
        while True:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG if within_s else 0)
            wall_s = time.perf_counter() - began
            if pid:
                break
            peak = max(peak, sum(map(resident_mb, (child.pid, *below(child.pid)))))
            if within_s and wall_s > within_s:
                child.kill()
            time.sleep(0.2)
        child.returncode = os.waitstatus_to_exitcode(status)
        stdout.seek(0)
        stderr.seek(0)
        out, err = stdout.read(), stderr.read()
    if child.returncode:
        words = f"{Path(command[0]).name} {command[1]} ended with {child.returncode} after {wall_s:.0f} s"
        raise RuntimeError(f"{words}: {(err.strip() or out.strip())[-2000:]}")
    cpu_s = usage.ru_utime + usage.ru_stime
    return Run(cpu_s=cpu_s, wall_s=wall_s, stdout=out, stderr=err, peak_mb=peak)


def below(pid: int) -> list[int]:
    """The processes that descend from one."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, task.read_text().split())
    return found + [each for child in found for each in below(child)]


def resident_mb(pid: int) -> float:
    """Megabytes that a process holds."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return 0.0


def cpu_s(pid: int) -> float:
    """CPU seconds so far of a process and of those below it."""
    ticks = 0
    for each in (pid, *below(pid)):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def peak_mb(run: Run) -> float:
    """The most that a child which began with `PEAK` has held."""
    peaks = [line.split()[1] for line in run.stderr.splitlines() if line.startswith("peak ")]
    return int(peaks[-1]) / 1024


def over_bare_ms(commands: Mapping[str, Sequence[str]], *, times: int = 15) -> dict[str, float]:
    """CPU milliseconds of each command over those of a bare Python.

    The commands take turns, so that all see the same weather; two rounds ahead warm bytecode and disk.
    """
    cpu: dict[str, list[float]] = {name: [] for name in ("", *commands)}
    for turn in range(times + 2):
        for name, command in {"": BARE, **commands}.items():
            used = run(command).cpu_s
            if turn >= 2:
                cpu[name].append(used)
    bare = statistics.median(cpu.pop(""))
    return {name: 1000 * (statistics.median(values) - bare) for name, values in cpu.items()}
