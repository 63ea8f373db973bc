"""Following a long session transcript that is written to all the time, while `memline up` runs."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import provider
from benchmarks.bench import Bench, Place
from benchmarks.children import ROOT, environment, memline
from benchmarks.corpus import Words
from benchmarks.figures import Figure, at_most

if TYPE_CHECKING:
    from sqlite3 import Connection

#: Size of the transcript at the beginning, and how fast it grows.
_START_BYTES = 50_000_000
_BYTES_PER_S = 2_000

#: Lines after which a transcript is read on (the default of `sync.sessions.deltaMessages`).
_THRESHOLD_LINES = 50

_PATIENCE_S = 120.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def growth(bench: Bench) -> list[Figure]:
    """CPU while 50 MB grow by 2 kB/s, seconds until the tail is searchable, and texts embedded for it."""
    with provider.serving() as base_url:
        place = _place(bench, base_url)
        transcript = _transcript(bench)
        began = time.monotonic()
        _run(place, bench, "index")
        first_s = time.monotonic() - began
        _run(place, bench, "index")
        with _up(place, bench) as up, closing(_reader(place)) as reader:
            _until_idle(up.pid)
            before = _Rows.of(reader)
            writer = _Writer(transcript)
            cpu = _cpu_s(up.pid)
            writer.write_for(bench.seconds, on_look=lambda: writer.look(reader))
            used = _cpu_s(up.pid) - cpu
            # What was due when the writing ended, within its time.
            until = time.monotonic() + 12
            while time.monotonic() < until:
                writer.look(reader)
                time.sleep(0.02)
            after = _Rows.of(reader)
            peak_mb = _peak_mb(up.pid)
    updates = len(writer.seen) - 1
    again = after.embedded - before.embedded - (after.chunks - before.chunks)
    return [
        at_most(
            f"a transcript of 50 MB growing by 2 kB/s for {bench.seconds} s: CPU of memline up",
            100 * used / bench.seconds,
            5,
            "% of a core",
            detail=f"{used:.2f} s in {updates} readings; peak {peak_mb:.0f} MB",
        ),
        at_most(
            "the tail searchable after a threshold was crossed",
            max(writer.latencies(), default=_PATIENCE_S),
            10,
            "s",
            detail="each: " + ", ".join(f"{latency:.1f}" for latency in writer.latencies()),
        ),
        at_most(
            "texts embedded beside one for every new chunk",
            again,
            updates,
            "texts",
            detail=f"{after.chunks - before.chunks} new chunks; each reading may remake one that was open",
        ),
        Figure(
            what="the first index of it, provider at zero latency",
            target="",
            measured=f"{first_s:.1f} s",
            detail=f"{before.chunks} chunks",
        ),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    chunks: int
    embedded: int

    @classmethod
    def of(cls, reader: Connection) -> _Rows:
        from memline.shared.index import chunks, meta

        return cls(chunks=chunks.count(reader), embedded=meta.get(reader, meta.EMBEDDED_TOTAL, 0))


@dataclass(slots=True)
class _Writer:
    """Writes like an agent, and remembers when each line was written and when it was in the index."""

    file: Path
    #: Lines of the file -> when the last of them was written (monotonic s).
    written: dict[int, float] = field(default_factory=dict)
    #: (lines in the index, when that was seen)
    seen: list[tuple[int, float]] = field(default_factory=list)

    def write_for(self, seconds: float, *, on_look: object) -> None:
        assert callable(on_look)
        lines = sum(block.count(b"\n") for block in _blocks(self.file))
        made = _records(seed=time.time_ns())
        due = time.monotonic()
        end = due + seconds
        with self.file.open("ab", buffering=0) as file:
            while time.monotonic() < end:
                record = next(made)
                file.write(record)
                lines += 1
                self.written[lines] = time.monotonic()
                due += len(record) / _BYTES_PER_S
                while time.monotonic() < min(due, end):
                    on_look()
                    time.sleep(0.02)

    def look(self, reader: Connection) -> None:
        lines = reader.execute("SELECT max(lines) FROM transcripts").fetchone()[0]
        if not self.seen or self.seen[-1][0] != lines:
            self.seen.append((lines, time.monotonic()))

    def latencies(self) -> list[float]:
        """Seconds from the line that crossed the threshold to the reading that had it, for each reading."""
        pairs = zip(self.seen, self.seen[1:], strict=False)
        return [
            when - self.written[before + _THRESHOLD_LINES]
            for (before, _), (lines, when) in pairs
            if before + _THRESHOLD_LINES <= lines and before + _THRESHOLD_LINES in self.written
        ]


def _records(seed: int) -> Iterator[bytes]:
    """Lines of a session without end: a question, what a tool gave, an answer."""
    words = Words(seed)
    while True:
        for role, size in (("user", 30), ("toolResult", 120), ("assistant", 90)):
            text = " ".join(words.draw(size))
            message = {"role": role, "content": [{"type": "text", "text": text}]}
            record = {"type": "message", "timestamp": "2026-02-10T10:00:00.000Z", "message": message}
            yield json.dumps(record).encode() + b"\n"


def _state(bench: Bench) -> Path:
    return bench.folder / "state"


def _transcript(bench: Bench) -> Path:
    """The transcript as it is at the beginning; made anew each time."""
    folder = _state(bench) / "agents" / "main" / "sessions"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "long.jsonl"
    size = 0
    with file.open("wb") as out:
        for record in _records(seed=7):
            size += out.write(record)
            if size >= _START_BYTES:
                return file
    raise AssertionError("the records have no end")


def _place(bench: Bench, base_url: str) -> Place:
    place = bench.place("sessions", bench.notes(20, 5), base_url=base_url)
    settings = json.loads(place.config.read_text())
    settings["agents"]["defaults"]["memorySearch"].update(
        {"sources": ["memory", "sessions"], "experimental": {"sessionMemory": True}}
    )
    place.config.write_text(json.dumps(settings))
    return place


def _environment(bench: Bench) -> dict[str, str]:
    return {**environment(), "OPENCLAW_STATE_DIR": str(_state(bench)), "OPENAI_API_KEY": "bench"}


def _run(place: Place, bench: Bench, command: str) -> None:
    subprocess.run(
        memline(*place.options(), command),
        cwd=ROOT,
        env=_environment(bench),
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@contextmanager
def _up(place: Place, bench: Bench) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        memline(*place.options(), "up"),
        cwd=ROOT,
        env=_environment(bench),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as up:
        try:
            assert up.stderr is not None
            while "follows" not in (line := up.stderr.readline()):
                if not line:
                    raise RuntimeError("memline up ended before it followed anything")
            threading.Thread(target=up.stderr.read, daemon=True).start()
            yield up
        finally:
            up.terminate()


def _reader(place: Place) -> Connection:
    from memline.shared.index import driver

    return driver.open_reader(place.settings().index_path)


def _until_idle(pid: int) -> None:
    """Wait until a second has passed in which the process did next to nothing."""
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        before = _cpu_s(pid)
        time.sleep(1)
        if _cpu_s(pid) - before <= 0.03:
            return
    raise RuntimeError("memline up does not come to rest")


def _blocks(file: Path) -> Iterator[bytes]:
    with file.open("rb") as opened:
        while block := opened.read(1 << 20):
            yield block


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _peak_mb(pid: int) -> float:
    line = next(
        line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")
    )
    return int(line.split()[1]) / 1024
