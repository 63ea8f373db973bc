import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from memline.producers import cli
from memline.producers.cli.root import GROUPS

ROOT = Path(cli.__file__).parents[3]


def run_process(*args, code="from memline.producers.start import main; main()"):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *args],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_help_lists_every_command_and_imports_none():
    code = (
        "import sys; from memline.producers.cli import run, COMMANDS; run(['--help']);"
        "loaded = [m for m in COMMANDS.values() if m.partition(':')[0] in sys.modules];"
        "sys.exit(repr(loaded) if loaded else 0)"
    )

    done = run_process(code=code)

    assert (done.returncode, done.stderr) == (0, "")
    rows = [row for group in GROUPS.values() for row in group]
    assert len(rows) == 23 and all(
        f"  {name} " in done.stdout and line in done.stdout for name, _, line in rows
    )
    for variable in ("MEMLINE_CONFIG", "MEMLINE_HOME", "MEMLINE_WORKSPACE"):
        assert variable in done.stdout


def test_a_search_by_keywords_imports_nothing_heavy(tmp_path):
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "deploy.md").write_text("# Deploy\n\nThe deploy of Friday was rolled back.\n")
    place = ("--home", str(tmp_path / "home"), "--workspace", str(tmp_path))
    assert run_process(*place, "index").returncode == 0
    code = (
        "import sys; from memline.producers.cli import run; run();"
        "heavy = {'dramatiq', 'httpx', 'mcp', 'numpy', 'redis', 'starlette'};"
        "print('imported:', *heavy & {*sys.modules})"
    )

    done = run_process(*place, "search", "friday", code=code)

    assert "memory/deploy.md#L1-L3" in done.stdout, done.stderr
    assert done.stdout.splitlines()[-1].strip() == "imported:"


@pytest.mark.parametrize(
    ("fail", "status", "lines"),
    [
        ("hint", 1, ["Error: it broke", "Try: memline doctor"]),
        ("usage", 2, ["Error: no such thing"]),
        ("disk", 1, ["Error: No space left on device: /full/x"]),
        ("interrupt", 130, ["", "Interrupted: notes and index are whole."]),
        ("status", 1, []),
    ],
)
def test_every_end_has_its_exit_status_and_says_so_on_stderr(probe, capfd, fail, status, lines):
    assert cli.run(["probe", "--fail", fail]) == status

    output = capfd.readouterr()
    assert output.out == ""
    assert output.err.splitlines() == lines


@pytest.mark.parametrize("args", [["status"], ["search", "lighthouse"], ["index"], ["config", "check"]])
def test_in_a_folder_that_was_deleted_a_command_with_whole_paths_works(capsys, monkeypatch, tmp_path, args):
    (notes := tmp_path / "notes").mkdir()
    (notes / "MEMORY.md").write_text("The lighthouse is white.\n")
    (folder := tmp_path / "gone").mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()

    assert cli.run(["--home", str(tmp_path / "home"), "--workspace", str(notes), *args]) == 0
    monkeypatch.setenv("MEMLINE_WORKSPACE", str(notes))
    assert cli.run(["--home", str(tmp_path / "home"), *args]) == 0

    assert "Error" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "nearest"),
    [
        (["serach"], "search"),
        (["search", "x", "--max-result", "3"], "--max-results"),
        # By meaning, not by spelling.
        (["show", "a.md"], "get"),
        (["add", "notes"], "init"),
        (["stop"], "queue"),
        (["forget", "--plan"], "--dry-run"),
        (["reindex", "--dry-run"], "--plan"),
        (["why redis"], "memline search 'why redis'"),
        (["help", "xyzzy"], "memline search xyzzy"),
        (["jobs", "xyzzy"], ""),
        (["search", "x", "--top", "3"], "--max-results"),
        (["search", "x", "--folder", "n"], "--workspace"),
        (["status", "--top", "3"], ""),
        (["memory", "search", "x"], "search"),
        (["jobs", "list"], "memline jobs"),
    ],
)
def test_what_is_misspelt_is_answered_with_the_nearest_one(args, nearest, capsys):
    assert cli.run(args) == 2

    error = capsys.readouterr().err
    assert f"Did you mean '{nearest}'?" in error if nearest else "mean" not in error


def test_help_may_come_first(capsys):
    assert cli.run(["help", "jobs", "pause"]) == 0

    assert "Usage: memline jobs pause" in capsys.readouterr().out


@pytest.mark.parametrize(
    "code",
    [
        "from memline.producers.cli import run; sys.exit(run(['config', 'show']))",
        # What a command leaves in the buffer meets the closed pipe at the very end.
        "import click; from producers import cli;"
        "sys.modules['probe'] = type(sys)('probe');"
        "sys.modules['probe'].command = click.Command('probe', callback=lambda: print('x'));"
        "cli.COMMANDS['probe'] = 'probe:command'; sys.exit(cli.run(['probe']))",
    ],
)
def test_a_closed_pipe_is_not_complained_about(code):
    process = subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.stdin.read(); {code}"],
        cwd=ROOT,
        env={name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()

    _, complaint = process.communicate(timeout=120)

    assert process.returncode == 1
    assert complaint == b""


#: Runs a command line whose command is told to end: before it has begun, or once more while it ends.
TOLD = """
import os, signal, sys
from memline.producers import cli
from memline.producers.cli.root import GROUPS
from memline.producers.cli.serve import stop_event
from memline.producers.start import main

def told(when):
    if when == "early":
        os.kill(os.getpid(), signal.SIGTERM)
    stop = stop_event()
    os.kill(os.getpid(), signal.SIGTERM)
    stop.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    return 0

when = sys.argv.pop(1)
cli.run = lambda: told(when)
main()
"""


@pytest.mark.parametrize(
    ("when", "words", "status"),
    [
        *((when, words, 0) for when in ("early", "late") for words in ("worker embed", "--home x up", "mcp")),
        *(("early", words, -signal.SIGTERM) for words in ("index", "queue")),
    ],
)
def test_a_process_that_runs_until_it_is_told_to_end_ends_well(when, words, status):
    done = run_process(when, *words.split(), code=TOLD)

    assert (done.returncode, done.stderr) == (status, "")
