"""What goes wrong around a flush: nothing is paid twice, nothing is lost, and somebody is told."""

import json
import threading
from pathlib import Path

import pytest

from memline.shared.clock import SystemClock
from memline.shared.config.load import load
from memline.shared.config.schema import AgentSettings
from memline.shared.flush import flush_plan
from memline.shared.flush import state as flush_state
from memline.shared.flush.run import run
from memline.shared.flush.transcript import SessionSize, measure
from tests.integration.test_flush import SESSION, Agent, at
from tests.support.chat_server import ChatServer
from tests.support.process import memline


def settings(agent: Agent) -> AgentSettings:
    return load(env=agent.env).agent("main")


def ask(agent: Agent) -> str:
    """Write down that a flush is asked for; the name of its cycle."""
    with flush_state.editing(agent.sessions) as state:
        session = state.sessions.setdefault(SESSION, flush_state.SessionState())
        flush_plan.record_size(session, measure(str(agent.sessions), SESSION, SessionSize()))
        flush_plan.record_request(session, "large", SystemClock().now())
        return session.cycle


def take(agent: Agent, cycle: str) -> flush_state.SessionState | None:
    return run(settings(agent), SESSION, cycle=cycle, clock=SystemClock())


def test_a_message_that_arrives_twice_is_one_request_even_when_it_failed(
    tmp_path: Path, chat: ChatServer
) -> None:
    agent = Agent(tmp_path, **at(chat))
    agent.say("user", "hello")
    chat.status, chat.answer = 500, b"oops"

    cycle = ask(agent)
    first, second = take(agent, cycle), take(agent, cycle)

    assert first is not None and first.outcome == "failed"
    assert second is None and len(chat.requests) == 1


def test_two_workers_at_once_send_one_request(tmp_path: Path, chat: ChatServer) -> None:
    agent = Agent(tmp_path, **at(chat))
    agent.say("user", "hello")
    cycle = ask(agent)

    workers = [threading.Thread(target=take, args=(agent, cycle)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert len(chat.requests) == 1 and agent.note == "- Ada moves to Oslo in May\n"


@pytest.mark.parametrize("name", ["../x.jsonl", "/etc/passwd", "x\0.jsonl", "\ud800.jsonl", ""])
def test_a_message_without_a_recorded_request_is_ignored(tmp_path: Path, chat: ChatServer, name: str) -> None:
    agent = Agent(tmp_path, **at(chat))

    assert run(settings(agent), name, cycle="", clock=SystemClock()) is None
    assert chat.requests == [] and not (agent.sessions / flush_state.STATE_NAME).exists()


def test_an_answer_that_cannot_be_written_down_is_cleaned_not_paid_again(
    tmp_path: Path, chat: ChatServer
) -> None:
    agent = Agent(tmp_path, **at(chat))
    agent.say("user", "hello")
    content = "- one\ud83d\r\n- two\x1b[31m\u202e"
    chat.answer = json.dumps({"choices": [{"message": {"content": content}}]}).encode()

    done = take(agent, ask(agent))

    assert done is not None and done.outcome == "stored"
    assert agent.note == "- one\n- two[31m\n" and len(chat.requests) == 1


def test_words_of_a_server_that_cannot_be_encoded_are_reported_all_the_same(
    tmp_path: Path, chat: ChatServer
) -> None:
    agent = Agent(tmp_path, **at(chat))
    agent.say("user", "hello")
    chat.status, chat.answer = 400, b'{"error": {"message": "no \\ud83d thanks"}}'

    done = agent.flush()

    assert done.status == 1 and "no " in done.stdout and len(chat.requests) == 1


def test_a_locked_note_costs_no_second_request(
    tmp_path: Path, chat: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memline.shared.sources.append.LOCK_TIMEOUT_S", 0.1)
    agent = Agent(tmp_path, **at(chat))
    agent.say("user", "hello")
    today = todays_note(agent)
    import fcntl

    with today.open("a") as note:
        fcntl.flock(note, fcntl.LOCK_EX)
        locked = take(agent, ask(agent))
    later = take(agent, ask(agent))

    assert locked is not None and locked.outcome == "failed" and locked.reply
    assert later is not None and later.outcome == "stored" and not later.reply
    assert len(chat.requests) == 1


def todays_note(agent: Agent) -> Path:
    from memline.shared.sources.append import local_time, log_path

    note = agent.workspace / log_path(local_time(SystemClock().now(), "UTC").date())
    note.parent.mkdir()
    return note


def test_a_conversation_too_long_for_the_model_is_given_shorter(tmp_path: Path) -> None:
    with ChatServer("- kept", max_bytes=8_000) as chat:
        agent = Agent(tmp_path, **at(chat))
        for number in range(40):
            agent.say("user", f"{number} " + "words " * 80)

        done = agent.flush()

    assert done.stdout.startswith("stored: ")
    sent = [len(json.dumps(request)) for request in chat.requests]
    assert len(sent) == 2 and sent[0] > 8_000 > sent[1]
    # The end of the conversation is what is kept.
    assert "User: 39 words" in json.dumps(chat.requests[1]) and "left out" in json.dumps(chat.requests[1])


def test_doctor_reports_wrong_settings_and_sessions_that_were_given_up(
    tmp_path: Path, chat: ChatServer
) -> None:
    agent = Agent(tmp_path, model="anthropic/claude-opus")
    wrong = memline("doctor", env=agent.env).stdout
    agent.configure(**at(chat))
    well = memline("doctor", env=agent.env).stdout
    with flush_state.editing(agent.sessions) as state:
        state.sessions[SESSION] = flush_state.SessionState(
            outcome=flush_state.FAILED, attempts=3, reason="chat memory flush failed: 500 oops"
        )
    failing = memline("doctor", env=agent.env).stdout

    assert "models.providers.anthropic has no address" in wrong
    assert "sessions are written down before they are compacted" in well
    assert "1 session not written down; the last: chat memory flush failed: 500 oops" in failing


def test_a_redirect_is_not_followed_with_the_key(tmp_path: Path, chat: ChatServer) -> None:
    with ChatServer() as other:
        agent = Agent(tmp_path, **at(chat, apiKey="secret-key-1234"))
        agent.say("user", "hello")
        chat.redirect_to = other.url

        done = agent.flush()

    assert done.status == 1 and other.requests == []
    assert "secret-key" not in done.stdout and "memorySearch" not in done.stdout


def test_a_folder_that_cannot_be_written_is_reported_without_a_traceback(
    tmp_path: Path, chat: ChatServer
) -> None:
    agent = Agent(tmp_path, **at(chat))
    agent.say("user", "hello")
    (agent.sessions / "memline-flush.lock").symlink_to("/nowhere")

    done = agent.flush()

    assert done.status == 1 and "cannot be written" in done.stderr and "Traceback" not in done.stderr
    assert chat.requests == []
