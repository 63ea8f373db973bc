"""No note, file name or error commands the terminal of the user who reads about it."""

import re
import sys

import pytest

from memline.producers.cli import run

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202e]|[\U000e0041]")

#: A title of the window, a colour by ESC and by the C1 form of CSI, a bell, a step back, a line that runs to
#: the left, a character without a width and a tag.
EVIL = "plugh \x1b]0;title\x07 \x1b[95mred\x9b31m\x08\x7f\u202e\u200b\U000e0041"

pytestmark = pytest.mark.place(
    files={"memory/evil\x1b[95m.md": f"# Title\n\n{EVIL}\n", "memory/bad\x9b31m.md": b"\0\1\2"}
)


@pytest.mark.parametrize(
    "args",
    [
        ("index",),
        ("search", "plugh"),
        ("search", "plugh", "--explain"),
        ("search", "plugh", "--format", "vimgrep"),
        ("context", "--private"),
        ("search", "plugh", "--json"),
        ("status", "--verbose"),
        ("status", "--verbose", "--json"),
        ("get", "memory/evil\x1b[95m.md"),
        ("get", "memory/none\x1b[95m.md"),
        ("doctor",),
    ],
    ids=" ".join,
)
def test_control_characters_are_written_out(place, capsys, monkeypatch, args):
    if args[0] != "index":
        place.index()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    run(place.arguments(*args))

    output = capsys.readouterr()
    # The colours of our own: bold, dim, red, green, yellow, cyan, and their end.
    shown = re.sub(r"\x1b\[(?:[012]|3[1236])m", "", output.out) + output.err
    assert shown
    assert CONTROL.search(shown) is None


@pytest.mark.parametrize("form", ["--format=files", "--format=vimgrep", "--max-results=9"])
def test_a_file_name_with_a_line_break_is_one_line(place, form):
    place.write("memory/fine\r\n1.000 forged.md", "plover is here\n")
    # A search takes new files in for 1.5 s at most.
    place.index()

    lines = place.run("search", "plover", form).stdout.splitlines()

    (named,) = [line for line in lines if "forged.md" in line]
    assert "memory/fine\\x0d\\x0a1.000 forged.md" in named


def test_a_file_that_failed_is_named_on_one_line(place):
    place.write("memory/fine\nforged.md", b"\0\1")

    assert "memory/fine\\x0aforged.md: " in place.run("index").stderr
