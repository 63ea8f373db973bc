"""Whatever the program does, it is bounded, and learns nothing that it needs not know."""

import os
from pathlib import Path

import pytest

from memline.producers.bridges.qmd import home as home_module
from memline.producers.bridges.qmd.home import QmdFailed, QmdHome
from memline.shared.programs import run_program
from tests.support.workspace import until
from tests.unit.bridges.qmd.conftest import Place

MINUTES_MS = 120_000


def home(place: Place, **qmd: object) -> QmdHome:
    made = QmdHome(place.agent(**qmd))
    made.make()
    return made


def test_it_runs_in_a_home_of_its_own_without_any_key(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "HTTPS_PROXY", "QMD_TRUST_UPDATE_HOOKS", "MY_SECRET"):
        monkeypatch.setenv(name, "sk-secret")
    made = home(place)

    made.run("search", "q", timeout_ms=MINUTES_MS)

    (call,) = place.qmd.calls()
    assert "sk-secret" not in call["env"].values()
    assert call["env"]["XDG_CONFIG_HOME"] == str(made.folder / "xdg-config")
    assert call["env"]["XDG_CACHE_HOME"] == str(made.folder / "xdg-cache")
    assert (call["env"]["NO_COLOR"], call["env"]["PATH"]) == ("1", os.environ["PATH"])
    # A `.qmd` folder of the workspace could hold commands.
    assert call["cwd"] == str(made.folder)
    assert made.folder.stat().st_mode & 0o777 == 0o700


def test_the_models_of_the_user_are_linked(place: Place, home: Path) -> None:
    (home / ".cache" / "qmd" / "models").mkdir(parents=True)
    made = QmdHome(place.agent())

    made.make()
    made.make()

    assert (made.folder / "xdg-cache" / "qmd" / "models").resolve() == home / ".cache" / "qmd" / "models"


def test_a_command_that_hangs_ends_with_children_that_ignore_signals(place: Place) -> None:
    pids = place.folder / "pids"
    child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    place.qmd.does(
        search={
            "python": "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            f"child = subprocess.Popen([sys.executable, '-c', {child!r}])\n"
            f"open({str(pids)!r} + '.part', 'w').write(str(child.pid))\n"
            f"os.rename({str(pids)!r} + '.part', {str(pids)!r})\n"
            "time.sleep(600)"
        }
    )
    made = home(place)
    ran = run_program(
        [str(place.qmd.program), "search"],
        timeout_s=300,
        max_bytes=1_000,
        env=made.environment(),
        is_stopped=pids.exists,
    )

    assert (ran.problem, ran.status) == ("stopped", -9)
    stat = Path("/proc") / pids.read_text() / "stat"
    until(lambda: not stat.exists() or ") Z " in stat.read_text())


def test_one_that_takes_too_long_is_named_with_its_limit(place: Place) -> None:
    place.qmd.does(update={"python": "time.sleep(600)"})

    with pytest.raises(QmdFailed, match=r"^qmd update timed out after 300ms"):
        home(place).run("update", timeout_ms=300)


def test_a_flood_is_refused(place: Place) -> None:
    place.qmd.does(search={"python": "while True: sys.stdout.write('x' * 65536)"})

    with pytest.raises(QmdFailed, match="wrote more than"):
        home(place).run("search", "q", timeout_ms=MINUTES_MS)


def test_an_exit_status_is_told_with_the_standard_error_and_without_keys(place: Place) -> None:
    place.qmd.does(search={"stderr": "no such table; key=sk-abcdefgh12345678\n", "status": 3})

    with pytest.raises(QmdFailed, match=r"^qmd search failed \(code 3\): no such table") as caught:
        home(place).run("search", "the question", timeout_ms=MINUTES_MS)

    assert "abcdefgh" not in caught.value.message and "the question" not in caught.value.message


def test_memory_is_bounded(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home_module, "MAX_MEMORY_BYTES", 256 << 20)
    place.qmd.does(search={"python": "bytearray(1 << 30)"})

    with pytest.raises(QmdFailed, match="MemoryError"):
        home(place).run("search", "q", timeout_ms=MINUTES_MS)


@pytest.mark.parametrize("command", ["no-such-qmd", "/no/such/qmd --flag", "'not closed"])
def test_a_program_that_is_not_there_is_named_with_what_to_do(place: Place, command: str) -> None:
    with pytest.raises(QmdFailed, match="qmd cannot be run") as caught:
        home(place, command=command).run("search", "q", timeout_ms=1_000)

    assert "@tobilu/qmd" in caught.value.hint and "memory.qmd.command" in caught.value.hint


@pytest.mark.parametrize("content", ["", "[]", "nonsense", "[" * 100_000])
def test_a_damaged_file_of_the_home_counts_as_none(place: Place, content: str) -> None:
    made = home(place)
    (made.folder / "update.json").write_text(content)

    assert made.read("update.json") == {}
