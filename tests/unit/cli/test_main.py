import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from memline.producers import cli
from memline.shared.config.load import Options
from tests.support.process import python

ROOT = Path(cli.__file__).parents[3]


def run_process(
    *args: str, code: str = "from memline.producers.start import main; main()"
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *args],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_help_lists_every_command_and_imports_none() -> None:
    code = (
        "import sys; from memline.producers.cli import run, COMMANDS; run(['--help']);"
        "loaded = [m for m, _ in COMMANDS.values() if m.partition(':')[0] in sys.modules];"
        "sys.exit(repr(loaded) if loaded else 0)"
    )

    done = run_process(code=code)

    assert (done.returncode, done.stderr) == (0, "")
    for name, (_, line) in cli.COMMANDS.items():
        assert f"  {name} " in done.stdout
        assert line in done.stdout
    for variable in ("MEMLINE_CONFIG", "MEMLINE_HOME", "MEMLINE_WORKSPACE"):
        assert variable in done.stdout


def test_a_search_is_spared_the_import_of_typing(tmp_path: Path) -> None:
    (tmp_path / "MEMORY.md").write_text("The head bolts take 85 Nm.\n")
    place = ("--home", str(tmp_path / "home"), "--workspace", str(tmp_path))
    # What starts Python here may have loaded it already.
    code = (
        "import sys; sys.modules.pop('typing', None); from memline.producers.cli import run;"
        "status = run(sys.argv[1:]); sys.exit(status or ('typing' in sys.modules and 'typing was imported'))"
    )
    assert run_process(*place, "index").returncode == 0

    done = run_process(*place, "search", "bolts", code=code)

    assert (done.returncode, "MEMORY.md" in done.stdout) == (0, True), done.stderr


def test_the_package_runs_as_a_module() -> None:
    done = run_process("--version", code="import runpy; runpy.run_module('memline', run_name='__main__')")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("memline ")


def test_the_command_line_itself_imports_nothing_heavy() -> None:
    heavy = "asyncio dramatiq httpx importlib.metadata logging msgspec numpy pyjson5 redis rich sqlite3"
    code = (
        "import sys; from memline.producers.cli import run;"
        "from memline.producers.cli.invocation import Invocation;"
        "from memline.shared.config.load import load; load();"
        f"sys.exit(' '.join(m for m in {heavy.split()!r} if m in sys.modules) or 0)"
    )

    done = run_process(code=code)

    assert (done.returncode, done.stderr) == (0, "")


def test_a_search_by_keywords_imports_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "deploy.md").write_text("# Deploy\n\nThe deploy of Friday was rolled back.\n")
    place = ("--home", str(tmp_path / "home"), "--workspace", str(tmp_path))
    assert run_process(*place, "index").returncode == 0
    heavy = ["dramatiq", "hashlib", "httpx", "msgspec", "numpy", "redis", "rich", "sqlite_utils"]
    heavy += [
        "memline.shared.index.rows",
        "memline.shared.sources.transcripts.formats",
        "memline.shared.index_writer",
    ]
    code = (
        "import sys; from memline.producers.cli import run; run();"
        f"print('imported:', *(m for m in {heavy!r} if m in sys.modules))"
    )

    done = run_process(*place, "search", "friday", code=code)

    assert "memory/deploy.md#L1-L3" in done.stdout, done.stderr
    assert done.stdout.splitlines()[-1].strip() == "imported:"


@pytest.mark.parametrize(("name", "status"), [("MEMORY.md", 0), ("nothing.md", 1)])
def test_a_command_that_leaves_at_once_leaves_nothing_undone(tmp_path: Path, name: str, status: int) -> None:
    (tmp_path / "MEMORY.md").write_text("A line. " * 20_000)
    code = (
        "import atexit, sys, threading; atexit.register(print, 'at exit');"
        "at_work = threading.Thread(target=lambda: (threading.main_thread().join(), print('worked')));"
        "'thread' in sys.argv and (sys.argv.remove('thread'), at_work.start());"
        "from memline.producers.start import main; main()"
    )
    place = ("--home", str(tmp_path / "home"), "--workspace", str(tmp_path), "get", name)

    done = run_process(*place, code=code)
    waited = run_process(*place, "thread", code=code)

    assert done.returncode == waited.returncode == status, done.stderr
    assert done.stdout.splitlines()[-1] == "at exit"
    assert len(done.stdout) > 10_000 * (status == 0)
    assert waited.stdout.splitlines()[-2:] == ["worked", "at exit"]


@pytest.mark.parametrize("command", ["index", "status"])
def test_a_command_that_asks_no_provider_loads_no_http_client_and_no_numpy(
    tmp_path: Path, command: str
) -> None:
    (tmp_path / "MEMORY.md").write_text("# Deploy\n\nThe deploy of Friday was rolled back.\n")
    place = ("--home", str(tmp_path / "home"), "--workspace", str(tmp_path))
    assert run_process(*place, "index").returncode == 0
    code = (
        "import sys; from memline.producers.cli import run; run();"
        "print('imported:', *(m for m in ('httpx', 'numpy') if m in sys.modules))"
    )

    done = run_process(*place, command, code=code)

    assert done.stdout.splitlines()[-1].strip() == "imported:", done.stderr


@pytest.mark.parametrize(
    ("fail", "status", "lines"),
    [
        ("hint", 1, ["Error: it broke", "Try: memline doctor"]),
        ("usage", 2, ["Error: no such thing"]),
        ("disk", 1, ["Error: No space left on device: /full/x"]),
        ("interrupt", 130, ["Interrupted: notes and index are whole."]),
        ("status", 1, []),
    ],
)
def test_every_end_has_its_exit_status_and_says_so_on_stderr(
    probe: list[Options], capfd: pytest.CaptureFixture[str], fail: str, status: int, lines: list[str]
) -> None:
    assert cli.run(["probe", "--fail", fail]) == status

    output = capfd.readouterr()
    assert output.out == ""
    assert output.err.splitlines() == lines


@pytest.mark.parametrize(
    "args", [["status"], ["--workspace", "n", "get", "a.md"], ["add", "d"], ["config", "path"]]
)
def test_in_a_folder_that_was_deleted_a_command_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, args: list[str]
) -> None:
    (folder := tmp_path / "gone").mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PWD", str(folder))
    folder.rmdir()

    assert cli.run(args) == 1

    assert capsys.readouterr().err.splitlines() == [
        f"Error: the current folder was deleted: {folder}",
        "Try: cd to a folder that is there, and run it again",
    ]


@pytest.mark.parametrize("args", [["status"], ["search", "lighthouse"], ["index"], ["config", "check"]])
def test_in_a_folder_that_was_deleted_a_command_with_whole_paths_works(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, args: list[str]
) -> None:
    (notes := tmp_path / "notes").mkdir()
    (notes / "MEMORY.md").write_text("The lighthouse is white.\n")
    (folder := tmp_path / "gone").mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()

    assert cli.run(["--home", str(tmp_path / "home"), "--workspace", str(notes), *args]) == 0
    monkeypatch.setenv("MEMLINE_WORKSPACE", str(notes))
    assert cli.run(["--home", str(tmp_path / "home"), *args]) == 0

    assert "Error" not in capsys.readouterr().err


def test_a_misspelt_command_is_answered_with_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["serach"]) == 2

    assert "'search'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "args", [["--agent"], ["--agent", "", "config", "show"], ["--nope"], ["config", "x"]]
)
def test_wrong_usage_is_exit_status_two(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(args) == 2

    output = capsys.readouterr()
    assert output.out == ""
    assert "Error: " in output.err


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([]) == 2

    assert "Commands:" in capsys.readouterr().err


def test_the_version_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0

    assert capsys.readouterr().out.startswith("memline ")


@pytest.mark.parametrize(
    "code",
    [
        "from memline.producers.cli import run; sys.exit(run(['config', 'show']))",
        # What a command leaves in the buffer meets the closed pipe at the very end.
        "import click; from producers import cli;"
        "sys.modules['probe'] = type(sys)('probe');"
        "sys.modules['probe'].command = click.Command('probe', callback=lambda: print('x'));"
        "cli.COMMANDS['probe'] = ('probe:command', ''); sys.exit(cli.run(['probe']))",
    ],
)
def test_a_closed_pipe_is_not_complained_about(code: str) -> None:
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
from memline.producers.cli.long_running import stop_event

def told(when):
    if when == "early":
        os.kill(os.getpid(), signal.SIGTERM)
    with stop_event() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        stop.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    return 0

when = sys.argv.pop(1)
cli.run = lambda: told(when)
sys.exit(cli.run_process())
"""


@pytest.mark.parametrize("when", ["early", "late"])
@pytest.mark.parametrize(
    ("words", "status"),
    [
        *((words, 0) for words in ("worker embed", "--home x up", "fleet", "mcp", "queue --watch")),
        *((words, -signal.SIGTERM) for words in ("index", "search up", "queue")),
    ],
)
def test_a_process_that_runs_until_it_is_told_to_end_ends_well(when: str, words: str, status: int) -> None:
    done = run_process(when, *words.split(), code=TOLD)

    assert (done.returncode, done.stderr) == (status, "")


@pytest.mark.parametrize(
    "module", ["memline.producers.cli", "sqlean._sqlite3", "memline.shared.search.service"]
)
def test_an_interrupt_while_modules_are_imported_ends_in_one_line(tmp_path: Path, module: str) -> None:
    (tmp_path / "MEMORY.md").write_text("Redis.\n")
    interrupt = (
        "import os, signal, sys\n"
        f"sys.addaudithook(lambda name, args: name == 'import' and args[0] == {module!r}"
        " and os.kill(os.getpid(), signal.SIGINT))\n"
        "from memline.producers.start import main; main()"
    )

    done = run_process("--workspace", str(tmp_path), "search", "redis", code=interrupt)

    assert (done.returncode, done.stderr) == (130, "Interrupted: notes and index are whole.\n")


def test_products_take_one_thread_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import atexit, os; from memline.producers.start import main;"
        "atexit.register(lambda: print(os.environ['OPENBLAS_NUM_THREADS'])); main()"
    )
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    assert run_process("--version", code=code).stdout.split()[-1] == "1"

    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    assert run_process("--version", code=code).stdout.split()[-1] == "3"


def test_a_signal_that_comes_while_a_process_starts_again_ends_it() -> None:
    script = """
import os, signal, sys
from types import SimpleNamespace
from memline.producers.cli import long_running

execute = os.execv
def told_to_end(*_):
    os.kill(os.getpid(), signal.SIGTERM)
    execute(sys.executable, [sys.executable, "-c", "print('went on')"])
os.execv = told_to_end
with long_running.stop_event() as stop:
    long_running.start_again(SimpleNamespace(words="provider"), stop)
"""
    ran = python(script)

    assert (ran.status, ran.stdout) == (-signal.SIGTERM, "")


def test_a_process_that_is_told_to_end_before_it_has_begun_ends_whatever_it_is_in() -> None:
    script = """
import os, signal
from memline.producers import cli

def in_a_library():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        print("went on")
    except BaseException:
        print("caught")
cli.run = in_a_library
import sys
sys.argv = ["memline", "worker", "embed"]
cli.run_process()
"""
    ran = python(script)

    assert (ran.status, ran.stdout) == (0, "")
