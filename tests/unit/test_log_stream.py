"""Lines that nobody reads are dropped and counted; nothing waits for a reader."""

import os
import socket

import pytest

from memline.shared import log_stream
from memline.shared.log_stream import LineStream, dropped_words

Ends = tuple[int, int]


def pipe():
    return os.pipe()


def pair():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return theirs.detach(), ours.detach()


@pytest.fixture(params=[pipe, pair, "of another user"])
def ends(request, monkeypatch):
    """The end that is read, and the one that is written to; the reader never reads by itself."""
    make = request.param if callable(request.param) else pipe
    if not callable(request.param):
        monkeypatch.setattr(log_stream.os, "open", _refused)
    read, written = make()
    yield read, written
    os.close(read)
    os.close(written)


def _refused(*_):
    raise PermissionError


def drain(read):
    """All that is there to be read."""
    os.set_blocking(read, False)
    content = b""
    try:
        while block := os.read(read, 1 << 20):
            content += block
    except BlockingIOError:
        pass
    return content


def test_what_finds_no_room_is_dropped_in_whole_lines_and_counted(ends):
    read, written = ends
    stream = LineStream(written)

    for number in range(20_000):
        stream.write(b"line %05d of a log that is not read by anybody\n" % number)
    first = drain(read)
    stream.write(b"read again\n")
    rest = drain(read)

    lines = (first + rest).decode().splitlines()
    there = [int(line.split()[1]) for line in lines if line.startswith("line ")]
    # One of which the beginning was sent is ended before the count.
    assert there == list(range(len(there)))
    assert lines[-2:] == [dropped_words(20_000 - len(there)), "read again"]
    assert os.get_blocking(written)


def test_a_line_that_is_longer_than_the_room_is_not_mixed_with_the_next(ends):
    read, written = ends
    stream = LineStream(written)

    stream.write(b"x" * 2_000_000 + b"\n")
    content = drain(read)
    while b"last" not in content:
        stream.write(b"last\n")
        content += drain(read)

    lines = content.decode().splitlines()
    assert lines[0] == "x" * 2_000_000
    assert lines[-1] == "last" and len(lines) <= 3


def test_a_reader_that_is_gone_ends_nothing():
    read, written = os.pipe()
    stream = LineStream(written)
    os.close(read)

    stream.write(b"one\n")
    os.close(written)


def test_a_line_goes_when_it_is_whole():
    read, written = os.pipe()
    stream = LineStream(written)

    stream.write(b"half ")
    assert drain(read) == b""
    stream.write(b"a line\nand ")

    assert drain(read) == b"half a line\n"
    os.close(read)
    os.close(written)
