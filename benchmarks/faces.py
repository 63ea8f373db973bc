"""What agents wait for: searches over HTTP, and the start of an MCP server."""

from __future__ import annotations

import json
import os
import queue
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import quote

from benchmarks.bench import Bench, Place
from benchmarks.children import BARE, ROOT, environment, memline, run
from benchmarks.corpus import Words
from benchmarks.figures import Figure, at_least, at_most

#: Clients that ask at the same time.
_CLIENTS = 8

#: Words of a question that are no stop words; the benchmark of one-shot searches has six.
_WORDS = 3

#: Questions that are all different, and requests of the run that watches memory.
_DISTINCT = 800
_MANY = 8_000

_DIRECT = """
import json, sys, threading, time
from pathlib import Path
from memline.shared.config.load import Options, load
from memline.shared.search.request import SearchRequest
from memline.shared.findings.answerer import Answerer
config, home, workspace, clients = sys.argv[1:5]
questions = json.load(sys.stdin)
settings = load(Options(config=Path(config), home=Path(home), workspace=Path(workspace))).agent()
memory = Answerer(settings, long_lived=True)
for question in questions[:20]:
    memory.ask(SearchRequest(query=question))
left, took = iter(questions), []
lock = threading.Lock()
def ask():
    while True:
        with lock:
            question = next(left, None)
        if question is None:
            return
        began = time.perf_counter()
        json.dumps(memory.ask(SearchRequest(query=question)).to_json())
        took.append(time.perf_counter() - began)
threads = [threading.Thread(target=ask) for _ in range(int(clients))]
cpu = time.process_time()
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps([sorted(took), time.process_time() - cpu]))
"""

_HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "benchmark", "version": "1"},
}


def http(bench: Bench) -> list[Figure]:
    """Keyword searches over HTTP at 50,000 chunks, against the direct call, and memory over 20,000."""
    place = bench.keyword_place(10_000, 5)
    words = Words(seed=5)
    asked = [words.question(_WORDS) for _ in range(_DISTINCT)]
    direct, direct_cpu_s = _direct(place, asked)
    with server_of(place) as server:
        server.ask(asked[:20], clients=1)
        cpu_s = server.cpu_s
        took, wall_s = server.ask(asked[20:], clients=_CLIENTS)
        each_ms = 1000 * (server.cpu_s - cpu_s) / len(took)
        again, again_s = server.ask(asked[-50:] * 40, clients=_CLIENTS)
        before = server.rss_mb
        server.ask([asked[number * 7 % 400] for number in range(_MANY)], clients=_CLIENTS)
        after = server.rss_mb
    p95, direct_p95 = (statistics.quantiles(times, n=20)[-1] for times in (took, direct))
    return [
        at_least(
            "searches over HTTP, 50,000 chunks, one core, 8 clients",
            1000 / each_ms,
            200,
            "a second of CPU",
            detail=f"{each_ms:.1f} ms CPU each, {1000 * direct_cpu_s / len(direct):.1f} of them the search;"
            f" {len(took) / wall_s:.0f} a second by the clock;"
            f" {_DISTINCT - 20} different questions of {_WORDS} words",
        ),
        at_most(
            "p95 of these, over the direct call by 8 threads",
            p95 / direct_p95,
            3,
            "x",
            detail=f"{1000 * p95:.0f} and {1000 * direct_p95:.0f} ms",
        ),
        Figure(
            what="the same, questions that were asked before",
            target="",
            measured=f"{len(again) / again_s:.0f} a second",
        ),
        at_most(
            f"memory of the server, growth over {_MANY:,} requests",
            after - before,
            10,
            "MB",
            detail=f"{before:.0f} MB before, {after:.0f} MB after",
        ),
    ]


def mcp(bench: Bench) -> list[Figure]:
    """CPU of `memline mcp` from its start to its first answer, in that of a bare Python."""
    place = bench.keyword_place(100, 5)
    question = Words(seed=5).question(_WORDS)
    runs = sorted(_first_answer(place, question) for _ in range(7))
    first_s, cpu_s, wall_s = runs[len(runs) // 2]
    bare_s = statistics.median(run(BARE).cpu_s for _ in runs)
    return [
        at_most(
            "MCP server, start to first answer, 500 chunks",
            first_s / bare_s,
            60,
            "bare Pythons",
            detail=f"{first_s:.2f} and {bare_s:.3f} s CPU; with a search, to its end"
            f" {cpu_s:.2f} s, {wall_s:.2f} on the clock; medians of 7",
        )
    ]


class _Server:
    """A running `memline serve`, and clients of it."""

    def __init__(self, process: subprocess.Popen[str], host: str, port: int) -> None:
        self._process = process
        self._address = host, port

    @property
    def cpu_s(self) -> float:
        return _used_s(self._process.pid)

    @property
    def address(self) -> tuple[str, int]:
        return self._address

    @property
    def rss_mb(self) -> float:
        found = re.search(r"VmRSS:\s+(\d+) kB", _proc(self._process.pid, "status"))
        assert found
        return int(found[1]) / 1024

    def ask(self, questions: Sequence[str], *, clients: int) -> tuple[list[float], float]:
        """The seconds of each request, and of all together."""
        waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        for question in questions:
            waiting.put(question)
        took: list[float] = []

        def client() -> None:
            with closing(HTTPConnection(*self._address, timeout=60)) as connection:
                while True:
                    try:
                        question = waiting.get_nowait()
                    except queue.Empty:
                        return
                    began = time.perf_counter()
                    connection.request("GET", f"/search?query={quote(question)}")
                    answer = connection.getresponse()
                    body = answer.read()
                    took.append(time.perf_counter() - began)
                    if answer.status != 200 or not json.loads(body)["results"]:
                        raise RuntimeError(f"{answer.status}: {body[:200]!r}")

        began = time.perf_counter()
        _at_once(client, clients)
        wall_s = time.perf_counter() - began
        if len(took) != len(questions):
            raise RuntimeError(f"{len(took)} answers to {len(questions)} questions")
        return took, wall_s


@contextmanager
def server_of(place: Place) -> Iterator[_Server]:
    """A server on a core of its own, where there is more than one."""
    command = memline(*place.options(), "serve", "--port", "0")
    with (
        subprocess.Popen(command, env=environment(), cwd=ROOT, stderr=subprocess.PIPE, text=True) as process,
        _cores(process.pid),
    ):
        assert process.stderr
        host, port = re.findall(r"http://([\d.]+):(\d+)", process.stderr.readline())[0]
        # It writes a line for each request, and waits once the pipe is full.
        threading.Thread(target=process.stderr.read, daemon=True).start()
        try:
            yield _Server(process, host, int(port))
        finally:
            process.terminate()


@contextmanager
def _cores(pid: int) -> Iterator[None]:
    """The process alone on the first core, this one on the others."""
    ours = os.sched_getaffinity(0)
    first, *others = sorted(ours)
    os.sched_setaffinity(pid, {first})
    os.sched_setaffinity(0, others or ours)
    try:
        yield
    finally:
        os.sched_setaffinity(0, ours)


def _direct(place: Place, questions: Sequence[str]) -> tuple[list[float], float]:
    """Seconds of each direct call by as many threads, and CPU seconds of all, in a process on one core."""
    command = [
        sys.executable, "-c", _DIRECT, str(place.config), str(place.home), str(place.workspace), str(_CLIENTS)
    ]  # fmt: skip
    with (
        subprocess.Popen(
            command, env=environment(), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process,
        _cores(process.pid),
    ):
        out, _ = process.communicate(json.dumps(questions))
    took, cpu_s = json.loads(out)
    return took, cpu_s


def _first_answer(place: Place, question: str) -> tuple[float, float, float]:
    """CPU seconds of `memline mcp` to its first answer, and of a whole one that is asked a question.

    And seconds on the clock to the answer of that.
    """
    began = time.perf_counter()
    process = subprocess.Popen(
        memline(*place.options(), "mcp"),
        env=environment(),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin and process.stdout
    call = {"name": "memory_search", "arguments": {"query": question}}
    for message in (
        {"id": 1, "method": "initialize", "params": _HELLO},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": call},
    ):
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    process.stdin.flush()
    while True:
        answer = json.loads(process.stdout.readline())
        if answer.get("id") == 1:
            first_s = _used_s(process.pid)
        if answer.get("id") == 2:
            break
    wall_s = time.perf_counter() - began
    if not answer["result"]["structuredContent"]["results"]:
        raise RuntimeError(f"no hits: {answer}")
    process.stdin.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    return first_s, usage.ru_utime + usage.ru_stime, wall_s


def _at_once(work: Callable[[], None], times: int) -> None:
    threads = [threading.Thread(target=work) for _ in range(times)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _used_s(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = _proc(pid, "stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _proc(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text("utf-8")
