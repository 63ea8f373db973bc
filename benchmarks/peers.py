"""Memline beside real peers: `python -m benchmarks.peers [--files N] [--peers a,b] [--keep DIR]`, one table.

All get the same notes, servers of the same vectors and the same questions in one run. Each cell is the ratio
to Memline and the figure: CPU of a command with its child processes, not the time of day, but for a warm
search, which a process that stays answers. The peers are installed once, by package name, into DIR/programs;
one that cannot be had is named with the reason. Where the small real model and questions lie beside the
repository, a second table says what each finds with it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from benchmarks import corpus, peer_questions
from benchmarks.peer_programs import PEERS, Absent, Peer
from benchmarks.peer_questions import STUB, Model, Question
from benchmarks.provider import log_of, serving

#: Sections of a note.
SECTIONS = 3

#: Questions of a warm search, one-shot ones, and words of a question.
ASKED, ONE_SHOT, WORDS = 60, 3, 3

#: Peers that index at the same time: CPU counts, and some wait for the disk. Warm searches come one by one.
AT_ONCE = 3

#: Seconds in which a process that is asked by HTTP has to answer for the first time.
STARTS_WITHIN_S = 300

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

#: What is found with a real model.
FOUND = ("recall@5", "recall@10", "recall_any@5", "recall_any@10", "MRR")


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
    #: Those of the real model, and how it was used.
    found: dict[str, float] = field(default_factory=dict)
    found_by: str = ""


def labelled(notes: Path, count: int) -> list[Question]:
    """Questions of some words that stand in one section, and the name of the note that answers."""
    chance, common = random.Random(5), set(corpus.Words()._words[: corpus.STOP_RANKS])
    files = sorted(notes.rglob("*.md"))
    found: list[Question] = []
    for file in chance.sample(files, min(count, len(files))):
        section = chance.choice(file.read_text("utf-8").split("## ")[1:])
        words = [
            word for word in dict.fromkeys(section.lower().replace(".", "").split()) if word not in common
        ]
        found.append((" ".join(chance.sample(words, WORDS)), {file.name}))
    return found


def measure(peer: Peer, questions: list[Question], measured: Measured) -> None:
    """Measure the commands of a peer that is installed. Raises Absent when one fails."""
    figures = measured.figures
    peer.prepare()
    measured.vectors = peer.vectors
    log_of(peer.url, clear=True)
    first = peer.cost(*peer.indexing())
    figures["first index"], figures["memory of the first index"] = first.cpu_s, first.peak_mb
    log = log_of(peer.url)
    figures["provider requests of the first index"] = len(log["requests"])
    figures["texts embedded by it"] = sum(each["rows"] for each in log["requests"])
    figures["disk"] = sum(each.stat().st_size for each in peer.home.rglob("*") if each.is_file()) / 1e6
    figures["nothing changed"] = peer.cost(*peer.indexing()).cpu_s
    *_, changed = sorted(peer.notes.rglob("*.md"))
    changed.write_text(changed.read_text("utf-8") + "\nOne more line, of quokkas.\n", "utf-8")
    figures["one file changed"] = peer.cost(*peer.indexing()).cpu_s
    one_shot = [peer.cost(peer.searching(question)).cpu_s for question, _ in questions[:ONE_SHOT]]
    figures["one-shot search"] = statistics.median(one_shot)


def ask(peer: Peer, questions: list[Question], measured: Measured) -> None:
    """Measure the rows of a process that stays. Raises Absent."""
    figures = measured.figures
    with asking(peer) as question_of:
        took, files = timed(question_of, questions)
    if not any(files):
        raise Absent("it indexed, and found nothing")
    figures["warm search, p50"] = statistics.median(took)
    figures["warm search, p95"] = statistics.quantiles(took, n=20)[-1]
    scores = peer_questions.scores(files, questions)
    figures |= {row: scores[row] for row, _ in ROWS if row in scores}


def find(peer: Peer, questions: list[Question], measured: Measured) -> None:
    """Ask a peer the questions over its notes with a real model. Raises Absent."""
    peer.prepare()
    measured.found_by = peer.vectors
    peer.run(*peer.indexing())
    with asking(peer) as ask:
        files = [ask(question) for question, _ in questions]
    if not any(files):
        raise Absent("it indexed, and found nothing")
    measured.found = peer_questions.scores(files, questions)


def timed(ask: Callable[[str], list[str]], questions: list[Question]) -> tuple[list[float], list[list[str]]]:
    """Ask all questions: milliseconds of each, and the files that were found. Three warm up first."""
    for question, _ in questions[:3]:
        ask(f"{question} warm")
    took, files = [], []
    for question, _ in questions:
        began = time.perf_counter()
        files.append(ask(question))
        took.append(1000 * (time.perf_counter() - began))
    return took, files


def asking(peer: Peer) -> AbstractContextManager[Callable[[str], list[str]]]:
    """Start the process of a peer that stays, and give what asks it."""
    return _by_http(peer) if peer.warm.startswith("HTTP") else _by_mcp(peer)


@contextmanager
def _by_http(peer: Peer) -> Iterator[Callable[[str], list[str]]]:
    """Ask by requests, once it answers at all."""
    child = subprocess.Popen(
        peer.server(),
        env=peer.variables(),
        cwd=peer.home,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # It starts processes of its own.
        start_new_session=True,
    )

    def ask(question: str) -> list[str]:
        with urlopen(peer.call(question), timeout=STARTS_WITHIN_S) as answer:
            return peer.found(json.loads(answer.read()))

    deadline = time.monotonic() + STARTS_WITHIN_S
    try:
        while True:
            try:
                ask("hello")
                break
            except OSError as error:
                if child.poll() is not None or time.monotonic() > deadline:
                    raise Absent(f"its server does not answer: {error}") from None
                time.sleep(0.5)
        yield ask
    finally:
        child.terminate()
        with suppress(subprocess.TimeoutExpired):
            child.wait(20)
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


@contextmanager
def _by_mcp(peer: Peer) -> Iterator[Callable[[str], list[str]]]:
    """Ask by MCP over stdio."""
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

    def answer(of: int) -> dict[str, Any]:
        assert child.stdout is not None
        while line := child.stdout.readline():
            with suppress(ValueError):
                got: dict[str, Any] = json.loads(line)
                if got.get("id") == of:
                    return got
        raise Absent(f"its server ended with {child.wait()}")

    def ask(question: str) -> list[str]:
        nonlocal number
        number += 1
        send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": peer.call(question)})
        return peer.found(answer(number)["result"])

    try:
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


def table_of_found(all_measured: list[Measured]) -> str:
    """What each found with the real model as Markdown: a row a peer."""
    lines = [f"| | {' | '.join(FOUND)} | vectors |", "|---" * (len(FOUND) + 2) + "|"]
    for each in all_measured:
        if each.found:
            cells = " | ".join(f"{each.found[metric]:.3f}" for metric in FOUND)
            lines.append(f"| {each.name} {each.version} | {cells} | {each.found_by} |")
    return "\n".join(lines)


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
    parser.add_argument(
        "--questions",
        type=Path,
        metavar="DIR",
        default=peer_questions.FOLDER,
        help="a folder of labelled questions, for what each finds",
    )
    parser.add_argument(
        "--model", type=Path, metavar="FILE", default=peer_questions.FILE, help="the real model, GGUF"
    )
    parser.add_argument(
        "--within", type=int, metavar="S", default=900, help="give up a command after S seconds (default 900)"
    )
    options = parser.parse_args(arguments)
    names = options.peers.split(",")
    if unknown := [name for name in names if name not in PEERS]:
        parser.error(f"no peer {', '.join(unknown)}; there are {', '.join(PEERS)}")
    Peer.within_s = options.within
    all_measured = [Measured(name=name) for name in dict.fromkeys(("memline", *names))]
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        keep = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        real = peer_questions.real(options.questions, options.model)
        model_url = ""
        if isinstance(real, Model):
            model_url = stack.enter_context(serving(str(real.file), dims=real.dims))
        peers: dict[str, Peer] = {}
        for name in [each.name for each in all_measured]:
            # Each changes a note of its own, and counts its own requests.
            corpus.write(work / name / "notes", options.files, SECTIONS)
            url = stack.enter_context(serving("words", dims=STUB.dims))
            folder = keep.resolve() / "programs"
            peers[name] = PEERS[name](folder, work / name / "home", work / name / "notes", url)
        asked = labelled(work / "memline" / "notes", ASKED)

        def install(measured: Measured) -> None:
            peer = peers[measured.name]
            peer.install()
            measured.version, measured.warm = peer.version(), peer.warm

        def find_with(measured: Measured, model: Model) -> None:
            place, kind = work / measured.name, PEERS[measured.name]
            questions = peer_questions.write(options.questions, place / "found")
            folder = keep.resolve() / "programs"
            find(kind(folder, place / "other", place / "found", model_url, model), questions, measured)

        _each(all_measured, "install", install)
        began = time.monotonic()
        _each(all_measured, "index", lambda measured: measure(peers[measured.name], asked, measured))
        _each(all_measured, "ask", lambda measured: ask(peers[measured.name], asked, measured), at_once=1)
        if isinstance(real, Model):
            _each(all_measured, "find", lambda measured: find_with(measured, real))
    print(table(all_measured))
    print("", table_of_found(all_measured) if isinstance(real, Model) else real, sep="\n")
    print(f"\n{(time.monotonic() - began) / 60:.1f} minutes after installing.")
    return 0


def _each(
    all_measured: list[Measured], step: str, act: Callable[[Measured], None], *, at_once: int = AT_ONCE
) -> None:
    """Take a step with all peers that have not failed; a failure is kept as the reason."""

    def one(measured: Measured) -> None:
        began = time.monotonic()
        try:
            act(measured)
        except (Absent, OSError, ValueError, LookupError) as error:
            measured.reason = f"{type(error).__name__}: {error}".removeprefix("Absent: ")
        told = measured.reason or json.dumps(measured.figures | measured.found)
        print(f"{step} {measured.name}: {time.monotonic() - began:.0f} s {told}", file=sys.stderr, flush=True)

    with ThreadPoolExecutor(at_once) as pool:
        deque(pool.map(one, [each for each in all_measured if not each.reason]))


if __name__ == "__main__":
    sys.exit(main())
