"""The word of a process that follows the files: taken while it lives and nothing changes, and no longer."""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from memline.shared.clock import ManualClock
from memline.shared.config.schema import AgentSettings, Chunking, MemorySearch
from memline.shared.sync import freshness
from memline.shared.sync.freshness import BEAT_S, MAX_AGE_S, FreshMark, is_fresh
from tests.support.process import ROOT
from tests.support.workspace import Place

#: Gives its word for the workspace of its arguments, and works on for ever.
_FOLLOW = """
import sys, threading
from memline.shared.config.load import Options, load
from memline.shared.sync.freshness import FreshMark
from pathlib import Path

settings = load(Options(home=Path(sys.argv[1]), config=Path(sys.argv[2]))).agent()
mark = FreshMark(settings)
mark.give(mark.revoke(), mark.about())
print("given", flush=True)
while not threading.Event().wait(0.2):
    mark.beat()
"""


@pytest.fixture
def settings(tmp_path: Path) -> AgentSettings:
    (tmp_path / "index.sqlite").write_bytes(b"an index")
    return AgentSettings(
        agent="main",
        workspace=tmp_path,
        index_path=tmp_path / "index.sqlite",
        state_dir=tmp_path,
        memory=MemorySearch(provider="none"),
    )


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def mark(settings: AgentSettings, clock: ManualClock) -> Iterator[FreshMark]:
    mark = FreshMark(settings, clock=clock)
    yield mark
    mark.revoke()


def give(mark: FreshMark) -> None:
    mark.give(mark.revoke(), mark.about())


def test_without_a_word_an_index_is_not_fresh(settings: AgentSettings, clock: ManualClock) -> None:
    assert not is_fresh(settings, clock=clock)


def test_a_word_is_taken_until_it_is_revoked(
    settings: AgentSettings, clock: ManualClock, mark: FreshMark
) -> None:
    give(mark)
    assert is_fresh(settings, clock=clock)
    assert is_fresh(settings, clock=clock)

    mark.revoke()

    assert not is_fresh(settings, clock=clock)


def test_what_was_found_before_a_change_is_no_word(
    settings: AgentSettings, clock: ManualClock, mark: FreshMark
) -> None:
    number, about = mark.revoke(), mark.about()
    mark.revoke()

    mark.give(number, about)
    mark.beat()

    assert not is_fresh(settings, clock=clock)


def test_a_word_without_a_heartbeat_expires(
    settings: AgentSettings, clock: ManualClock, mark: FreshMark
) -> None:
    give(mark)

    clock.advance(MAX_AGE_S)
    assert is_fresh(settings, clock=clock)
    clock.advance(0.1)
    assert not is_fresh(settings, clock=clock)
    mark.beat()
    assert is_fresh(settings, clock=clock)


def test_a_heartbeat_from_the_future_is_none(
    settings: AgentSettings, clock: ManualClock, mark: FreshMark
) -> None:
    clock.advance(60)
    give(mark)

    assert not is_fresh(settings, clock=ManualClock())


def other_chunks(settings: AgentSettings) -> AgentSettings:
    return replace(settings, memory=replace(settings.memory, chunking=Chunking(tokens=123)))


def other_workspace(settings: AgentSettings) -> AgentSettings:
    return replace(settings, workspace=settings.workspace / "other")


def other_index(settings: AgentSettings) -> AgentSettings:
    new = settings.workspace / "new"
    new.write_bytes(b"built again")
    new.rename(settings.index_path)
    return settings


def no_index(settings: AgentSettings) -> AgentSettings:
    settings.index_path.unlink()
    return settings


@pytest.mark.parametrize("change", [other_chunks, other_workspace, other_index, no_index])
def test_a_word_is_about_one_index_and_the_settings_of_a_look(
    settings: AgentSettings,
    clock: ManualClock,
    mark: FreshMark,
    change: Callable[[AgentSettings], AgentSettings],
) -> None:
    give(mark)

    assert not is_fresh(change(settings), clock=clock)


def test_a_word_that_another_process_forgot_is_not_given_again(
    settings: AgentSettings, clock: ManualClock, mark: FreshMark
) -> None:
    give(mark)

    freshness.forget(settings)
    assert not is_fresh(settings, clock=clock)
    clock.advance(BEAT_S)
    mark.beat()
    assert not is_fresh(settings, clock=clock)
    give(mark)
    assert is_fresh(settings, clock=clock)


def test_a_search_that_looks_at_the_word_delays_it_by_a_heartbeat_only(
    settings: AgentSettings, clock: ManualClock, mark: FreshMark
) -> None:
    path = Path(f"{settings.index_path}.fresh")
    path.touch()
    reader = os.open(path, os.O_RDONLY)
    fcntl.flock(reader, fcntl.LOCK_SH)
    give(mark)
    os.close(reader)
    assert not is_fresh(settings, clock=clock)

    mark.beat()

    assert is_fresh(settings, clock=clock)


def test_the_word_of_a_killed_process_is_not_taken(place: Place) -> None:
    place.write("MEMORY.md", "# Notes\n")
    place.run("index")
    settings = place.agent
    command = [sys.executable, "-c", _FOLLOW, str(place.home), str(place.config)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env={**os.environ})
    assert process.stdout is not None
    with process:
        assert process.stdout.readline() == b"given\n"
        with Path(f"{settings.index_path}.fresh").open() as held, pytest.raises(BlockingIOError):
            fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)

        process.send_signal(signal.SIGKILL)
        process.wait()

        assert not is_fresh(settings)
