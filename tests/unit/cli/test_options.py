import io
import os
import signal
import sys
from pathlib import Path

import pytest

from memline.producers import cli
from memline.producers.cli.output import print_json, put
from memline.producers.cli.serve import stop_event


def test_global_options_stand_before_or_after_the_name(probe):
    before = ["--config", "c", "--home", "h", "--workspace", "w", "--agent", "a"]

    assert cli.run([*before, "probe"]) == 0
    assert cli.run(["probe", *before]) == 0

    for options in probe:
        assert (options.config, options.home, options.workspace, options.agent) == (
            Path("c"),
            Path("h"),
            Path("w"),
            "a",
        )


@pytest.mark.parametrize(
    "line",
    [
        *(["init"], ["backup"], ["backup", "restore"], ["import", "claude"], ["forget"], ["search"]),
        *(["setup", "cursor", "--file"], ["serve", "--host"]),
    ],
    ids=" ".join,
)
def test_an_empty_text_is_not_the_current_folder(line, capsys):
    assert [cli.run([*line, empty]) for empty in ("", " ")] == [2, 2]
    assert "must not be empty" in capsys.readouterr().err


def test_json_keeps_letters_and_escapes_what_cannot_be_printed(capsys):
    print_json({"a": "記憶"})
    print_json({"a": "\udcff"})

    kept, escaped = capsys.readouterr().out.split("}\n", 1)
    assert "記憶" in kept
    assert "\\udcff" in escaped


@pytest.mark.parametrize(
    ("encoding", "written"),
    [
        ("ascii", "記 ä?".encode()),
        ("latin-1", b"\\u8a18 \xe4\\udcff"),
        ("utf-8", "記 ä\\udcff".encode()),
    ],
)
def test_what_an_encoding_lacks_is_escaped_and_without_a_locale_it_is_utf_8(encoding, written, monkeypatch):
    into = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(into, encoding=encoding))

    put("記 ä\udcff")

    assert into.getvalue() == written + b"\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_two_signals_ask_for_a_stop(number):
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    stop = stop_event()
    try:
        is_set_before = stop.is_set()
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        # The first bytecode after a signal runs its handler.
        is_set_after = stop.wait(120)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)

    assert (is_set_before, is_set_after) == (False, True)
