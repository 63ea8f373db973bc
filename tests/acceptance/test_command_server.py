"""`memline up` and `serve` answer the commands of other processes: in the same words, or not at all."""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from subprocess import Popen

import pytest

from memline.producers.cli.command_client import NAME
from tests.support.process import Ran, running_memline
from tests.support.workspace import Place, until

#: What a command ends with here instead of working alone.
ALONE = 97

#: Waits as long as it takes, and does not work alone.
_ASKS = f"""
from memline.producers.cli import command_client, plain
command_client.TAKEN_S = command_client.ANSWERED_S = 150.0
plain.run = lambda *_: {ALONE}
"""

_WORKS_ALONE = "from memline.producers.cli import command_client\ncommand_client.NAME = 'nothing'\n"


def asked(place: Place, *args: str, but: str = "") -> Ran:
    """A command that works only when a server answers it; `but`: Python that changes it first."""
    return place.run(*args, before=_ASKS + but)


def alone(place: Place, *args: str) -> Ran:
    return place.run(*args, before=_WORKS_ALONE)


def is_answered(place: Place) -> bool:
    return asked(place, "search", "bolts").status != ALONE


def servers_of(process: Popen[str]) -> list[int]:
    """The processes that a process has started."""
    tasks = Path(f"/proc/{process.pid}/task").glob("*/children")
    return [int(pid) for each in tasks for pid in each.read_text().split()]


@pytest.fixture
def notes(place: Place) -> Place:
    place.furnish(
        files={"MEMORY.md": "# Motor\n\nThe head bolts take 85 Nm.\n", "memory/x.md": "Bolts: Größe 8 mm.\n"},
        is_indexed=True,
        provider="none",
    )
    return place


@contextmanager
def up(place: Place, *command: str) -> Iterator[Popen[str]]:
    """`memline up`, or another command, from its first answer on."""
    with running_memline(*place.arguments(*(command or ("up",)))) as process:
        until(lambda: is_answered(place), "an answer of the command server")
        yield process


def test_a_command_prints_the_same_to_the_byte_whoever_answers_it(notes: Place) -> None:
    with up(notes):
        for line in (
            ["search", "bolts", "--json"],
            ["search", "Größe"],
            ["search", "nothing of that"],
            ["search", "bolts", "--since", "never"],
            ["get", "MEMORY.md", "--from", "3"],
            ["get", "no.md", "--json"],
            ["status", "--json"],
            ["status"],
            ["context"],
        ):
            assert asked(notes, *line) == alone(notes, *line), line
        # What click says, the command says itself.
        assert asked(notes, "search").status == ALONE

        until(
            lambda: 'face="cli"' in notes.run("metrics", "--once").stdout,
            "searches of commands in the counts",
        )


def test_a_command_is_answered_by_the_settings_and_notes_of_its_moment(notes: Place) -> None:
    with up(notes, "serve", "--port", "0"):
        assert len(asked(notes, "search", "bolts", "--json").json["results"]) == 2

        notes.configure(query={"maxResults": 1})
        notes.write("memory/new.md", "A spindle of brass.\n")

        assert len(asked(notes, "search", "bolts", "--json").json["results"]) == 1
        assert asked(notes, "search", "spindle", "--json") == alone(notes, "search", "spindle", "--json")
        assert asked(notes, "search", "spindle", "--json").json["results"][0]["path"] == "memory/new.md"


def test_a_command_works_alone_where_the_server_is_not_its_own(notes: Place) -> None:
    with up(notes):
        for name in (NAME, "commands.lock"):
            assert notes.home.joinpath(name).stat().st_mode & 0o777 == 0o600
        for other in (
            "command_client.identity = lambda: '0.1 of another program'",
            "import os; os.geteuid = lambda: 4711",
        ):
            assert asked(notes, "search", "bolts", but=other).status == ALONE


def test_a_command_works_alone_when_the_server_stops_or_is_killed_and_is_answered_again(notes: Place) -> None:
    expected = alone(notes, "search", "bolts", "--json")
    with up(notes) as process:
        (server,) = servers_of(process)
        os.kill(server, signal.SIGSTOP)
        assert notes.run("search", "bolts", "--json") == expected

        os.kill(server, signal.SIGKILL)
        assert notes.run("search", "bolts", "--json") == expected

        until(lambda: is_answered(notes), "an answer of another server")
        assert servers_of(process) != [server]


def test_a_socket_that_was_left_behind_stops_no_command(notes: Place) -> None:
    with up(notes) as process:
        process.kill()
        process.wait()
    assert notes.home.joinpath(NAME).exists()
    assert notes.run("search", "bolts").status == 0

    with up(notes) as process:
        process.terminate()
        assert process.wait() == 0
    assert not notes.home.joinpath(NAME).exists()


def test_a_command_is_answered_in_a_home_whose_path_is_too_long_for_a_socket(tmp_path: Path) -> None:
    place = Place(folder=tmp_path / ("long" * 30))
    place.furnish(files={"MEMORY.md": "The head bolts take 85 Nm.\n"}, is_indexed=True, provider="none")

    with closing(socket.socket(socket.AF_UNIX)) as own, pytest.raises(OSError, match="too long"):
        own.bind(str(place.home / "own.sock"))
    with up(place):
        assert asked(place, "search", "bolts", "--json") == alone(place, "search", "bolts", "--json")
