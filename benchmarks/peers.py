"""Memline beside real peers: `python -m benchmarks.peers [--files N] [--peers a,b] [--keep DIR]`, one table.

All get the same notes, the same embedding server and the same questions, one after another in one run. Each
cell is the ratio to Memline and the figure: CPU of a command with its child processes, not the time of day,
but for a warm search, which a process that stays answers. The peers are installed once, by package name, into
DIR/programs; one that cannot be had is named with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from benchmarks import corpus
from benchmarks.peer_programs import DIMS, PEERS, Absent, Peer
from benchmarks.provider import running

#: Sections of a note.
SECTIONS = 3

#: Questions of a warm search, of a peer without one, and words of a question.
ASKED, ONE_SHOT, WORDS = 60, 10, 3

ROWS = (
    ("first index", "s CPU"),
    ("nothing changed", "s CPU"),
    ("one file changed", "s CPU"),
    ("one-shot search", "s CPU"),
    ("warm search, p50", "ms"),
    ("warm search, p95", "ms"),
    ("memory of the first index", "MB"),
    ("disk", "MB"),
    ("provider requests of the first index", ""),
    ("texts embedded by it", ""),
    ("recall@5", ""),
    ("MRR", ""),
)


@dataclass(slots=True, kw_only=True)
class Measured:
    """The figures of one peer by the names of their rows."""

    name: str
    version: str = ""
    vectors: str = ""
    warm: str = ""
    #: Why it is absent, or ended early.
    reason: str = ""
    figures: dict[str, float] = field(default_factory=dict)


def labelled(notes: Path, count: int) -> list[tuple[str, str]]:
    """Questions of some words that stand in one section, and the name of the note that answers."""
    chance, common = random.Random(5), set(corpus.Words()._words[: corpus.STOP_RANKS])
    files = sorted(notes.rglob("*.md"))
    found = []
    for file in chance.sample(files, min(count, len(files))):
        section = chance.choice(file.read_text("utf-8").split("## ")[1:])
        words = [
            word for word in dict.fromkeys(section.lower().replace(".", "").split()) if word not in common
        ]
        found.append((" ".join(chance.sample(words, WORDS)), file.name))
    return found


def measure(peer: Peer, questions: list[tuple[str, str]], measured: Measured) -> None:
    """Measure all rows of a peer that is installed. Raises Absent when one of its commands fails."""
    figures = measured.figures
    peer.prepare()
    measured.vectors = peer.vectors
    server_log(peer.url, clear=True)
    figures["first index"], figures["memory of the first index"], _ = cost(peer, peer.indexing())
    log = server_log(peer.url)
    figures["provider requests of the first index"] = len(log["requests"])
    figures["texts embedded by it"] = sum(each["rows"] for each in log["requests"])
    figures["disk"] = sum(each.stat().st_size for each in peer.home.rglob("*") if each.is_file()) / 1e6
    figures["nothing changed"], _, _ = cost(peer, peer.indexing())
    changed = sorted(peer.notes.rglob("*.md"))[len(questions)]
    changed.write_text(changed.read_text("utf-8") + "\nOne more line, of quokkas.\n", "utf-8")
    figures["one file changed"], _, _ = cost(peer, peer.indexing())
    one_shot, files = [], []
    for question, _ in questions[: 3 if peer.warm else ONE_SHOT]:
        used, _, printed = cost(peer, [peer.searching(question)])
        one_shot.append(used)
        files.append(peer.files(printed))
    figures["one-shot search"] = statistics.median(one_shot)
    if peer.warm:
        with asking(peer) as ask:
            took, files = timed(ask, questions)
        figures["warm search, p50"] = statistics.median(took)
        figures["warm search, p95"] = statistics.quantiles(took, n=20)[-1]
    ranks = [place_of(name, found) for found, (_, name) in zip(files, questions, strict=False)]
    if not any(files):
        raise Absent("it indexed, and found nothing")
    figures["recall@5"] = sum(0 < rank <= 5 for rank in ranks) / len(ranks)
    figures["MRR"] = sum(1 / rank for rank in ranks if rank) / len(ranks)


def place_of(name: str, found: list[str]) -> int:
    """The place of a file among those that were found, each counted once; 0 for none."""
    files = [*dict.fromkeys(found)]
    return files.index(name) + 1 if name in files else 0


def timed(
    ask: Callable[[str], list[str]], questions: list[tuple[str, str]]
) -> tuple[list[float], list[list[str]]]:
    """Ask all questions: milliseconds of each, and the files that were found. Three warm up first."""
    for question, _ in questions[:3]:
        ask(f"{question} warm")
    took, files = [], []
    for question, _ in questions:
        began = time.perf_counter()
        files.append(ask(question))
        took.append(1000 * (time.perf_counter() - began))
    return took, files


def cost(peer: Peer, commands: list[list[str]]) -> tuple[float, float, str]:
    """Run commands: CPU seconds with all child processes, the most MB that they held, what they printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    peak, is_over = [0.0], threading.Event()

    def sample() -> None:
        while not is_over.wait(0.2):
            peak[0] = max(peak[0], sum(map(resident_mb, below(os.getpid()))))

    ours = set(below(os.getpid()))
    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        printed = peer.run(*commands)
    finally:
        is_over.set()
        sampler.join()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # The embedding server is a child of this process too, and runs all the time.
    return used, peak[0] - sum(map(resident_mb, ours)), printed


def below(pid: int) -> list[int]:
    """The processes that descend from one."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
    found, todo = [], [pid]
    while todo:
        parent = todo.pop()
        children = [child for child, of in parents.items() if of == parent]
        found += children
        todo += children
    return found


def resident_mb(pid: int) -> float:
    """Megabytes that a process holds."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return 0.0


@contextmanager
def asking(peer: Peer) -> Iterator[Callable[[str], list[str]]]:
    """Start the process of a peer that stays, and give what asks it: by MCP, else by lines of JSON."""
    is_mcp = peer.warm.startswith("MCP")
    pipe = subprocess.PIPE
    child = subprocess.Popen(
        peer.server(),
        env=peer.variables(),
        cwd=peer.home,
        stdin=pipe,
        stdout=pipe,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert child.stdin is not None and child.stdout is not None
    number = 0

    def send(message: dict[str, Any]) -> None:
        assert child.stdin is not None
        child.stdin.write(json.dumps(message) + "\n")
        child.stdin.flush()

    def answer(of: int | None = None) -> dict[str, Any]:
        assert child.stdout is not None
        while line := child.stdout.readline():
            with suppress(ValueError):
                got: dict[str, Any] = json.loads(line)
                if of is None or got.get("id") == of:
                    return got
        raise Absent(f"its server ended with {child.wait()}")

    def ask(question: str) -> list[str]:
        nonlocal number
        number += 1
        if not is_mcp:
            send(peer.tool(question))
            return peer.found(answer())
        send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": peer.tool(question)})
        return peer.found(answer(number)["result"])

    try:
        if is_mcp:
            client = {"name": "benchmarks", "version": "1"}
            hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
            send({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
            answer(0)
            send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        yield ask
    finally:
        child.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            child.wait(20)
        child.kill()
        child.wait()
        child.stdout.close()


def server_log(url: str, *, clear: bool = False) -> dict[str, Any]:
    """What the embedding server has received since it was last cleared."""
    root = url.removesuffix("/v1")
    if clear:
        body = json.dumps({"clear_log": True}).encode()
        urlopen(Request(f"{root}/control", body, {"Content-Type": "application/json"})).close()
    with urlopen(f"{root}/log") as answer:
        found: dict[str, Any] = json.loads(answer.read())
    return found


def table(all_measured: list[Measured]) -> str:
    """The figures as Markdown: a column a peer, each cell the ratio to Memline and the figure."""
    there = [each for each in all_measured if each.figures]
    own = next((each.figures for each in there if each.name == "memline"), {})
    lines = [
        f"| | {' | '.join(f'{each.name} {each.version}' for each in there)} |",
        "|---" * (len(there) + 1) + "|",
    ]
    for row, unit in ROWS:
        cells = [_cell(each.figures.get(row), own.get(row), unit) for each in there]
        lines.append(f"| {row}{f', {unit}' if unit else ''} | {' | '.join(cells)} |")
    lines.append(f"| vectors | {' | '.join(each.vectors for each in there)} |")
    lines.append(f"| warm search by | {' | '.join(each.warm or 'not measured' for each in there)} |")
    said = [f"- {each.name}: {each.reason}" for each in all_measured if each.reason]
    return "\n".join(lines + [""] * bool(said) + said)


def _cell(figure: float | None, own: float | None, unit: str) -> str:
    if figure is None:
        return "-"
    shown = f"{figure:.0f}" if figure >= 100 else f"{figure:.3g}"
    # What is found is a share already.
    return f"**{figure / own:.2g} ×** ({shown})" if own and unit else shown


def main(arguments: list[str] | None = None) -> int:
    """Measure the peers that can be had, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--files", type=int, default=1_000, metavar="N", help="notes (default 1000)")
    parser.add_argument("--peers", default=",".join(PEERS), metavar="a,b", help=f"of {', '.join(PEERS)}")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the programs there for next time")
    options = parser.parse_args(arguments)
    names = options.peers.split(",")
    if unknown := [name for name in names if name not in PEERS]:
        parser.error(f"no peer {', '.join(unknown)}; there are {', '.join(PEERS)}")
    all_measured = []
    temporary = tempfile.TemporaryDirectory()
    with (
        temporary as work,
        nullcontext(options.keep) if options.keep else tempfile.TemporaryDirectory() as keep,
        running("tests.support.embedding_server", "--port", 0, "--dims", DIMS) as url,
    ):
        programs = Path(keep).resolve() / "programs"
        for name in ["memline", *(name for name in names if name != "memline")]:
            began = time.monotonic()
            measured = Measured(name=name)
            all_measured.append(measured)
            place = Path(work) / name
            # Each changes a note of its own.
            corpus.write(place / "notes", options.files, SECTIONS)
            peer = PEERS[name](programs, place / "home", place / "notes", url)
            try:
                peer.install()
                installed = time.monotonic()
                measured.version, measured.warm = peer.version(), peer.warm
                measure(peer, labelled(place / "notes", ASKED), measured)
                told = f"{time.monotonic() - installed:.0f} s"
            except (Absent, OSError, ValueError, LookupError, subprocess.TimeoutExpired) as error:
                told = measured.reason = f"{type(error).__name__}: {error}".removeprefix("Absent: ")
            took = f"{told}; {time.monotonic() - began:.0f} s with its installation"
            print(f"{name}: {took} {json.dumps(measured.figures)}", file=sys.stderr, flush=True)
    print(table(all_measured))
    return 0


if __name__ == "__main__":
    sys.exit(main())
