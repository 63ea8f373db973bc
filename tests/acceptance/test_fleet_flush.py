"""kill -9 of the worker that writes sessions down: one note, whenever it comes."""

import fcntl
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from memline.shared.flush import state as flush_state
from memline.shared.sources.append import local_time, log_path
from tests.support.chat_server import ChatServer
from tests.support.fleet import Fleet
from tests.support.redis_server import RedisServer
from tests.support.workspace import Place

SESSION = "4f9c.jsonl"
FACT = "- Ada moves to Oslo in May"


@pytest.fixture
def chat() -> Iterator[ChatServer]:
    with ChatServer(FACT) as running:
        yield running


@pytest.fixture
def agent(place: Place, chat: ChatServer) -> Place:
    place.configure(provider="none")
    config = json.loads(place.config.read_text("utf-8"))
    config["agents"]["defaults"] |= {
        "contextTokens": 30_000,
        "userTimezone": "UTC",
        "compaction": {"memoryFlush": {"model": "small", "baseUrl": chat.url}},
    }
    place.config.write_text(json.dumps(config), encoding="utf-8")
    return place


@pytest.fixture
def fleet(agent: Place, redis_server: RedisServer) -> Iterator[Fleet]:
    with Fleet(agent, redis_server.url, OPENCLAW_STATE_DIR=str(agent.folder / "state")) as fleet:
        yield fleet


def sessions(agent: Place) -> Path:
    return agent.folder / "state" / "agents" / "main" / "sessions"


def note(agent: Place) -> Path:
    return agent.workspace / log_path(local_time(time.time(), "UTC").date())


def kept(agent: Place) -> flush_state.SessionState:
    return flush_state.read(sessions(agent)).sessions.get(SESSION, flush_state.SessionState())


def begin(fleet: Fleet, agent: Place, chat: ChatServer) -> None:
    """A fleet whose worker has sent the turn of a session."""
    sessions(agent).mkdir(parents=True)
    said = {"role": "assistant", "content": "Noted.", "usage": {"totalTokens": 29_000}}
    record = json.dumps({"type": "message", "message": said})
    (sessions(agent) / SESSION).write_text(record + "\n", encoding="utf-8")
    fleet.start("watch", "flush")
    fleet.until(lambda: len(chat.requests) == 1, "the turn")


def test_a_worker_that_is_killed_during_the_turn_is_followed_by_one_that_writes_the_note(
    fleet: Fleet, agent: Place, chat: ChatServer
) -> None:
    chat.may_answer.clear()
    begin(fleet, agent, chat)

    fleet.restart("flush")
    fleet.until(lambda: len(chat.requests) == 2, "the turn of the next worker")
    chat.may_answer.set()

    fleet.until(lambda: kept(agent).outcome == flush_state.STORED, "the note")
    assert note(agent).read_text("utf-8") == f"{FACT}\n"


def test_an_answer_that_was_paid_for_is_written_once_by_the_next_worker(
    fleet: Fleet, agent: Place, chat: ChatServer
) -> None:
    note(agent).parent.mkdir()
    with note(agent).open("a") as locked:
        # The worker has its answer, and waits for whoever writes the note.
        fcntl.flock(locked, fcntl.LOCK_EX)
        begin(fleet, agent, chat)
        fleet.until(lambda: kept(agent).reply == FACT, "the answer in the state")
        fleet.kill("flush")

    fleet.start("flush")

    fleet.until(lambda: kept(agent).outcome == flush_state.STORED, "the note")
    assert note(agent).read_text("utf-8") == f"{FACT}\n"
    assert len(chat.requests) == 1 and kept(agent).reply == ""
