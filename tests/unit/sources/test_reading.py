"""Reading what is on a disk: never a crash, a hang or an escape, and lines as an editor counts them."""

import hashlib
import os
import random

import pytest

from memline.shared.sources.reading import Reading, decode, read_file
from tests.support.clock import ManualClock


@pytest.fixture
def root(tmp_path):
    """A trusted folder."""
    folder = tmp_path / "ws"
    (folder / "memory").mkdir(parents=True)
    return folder


def read(root, name="memory/a.md", clock=None):
    return read_file(str(root / name), root=str(root), clock=clock or ManualClock())


def test_a_note_is_read_with_its_hash_size_and_times(root):
    (root / "memory/a.md").write_bytes("# Grüße\n".encode())
    os.utime(root / "memory/a.md", ns=(1, 1_600_000_000_000_000_001))
    clock = ManualClock(1_700_000_000)

    got = read(root, clock=clock)

    assert got == Reading(
        outcome="indexed",
        text="# Grüße\n",
        sha256=hashlib.sha256("# Grüße\n".encode()).hexdigest(),
        size=10,
        mtime_ns=1_600_000_000_000_000_001,
        ctime_ns=(root / "memory/a.md").stat().st_ctime_ns,
        observed_ns=1_700_000_000 * 10**9,
    )


def test_a_file_that_vanished_is_gone(root):
    assert read(root).outcome == "removed"
    assert read(root, "memory/no/such/a.md").outcome == "removed"


def _denied(_):
    raise PermissionError(13, "Permission denied")


def _fifo(note):
    note.unlink()
    os.mkfifo(note)


def _link(note):
    note.unlink()
    note.symlink_to(note.with_name("secret.txt"))


@pytest.mark.parametrize(
    ("come", "outcome", "reason"),
    [
        (_fifo, "special", ""),
        (_link, "symlink", ""),
        (_denied, "unreadable", "not readable (EACCES)"),
    ],
)
def test_what_comes_between_the_look_and_the_open_blocks_nobody_and_is_not_followed(
    root, monkeypatch, come, outcome, reason
):
    note = root / "memory/a.md"
    note.write_text("x")
    note.with_name("secret.txt").write_text("secret")
    real_open = os.open

    def swap(path, *args, **kwargs):
        if path.endswith("a.md") and note.is_file() and not note.is_symlink():
            come(note)
        return real_open(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", swap)

    got = read(root)

    assert (got.outcome, got.text) == (outcome, "")
    assert not reason or got.reason == reason


def test_a_file_that_grows_while_it_is_read_is_read_again(root, monkeypatch):
    note = root / "memory/a.md"
    note.write_text("one\n")
    real_read = os.pread
    reads = []

    def growing(*args):
        data = real_read(*args)
        reads.append(data)
        if len(reads) == 1:
            with note.open("a") as file:
                file.write("two\n")
        return data

    monkeypatch.setattr(os, "pread", growing)

    got = read(root)

    assert len(reads) == 2
    assert (got.text, got.size) == ("one\ntwo\n", 8)


def test_a_file_that_never_rests_is_reported_as_it_was_before(root, monkeypatch):
    note = root / "memory/a.md"
    note.write_text("0")
    real_read = os.pread

    def growing(*args):
        data = real_read(*args)
        with note.open("a") as file:
            file.write("1")
        return data

    monkeypatch.setattr(os, "pread", growing)

    got = read(root)

    assert got.outcome == "indexed"
    assert got.size == len(got.text) < note.stat().st_size


def test_a_file_changed_this_very_moment_is_given_time_for_its_stamp_to_move(root):
    (root / "memory/a.md").write_text("x")
    # The inode was stamped just now, whatever time of the content an editor sets.
    os.utime(root / "memory/a.md", ns=(1, 1))
    stamp = (root / "memory/a.md").stat().st_ctime_ns
    clock = ManualClock(0)
    clock.advance(stamp / 1e9 + 0.001)
    before = clock.now_ns()

    read(root, clock=clock)

    assert clock.now_ns() - before >= 10_000_000 - 1000


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"a\r\nb\r\n", "a\nb\n"),
        (b"a\rb\r\rc", "a\nb\n\nc"),
        (b"a\r\n\rb", "a\n\nb"),
        (b"\xef\xbb\xbfa", "a"),
        ("\ufeffa\r\né".encode("utf-16-le"), "a\né"),
        ("\ufeffa\né".encode("utf-16-be"), "a\né"),
        ("\ufeffa\né".encode("utf-32-le"), "a\né"),
        ("a\u2028b\x0cc\x85d".encode(), "a\u2028b\x0cc\x85d"),
        (b"\x1b[1mbold\x1b[0m text", "\x1b[1mbold\x1b[0m text"),
    ],
)
def test_the_text_is_that_of_an_editor(data, text):
    assert decode(data) == ("indexed", "", text)


@pytest.mark.parametrize(
    "data",
    [
        b"text with a \0 in it",
        "no mark".encode("utf-16-le"),
        bytes(range(1, 256)) * 20,
        b"\x89PNG\r\n\x1a\n" + random.Random(1).randbytes(2000).replace(b"\0", b"\xff"),
        b"\x01\x02\x03\x04 abc" * 50,
        "\ufeffa\0b".encode("utf-16-le"),
    ],
)
def test_what_is_no_text_is_not_indexed(data):
    outcome, reason, text = decode(data)

    assert (outcome, text) == ("not_text", "")
    assert reason


def test_a_few_bytes_that_are_not_utf_8_are_replaced_and_counted():
    outcome, reason, text = decode(
        "Ein Stück Text über Käse, in alter Kodierung. \ufffd".encode("latin-1", "replace") + b"\xff"
    )

    assert outcome == "indexed"
    assert text.startswith("Ein St\ufffdck")
    assert reason == "4 characters are not valid UTF-8, and replaced"
