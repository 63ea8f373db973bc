import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from memline.producers.watching import flush_sessions as producer
from memline.producers.watching.flush_sessions import SCAN_EVERY_S, FlushProducer
from memline.shared.clock import ManualClock
from memline.shared.config.schema import AgentSettings, Compaction, MemoryFlush, Sessions
from memline.shared.errors import QueueError
from memline.shared.flush import state as flush_state
from memline.shared.queue.messages import FlushMemory

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
        self.flushes = FlushProducer([self.settings], clock=self.clock)

    def grow(self, tokens: int, *, kind: str = "message") -> None:
        record: dict[str, Any] = {"type": kind, "summary": "s"}
        if kind == "message":
            record["message"] = {"role": "assistant", "usage": {"totalTokens": tokens}}
        with (self.folder / SESSION).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        self.touch()

    def touch(self) -> None:
        os.utime(self.folder / SESSION, ns=(self.clock.now_ns(), self.clock.now_ns()))

    def scan(self, after_s: float = SCAN_EVERY_S) -> None:
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
    watched.scan()
    assert sent == []

    watched.grow(176_000)
    watched.scan()
    watched.grow(177_000)
    watched.scan()
    assert [(message.agent, message.session) for message in sent] == [("main", SESSION)]

    watched.settle(flush_state.STORED)
    watched.grow(0, kind="compaction")
    watched.grow(180_000)
    watched.scan()
    assert len({message.cycle for message in sent}) == len(sent) == 2


def test_another_producer_after_a_restart_asks_for_nothing_twice(
    tmp_path: Path, sent: list[FlushMemory]
) -> None:
    watched = Watched(tmp_path)
    watched.grow(180_000)
    watched.scan()

    watched.flushes = FlushProducer([watched.settings], clock=watched.clock)
    watched.grow(181_000)
    watched.scan()

    assert len(sent) == 1


def test_what_was_asked_for_and_lost_is_asked_for_again_without_growth(
    tmp_path: Path, sent: list[FlushMemory]
) -> None:
    watched = Watched(tmp_path)
    watched.grow(180_000)
    watched.scan()

    watched.scan(after_s=899)
    assert len(sent) == 1
    watched.scan()
    assert len(sent) == 2


def test_old_transcripts_and_background_runs_are_left_alone(tmp_path: Path, sent: list[FlushMemory]) -> None:
    watched = Watched(tmp_path)
    watched.grow(180_000)
    watched.scan(after_s=3_601)

    register = {"agent:main:cron:daily": {"sessionId": "a"}}
    (watched.folder / "sessions.json").write_text(json.dumps(register), encoding="utf-8")
    watched.grow(180_000)
    watched.scan()

    assert sent == []


def test_a_queue_that_is_away_is_asked_soon_again_and_as_often_as_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(message: FlushMemory) -> None:
        raise QueueError("Redis is away")

    monkeypatch.setattr(producer, "send", away)
    watched = Watched(tmp_path)
    watched.grow(180_000)
    for _ in range(10):
        watched.scan(after_s=60)
    sent: list[FlushMemory] = []
    monkeypatch.setattr(producer, "send", sent.append)

    watched.scan(after_s=60)

    assert len(sent) == 1
    assert flush_state.read(watched.folder).sessions[SESSION].attempts == 1


def test_two_producers_ask_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(tmp_path)
    other = FlushProducer([watched.settings], clock=watched.clock)
    sent: list[FlushMemory] = []
    monkeypatch.setattr(producer, "send", sent.append)
    watched.grow(180_000)

    threads = [threading.Thread(target=each.tick) for each in (watched.flushes, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(sent) == 1
    assert flush_state.read(watched.folder).sessions[SESSION].attempts == 1


def test_what_is_gone_or_rests_without_ever_being_asked_for_is_forgotten(
    tmp_path: Path, sent: list[FlushMemory]
) -> None:
    watched = Watched(tmp_path)
    with flush_state.editing(watched.folder) as state:
        state.sessions["gone.jsonl"] = flush_state.SessionState(outcome=flush_state.STORED)
        state.sessions["paid.jsonl"] = flush_state.SessionState(outcome=flush_state.FAILED, reply="- x")
    watched.grow(1_000)
    watched.scan()
    assert sorted(flush_state.read(watched.folder).sessions) == [SESSION, "paid.jsonl"]
    assert [message.session for message in sent] == ["paid.jsonl"]

    watched.scan(after_s=3_601)
    assert sorted(flush_state.read(watched.folder).sessions) == ["paid.jsonl"]

    # It goes on, and is counted anew.
    watched.grow(180_000)
    watched.scan()
    assert sent[-1].session == SESSION


def test_a_name_that_is_not_utf8_and_a_file_that_cannot_be_opened_delay_no_other_session(
    tmp_path: Path, sent: list[FlushMemory]
) -> None:
    watched = Watched(tmp_path)
    (watched.folder / os.fsdecode(b"\xff.jsonl")).write_text("{}\n", encoding="utf-8")
    os.mkfifo(watched.folder / "pipe.jsonl")
    (watched.folder / "link.jsonl").symlink_to(SESSION)
    watched.grow(180_000)

    watched.scan()

    assert [message.session for message in sent] == [SESSION]


def test_a_transcript_of_any_size_is_measured_in_steps_that_hold_up_nothing(
    tmp_path: Path, sent: list[FlushMemory], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer, "BYTES_A_TICK", 1 << 20)
    watched = Watched(tmp_path)
    line = json.dumps({"type": "message", "message": {"role": "user", "content": "u" * 100_000}}) + "\n"
    (watched.folder / SESSION).write_text(line * 40, encoding="utf-8")
    watched.touch()

    watched.scan()
    assert sent == []
    for _ in range(10):
        watched.flushes.tick()

    assert len(sent) == 1


def test_a_folder_that_cannot_be_written_is_reported_once_and_read_once(
    tmp_path: Path, sent: list[FlushMemory], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched(tmp_path)
    (watched.folder / "memline-flush.lock").symlink_to("/nowhere")
    watched.grow(180_000)
    watched.scan()
    monkeypatch.setattr(producer, "measure", lambda *_: pytest.fail("it is read again"))

    for _ in range(3):
        watched.scan()

    assert sent == []
    assert [record.message for record in caplog.records].count("loop.failed") == 1


def test_without_a_model_or_command_nothing_is_scanned(tmp_path: Path, sent: list[FlushMemory]) -> None:
    watched = Watched(tmp_path, model="")
    watched.grow(180_000)

    watched.scan()

    assert not watched.flushes.is_needed
    assert sent == [] and not (watched.folder / flush_state.STATE_NAME).exists()


def test_a_transcript_that_was_copied_in_is_read_once(
    tmp_path: Path, sent: list[FlushMemory], monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(tmp_path)
    message = {"role": "assistant", "usage": {"totalTokens": 180_000}}
    record = {"type": "message", "timestamp": watched.clock.now() - 7_200, "message": message}
    (watched.folder / SESSION).write_text(json.dumps(record) + "\n", encoding="utf-8")
    watched.touch()
    watched.scan()
    monkeypatch.setattr(producer, "measure", lambda *_, **__: pytest.fail("it is read again"))

    watched.scan()

    assert sent == []
