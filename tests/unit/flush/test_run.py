import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memline.shared.clock import ManualClock
from memline.shared.config.schema import AgentSettings, Compaction, MemoryFlush, Sessions
from memline.shared.errors import ProviderStop, ProviderTooBig
from memline.shared.flush import flush_plan, flush_request
from memline.shared.flush import state as flush_state
from memline.shared.flush.run import run
from memline.shared.flush.state import ASKED, FAILED, NOTHING, SKIPPED, STORED, SessionState
from memline.shared.flush.transcript import SessionSize, measure

SESSION = "s.jsonl"
NOW = datetime(2026, 2, 3, 9, tzinfo=UTC).timestamp()


class Model:
    """Answers in the place of a chat model, and keeps the conversations that it was sent."""

    def __init__(self) -> None:
        self.answer: str | Exception = "- Ada prefers tea"
        self.conversations: list[str] = []
        #: A longer conversation is too long.
        self.max_chars = 1_000_000

    def ask(self, settings: AgentSettings, system: str, user: str) -> str:
        self.conversations.append(user)
        if len(user) > self.max_chars:
            raise ProviderTooBig("too long")
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    model = Model()
    monkeypatch.setattr(flush_request, "ask", model.ask)
    return model


@pytest.fixture
def settings(tmp_path: Path) -> AgentSettings:
    """An agent with one session of one message, and a request to flush it."""
    (tmp_path / "ws" / "memory").mkdir(parents=True)
    settings = AgentSettings(
        agent="main",
        workspace=tmp_path / "ws",
        index_path=tmp_path / "i",
        state_dir=tmp_path,
        sessions=Sessions(user_timezone="UTC", compaction=Compaction(memory_flush=MemoryFlush(model="m"))),
    )
    folder = flush_plan.folder_of(settings)
    folder.mkdir(parents=True)
    say(settings, "I like tea")
    return settings


def say(settings: AgentSettings, text: str) -> None:
    record = {"type": "message", "message": {"role": "user", "content": text}}
    folder = flush_plan.folder_of(settings)
    with (folder / SESSION).open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    with flush_state.editing(folder) as state:
        session = state.sessions.setdefault(SESSION, SessionState())
        flush_plan.record_size(session, measure(str(folder), SESSION, SessionSize()))
        flush_plan.record_request(session, "large", NOW)


def state_of(settings: AgentSettings) -> SessionState:
    return flush_state.read(flush_plan.folder_of(settings)).sessions[SESSION]


def flush(settings: AgentSettings, **changes: Any) -> SessionState | None:
    cycle = changes.get("cycle", state_of(settings).cycle)
    return run(settings, SESSION, cycle=cycle, clock=ManualClock(NOW))


def note(settings: AgentSettings) -> str:
    return (settings.workspace / "memory" / "2026-02-03.md").read_text("utf-8")


def test_the_answer_is_appended_to_the_note_of_today(settings: AgentSettings, model: Model) -> None:
    session = flush(settings)

    assert session is not None
    assert (session.outcome, session.reason) == (STORED, "memory/2026-02-03.md#L1-L1")
    assert note(settings) == "- Ada prefers tea\n"
    assert "User: I like tea" in model.conversations[0]


def test_a_request_is_served_once(settings: AgentSettings, model: Model) -> None:
    flush(settings)

    assert flush(settings) is None
    assert flush(settings, cycle="another") is None
    assert len(model.conversations) == 1


def test_a_reply_that_is_paid_for_is_written_without_asking_again(
    settings: AgentSettings, model: Model
) -> None:
    with flush_state.editing(flush_plan.folder_of(settings)) as state:
        state.sessions[SESSION].reply = "- from before"

    session = flush(settings)

    assert session is not None and (session.outcome, session.reply) == (STORED, "")
    assert note(settings) == "- from before\n"
    assert model.conversations == []


def test_nothing_to_keep_leaves_no_note(settings: AgentSettings, model: Model) -> None:
    model.answer = "NO_REPLY"

    session = flush(settings)

    assert session is not None and session.outcome == NOTHING
    assert list((settings.workspace / "memory").iterdir()) == []


def test_an_error_of_the_provider_is_the_reason(settings: AgentSettings, model: Model) -> None:
    model.answer = ProviderStop("no key", hint="export KEY=…")

    session = flush(settings)

    assert session is not None and (session.outcome, session.reason) == (FAILED, "no key; export KEY=…")


def test_a_workspace_that_is_gone_costs_no_request(settings: AgentSettings, model: Model) -> None:
    (settings.workspace / "memory").rmdir()
    settings.workspace.rmdir()

    session = flush(settings)

    assert session is not None and session.outcome == SKIPPED
    assert model.conversations == []


def test_a_conversation_that_is_too_long_is_sent_shorter(settings: AgentSettings, model: Model) -> None:
    for number in range(40):
        say(settings, f"{number} " + "word " * 4_000)
    model.max_chars = 300_000

    session = flush(settings)

    assert session is not None and session.outcome == STORED
    sizes = [len(conversation) for conversation in model.conversations]
    assert sizes == sorted(sizes, reverse=True) and sizes[-1] <= 300_000
    assert "User: 39 word" in model.conversations[-1]
    assert state_of(settings).outcome != ASKED
