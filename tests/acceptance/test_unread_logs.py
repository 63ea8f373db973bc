"""No process waits for whoever reads its log: a pipe that is full and never read stops none of them."""

import os
import subprocess
import sys
from contextlib import contextmanager

import httpx
import pytest

from tests.support.process import ROOT, TIMEOUT_S
from tests.support.workspace import until

#: What fills a pipe.
FULL = b"." * 4_096


class Unread:
    """A process whose standard error is a pipe that a test reads, or does not."""

    def __init__(self, read, written):
        self._read, self._written = read, written

    def url(self):
        """Read up to the line that says where it serves."""
        with os.fdopen(os.dup(self._read), "rb", buffering=0) as file:
            return next(line.split()[1].decode() for line in file if line.startswith(b"memline: http"))

    def fill(self):
        """Leave no room for a byte."""
        # A file of its own: the process goes on with one that waits.
        own = os.open(f"/dev/fd/{self._written}", os.O_WRONLY | os.O_NONBLOCK)
        for size in (len(FULL), 1):
            try:
                while True:
                    os.write(own, FULL[:size])
            except BlockingIOError:
                pass
        os.close(own)

    def said(self):
        """All that is in the pipe, which has room again."""
        own = os.open(f"/dev/fd/{self._read}", os.O_RDONLY | os.O_NONBLOCK)
        content = b""
        try:
            while block := os.read(own, 1 << 20):
                content += block
        except BlockingIOError:
            pass
        os.close(own)
        return content.decode()


@contextmanager
def started(place, *words, env=None):
    """A running command that logs all it can; it has to end when it is told to."""
    read, written = os.pipe()
    start = "from memline.producers.start import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", start, *place.arguments(*words)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "MEMLINE_LOG_LEVEL": "DEBUG", **(env or {})},
        stderr=written,
    )
    try:
        yield Unread(read, written)
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(read)
        os.close(written)


@pytest.mark.place(notes=3, is_indexed=True)
def test_a_server_answers_while_nobody_reads_its_log_and_logs_again_when_it_is_read(place):
    with started(place, "serve", "--port", "0") as unread:
        url = unread.url()
        with httpx.Client(base_url=url, timeout=TIMEOUT_S) as client:
            assert client.get("/search", params={"query": "word1x1x7"}).status_code == 200
            unread.fill()
            for _ in range(20):
                assert client.get("/search", params={"query": "word2x1x7"}).json()["results"]
            unread.said()
            assert client.get("/search", params={"query": "word2x1x7"}).status_code == 200
            until(unread.said, "a line of the log")


@pytest.mark.place(notes=1, is_indexed=True, sync={"watchDebounceMs": 20})
def test_up_takes_in_what_is_saved_while_nobody_reads_its_log(place):
    with started(place, "up") as unread:
        unread.fill()
        for number in range(5):
            place.write(f"memory/more-{number}.md", f"# More {number}\n")
            until(lambda: f"memory/more-{number}.md" in place.outcomes(), "a note")  # noqa: B023


def test_workers_and_watcher_do_not_wait_either(fleet):
    place = fleet.place
    place.index()
    with (
        started(place, "worker", "chunk", "store", "embed", env=fleet.environment) as workers,
        started(place, "watch", env=fleet.environment) as watcher,
    ):
        workers.fill()
        watcher.fill()
        place.write("memory/first.md", "# First\n")
        until(lambda: "memory/first.md" in place.outcomes(), "the first note")
        place.write("memory/second.md", "# Second\n")
        until(lambda: "memory/second.md" in place.outcomes(), "the second note")
