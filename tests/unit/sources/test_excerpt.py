"""`memory_get`: which lines are given, and that nothing outside of the memory ever is."""

import os

import pytest

from memline.shared.errors import PathNotAllowed
from memline.shared.sources.paths import MemoryPaths
from memline.shared.sources.reading import (
    NOT_ALLOWED,
    READABLE,
    TRANSCRIPT,
    Part,
    parse_citation,
    read_excerpt,
)

SECRET = "the secret outside"


@pytest.fixture
def workspace(tmp_path):
    """A memory with a note, a link, a linked folder, a FIFO and a hard link; secrets lie beside it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text(SECRET)
    workspace = tmp_path / "ws"
    (workspace / "memory" / "sub").mkdir(parents=True)
    (workspace / "secret.md").write_text(SECRET)
    (workspace / "MEMORY.md").write_text("long term\n")
    (workspace / "memory" / "a.md").write_text("one\ntwo\nthree\n")
    (workspace / "memory" / "sub" / "deep.md").write_text("deep\n")
    (workspace / "memory" / "note.txt").write_text(SECRET)
    (workspace / "memory" / "link.md").symlink_to(outside / "secret.md")
    (workspace / "memory" / "linked").symlink_to(outside)
    (workspace / "memory" / "broken.md").symlink_to(outside / "none.md")
    os.mkfifo(workspace / "memory" / "fifo.md")
    os.link(workspace / "memory" / "a.md", workspace / "memory" / "hard.md")
    return workspace


def read(workspace, path, **part):
    return read_excerpt(MemoryPaths(workspace), path, part=Part(**part))


def test_lines_are_given_from_where_they_are_asked_for(workspace):
    excerpt = read(workspace, "memory/a.md", first=2, lines=1)

    assert (excerpt.text, excerpt.first, excerpt.lines) == ("two", 2, 1)
    # All that was asked for, and where more begins.
    assert (excerpt.truncated, excerpt.next_from) == (False, 3)


def test_without_a_wish_there_are_120_lines_and_12000_characters_at_most(workspace):
    (workspace / "memory" / "long.md").write_text("".join(f"line {number}\n" for number in range(1, 501)))
    (workspace / "memory" / "wide.md").write_text("".join("w" * 999 + "\n" for _ in range(50)))

    long, wide = read(workspace, "memory/long.md"), read(workspace, "memory/wide.md")

    assert (long.lines, long.next_from, long.truncated) == (120, 121, True)
    assert (wide.lines, wide.next_from, len(wide.text)) == (12, 13, 11_999)


def test_one_line_above_the_budget_is_cut_and_marked_as_truncated(workspace):
    (workspace / "memory" / "one.md").write_text("x" * 20_000)

    excerpt = read(workspace, "memory/one.md")

    assert (len(excerpt.text), excerpt.truncated, excerpt.next_from) == (12_000, True, None)


def test_a_note_that_is_not_there_is_an_empty_answer_with_a_status(workspace):
    excerpt = read(workspace, "memory/none.md")

    assert (excerpt.status, excerpt.text, excerpt.path) == ("not_found", "", "memory/none.md")


def refusal(workspace, path):
    with pytest.raises(PathNotAllowed) as caught:
        read(workspace, path)
    return caught.value.message, caught.value.hint


@pytest.mark.parametrize(
    "path",
    [
        "", "   ", ".", "..", "/", "secret.md", "none.md", "../outside/secret.md", "../outside/none.md",
        "memory/../../outside/secret.md", "/etc/passwd", "/etc/none.md", "/proc/self/environ",
        "/proc/self/fd/0", "~/.ssh/id_rsa", "~/x.md", "memory/link.md", "memory/broken.md",
        "memory/linked/secret.md", "memory/linked/none.md", "memory/fifo.md", "memory/note.txt", "memory",
        "memory/", "Memory/a.md", "Memory.md", "memory/a.md\0", "memory/a.md\0.md", "memory\\a.md",
        "memory/..%2f..%2foutside/secret.md", "file:///etc/passwd", "\ud800.md", "memory/.hidden/x.md",
        "memory/node_modules/x.md",
    ],
)  # fmt: skip
def test_everything_else_is_refused_with_the_same_words(workspace, path):
    assert refusal(workspace, path) == (NOT_ALLOWED, READABLE)


@pytest.mark.parametrize("path", ["sessions/a.jsonl", "./sessions/b.jsonl", "sessions/a.jsonl.reset.1"])
def test_a_transcript_is_refused_by_its_name_with_words_of_its_own(workspace, path):
    (workspace / "sessions").mkdir()
    (workspace / "sessions/a.jsonl").write_text("{}")

    assert refusal(workspace, path) == (TRANSCRIPT, "memline search QUERY --source sessions")


@pytest.mark.parametrize(
    ("text", "path", "first", "lines"),
    [
        ("memory/a.md#L5-L7", "memory/a.md", 5, 3),
        ("memory/a.md#L5", "memory/a.md", 5, 1),
        ("memory/a.md#L7-L5", "memory/a.md", 5, 3),
        ("memory/a.md", "memory/a.md", 1, None),
        ("memory/a.md#section", "memory/a.md#section", 1, None),
        ("memory/a.md#l5-7", "memory/a.md", 5, 3),
        ("memory/A.MD:12-20", "memory/A.MD", 12, 9),
        ("/notes/a.md:12:5:ratio 3:2", "/notes/a.md", 12, 1),
        ("0.336 memory/a.md#L1-L5  (text 1.00)", "memory/a.md", 1, 5),
        ("sessions/a.jsonl#L4", "sessions/a.jsonl", 4, 1),
        ("At 10:30", "At 10:30", 1, None),
    ],
)
def test_a_citation_is_a_path_and_lines(text, path, first, lines):
    found, part = parse_citation(text)

    assert (found, part.first, part.lines) == (path, first, lines)
