from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from producers import flush as producer
from producers.flush import LOOK_EVERY_S, Flushes
from shared.clock import ManualClock
from shared.config.schema import AgentSettings, Compaction, MemoryFlush, Sessions
from shared.errors import QueueError
from shared.flush import state as flush_state
from shared.queue.messages import FlushMemory

SESSION = "a.jsonl"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[FlushMemory]:
    """The messages sent; the queue itself has its own tests."""
    messages: list[FlushMemory] = []
    monkeypatch.setattr(producer, "send", messages.append)
    return messages


class Watched:
    """One agent with one session, and a producer that looks at it whenever the clock moves on."""

    def __init__(self, folder: Path, **flush: Any) -> None:
        self.clock = ManualClock()
        self.folder = folder / "agents" / "main" / "sessions"
        self.folder.mkdir(parents=True)
        sessions = Sessions(compaction=Compaction(memory_flush=MemoryFlush(**{"model": "m", **flush})))
        self.settings = AgentSettings(
            agent="main", workspace=folder, index_path=folder / "i", state_dir=folder, sessions=sessions
        )
        self.flushes = Flushes([self.settings], clock=self.clock)

    def grow(self, tokens: int, *, kind: str = "message") -> None:
        record: dict[str, Any] = {"type": kind, "summary": "s"}
        if kind == "message":
            record["message"] = {"role": "assistant", "usage": {"totalTokens": tokens}}
        with (self.folder / SESSION).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        self.touch()

    def touch(self) -> None:
        os.utime(self.folder / SESSION, ns=(self.clock.now_ns(), self.clock.now_ns()))

    def look(self, after_s: float = LOOK_EVERY_S) -> None:
        self.clock.advance(after_s)
        self.flushes.tick()

    def settle(self, outcome: str) -> None:
        with flush_state.editing(self.folder) as state:
            state.sessions[SESSION].outcome = outcome


def test_a_flush_is_asked_for_once_and_again_after_the_next_compaction(
    tmp_path: Path, sent: list[FlushMemory]
) -> None:
    watched = Watched(tmp_path)
    watched.grow(100_000)
    watched.look()
    assert sent == []

    watched.grow(176_000)
    watched.look()
    watched.grow(177_000)
    watched.look()
    assert sent == [FlushMemory(agent="main", session=SESSION, cycle=0)]

    watched.settle(flush_state.STORED)
    watched.grow(0, kind="compaction")
    watched.grow(180_000)
    watched.look()
    assert [message.cycle for message in sent] == [0, 1]


def test_another_producer_after_a_restart_asks_for_nothing_twice(
    tmp_path: Path, sent: list[FlushMemory]
) -> None:
    watched = Watched(tmp_path)
    watched.grow(180_000)
    watched.look()

    watched.flushes = Flushes([watched.settings], clock=watched.clock)
    watched.grow(181_000)
    watched.look()

    assert len(sent) == 1


def test_what_was_asked_for_and_lost_is_asked_for_again_without_growth(
    tmp_path: Path, sent: list[FlushMemory]
) -> None:
    watched = Watched(tmp_path)
    watched.grow(180_000)
    watched.look()

    watched.look(after_s=899)
    assert len(sent) == 1
    watched.look()
    assert len(sent) == 2


def test_old_transcripts_and_runs_of_nobody_are_left_alone(tmp_path: Path, sent: list[FlushMemory]) -> None:
    watched = Watched(tmp_path)
    watched.grow(180_000)
    watched.look(after_s=3_601)

    register = {"agent:main:cron:daily": {"sessionId": "a"}}
    (watched.folder / "sessions.json").write_text(json.dumps(register), encoding="utf-8")
    watched.grow(180_000)
    watched.look()

    assert sent == []


def test_a_queue_that_is_away_is_asked_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(message: FlushMemory) -> None:
        raise QueueError("Redis is away")

    monkeypatch.setattr(producer, "send", away)
    watched = Watched(tmp_path)
    watched.grow(180_000)
    watched.look()
    sent: list[FlushMemory] = []
    monkeypatch.setattr(producer, "send", sent.append)

    watched.look(after_s=900)

    assert len(sent) == 1


def test_nobody_to_take_the_turn_means_no_look_at_all(tmp_path: Path, sent: list[FlushMemory]) -> None:
    watched = Watched(tmp_path, model="")
    watched.grow(180_000)

    watched.look()

    assert not watched.flushes.is_needed
    assert sent == [] and not (watched.folder / flush_state.STATE_NAME).exists()
