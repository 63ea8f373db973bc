"""A session is written down before it is compacted: real transcripts, a real chat server, real processes."""

import json
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from memline.shared.flush import state as flush_state
from tests.support.chat_server import ChatServer
from tests.support.process import Ran, memline, memline_without_rights, running_memline
from tests.support.workspace import until

SESSION = "4f9c.jsonl"
KEY = "sk-proj-abcdefghijklmnop1234567890"


class Agent:
    """A workspace with a session beside it, and the configuration of its flush."""

    def __init__(self, folder: Path, **memory_flush: Any) -> None:
        self.workspace = folder / "ws"
        self.sessions = folder / "state" / "agents" / "main" / "sessions"
        self.workspace.mkdir(parents=True)
        self.sessions.mkdir(parents=True)
        self.env = {"OPENCLAW_STATE_DIR": str(folder / "state"), "MEMLINE_HOME": str(folder / "home")}
        self.env |= {"HOME": str(folder), "MEMLINE_CONFIG": str(folder / "c.json5"), "OPENAI_API_KEY": ""}
        self.configure(**memory_flush)

    def configure(self, **memory_flush: Any) -> None:
        defaults = {
            "workspace": str(self.workspace),
            "contextTokens": 30_000,
            "userTimezone": "UTC",
            "memorySearch": {"sync": {"watchDebounceMs": 50}},
            "compaction": {"memoryFlush": memory_flush},
        }
        config = Path(self.env["MEMLINE_CONFIG"])
        config.write_text(json.dumps({"agents": {"defaults": defaults}}), encoding="utf-8")

    def say(self, role: str, text: str, **more: Any) -> None:
        content = [{"type": "text", "text": text}, {"type": "thinking", "thinking": "a secret thought"}]
        self.add({"type": "message", "message": {"role": role, "content": content, **more}})

    def add(self, record: dict[str, Any]) -> None:
        with (self.sessions / SESSION).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def flush(self) -> Ran:
        return memline("flush", "--now", SESSION, env=self.env)

    @property
    def note(self) -> str:
        notes = [*(self.workspace / "memory").glob("*.md")]
        return notes[0].read_text("utf-8") if notes else ""

    @property
    def outcome(self) -> tuple[str, str]:
        session = flush_state.read(self.sessions).sessions[SESSION]
        return session.outcome, session.reason


def at(chat: ChatServer, **more: Any) -> dict[str, Any]:
    return {"baseUrl": chat.url, "model": "small", **more}


def test_up_flushes_a_session_once_in_a_cycle_and_finds_what_was_kept(
    tmp_path: Path, chat: ChatServer
) -> None:
    agent = Agent(tmp_path, **at(chat))
    agent.say("user", "I will move to Oslo in May, says Ada.")

    with running_memline("up", env=agent.env):
        until(lambda: SESSION in flush_state.read(agent.sessions).sessions)
        assert chat.requests == []
        agent.say("assistant", "Noted.", usage={"totalTokens": 29_000})
        until(lambda: "Oslo in May" in agent.note)
        until(lambda: agent.outcome[0] == "stored")

        agent.say("assistant", "More.", usage={"totalTokens": 29_500})
        until(lambda: flush_state.read(agent.sessions).sessions[SESSION].size.tokens == 29_500)
        assert len(chat.requests) == 1

        chat.answer = "- Tea is out"
        agent.add({"type": "compaction", "summary": "They spoke of Oslo."})
        agent.say("assistant", "Again.", usage={"totalTokens": 29_000})
        until(lambda: "Tea is out" in agent.note)

    today = f"memory/{date.today():%Y-%m-%d}.md"
    found = memline("search", "when does Ada move to Oslo", "--json", env=agent.env).json
    assert found["results"][0]["path"].startswith("memory/"), today
    assert len(chat.requests) == 2
    # The second turn begins behind the compaction.
    assert "Oslo in May" not in json.dumps(chat.requests[1]["messages"])


def test_the_model_sees_masked_text_of_the_conversation_and_nothing_else(
    tmp_path: Path, chat: ChatServer
) -> None:
    agent = Agent(tmp_path, **at(chat))
    agent.say("user", f"My key is {KEY}, keep it safe.")
    agent.say("toolResult", "tool noise")
    chat.answer = f"- The key {KEY} exists"

    done = agent.flush()

    assert done.status == 0 and done.stdout.startswith("stored: memory/")
    sent = json.dumps(chat.requests[0])
    assert "User: My key is" in sent and "Current time:" in sent
    for hidden in (KEY, "a secret thought", "tool noise"):
        assert hidden not in sent
    assert "- The key" in agent.note and KEY not in agent.note
    assert KEY not in (agent.sessions / flush_state.STATE_NAME).read_text("utf-8")


@pytest.mark.parametrize(
    ("status", "answer", "words"),
    [
        (401, b'{"error": {"message": "Incorrect API key provided"}}', "failed"),
        (500, b"oops", "failed"),
        (429, b'{"error": {"message": "slow down"}}', "failed"),
        (200, b"<html>a portal</html>", "no JSON"),
        (200, b'{"choices": []}', "the answer has no message"),
        (200, b'{"choices": [{"message": {"content": 5}}]}', "the message is not text"),
        (
            200,
            json.dumps({"choices": [{"message": {"content": "x" * 20_000}}]}).encode(),
            "too long for a note",
        ),
    ],
)
def test_a_model_without_a_usable_answer_is_reported_with_the_reason(
    tmp_path: Path, chat: ChatServer, status: int, answer: bytes, words: str
) -> None:
    agent = Agent(tmp_path, **at(chat))
    agent.say("user", "hello")
    chat.status, chat.answer = status, answer

    done = agent.flush()

    assert done.status == 1
    assert done.stdout.startswith("failed: ") and words in done.stdout
    assert "memory flush failed" in done.stdout and "embeddings" not in done.stdout
    assert agent.note == ""


def test_the_key_is_sent_to_its_own_server_only_and_never_shown(tmp_path: Path, chat: ChatServer) -> None:
    chat.key = "right-key-1234"
    agent = Agent(tmp_path, **at(chat, apiKey="wrong-key-1234"))
    agent.say("user", "hello")

    wrong = agent.flush()
    agent.configure(**at(chat, apiKey="right-key-1234"))
    right = agent.flush()

    assert wrong.status == 1 and "wrong-key" not in wrong.stdout + wrong.stderr
    assert right.status == 0 and "Oslo" in agent.note


@pytest.mark.parametrize("answer", ["NO_REPLY", "", "**NO_REPLY**", "## Session\n\n---"])
def test_nothing_to_keep_leaves_no_note(tmp_path: Path, chat: ChatServer, answer: str) -> None:
    agent = Agent(tmp_path, **at(chat))
    agent.say("user", "hello")
    chat.answer = answer

    done = agent.flush()

    assert (done.status, done.stdout) == (0, "nothing: there was nothing to keep\n")
    assert not (agent.workspace / "memory").exists()


def test_an_answer_that_was_paid_for_is_written_by_the_next_worker(tmp_path: Path, chat: ChatServer) -> None:
    agent = Agent(tmp_path, **at(chat))
    agent.say("user", "hello")
    with flush_state.editing(agent.sessions) as state:
        state.sessions[SESSION] = flush_state.SessionState(
            cycle="", outcome=flush_state.ASKED, reply="- paid for before the crash"
        )

    done = agent.flush()

    assert done.status == 0
    assert chat.requests == [] and agent.note == "- paid for before the crash\n"


def test_a_workspace_that_cannot_be_written_costs_nothing(tmp_path: Path, chat: ChatServer) -> None:
    agent = Agent(tmp_path, **at(chat))
    agent.say("user", "hello")
    agent.workspace.chmod(0o555)

    done = memline_without_rights("flush", "--now", SESSION, env=agent.env)

    agent.workspace.chmod(0o755)
    assert done.status == 1
    assert done.stdout == f"skipped: {agent.workspace} is not writable\n"
    assert chat.requests == []


def test_a_note_that_is_a_link_is_not_followed(tmp_path: Path, chat: ChatServer) -> None:
    agent = Agent(tmp_path, **at(chat))
    agent.say("user", "hello")
    (tmp_path / "outside").mkdir()
    (agent.workspace / "memory").symlink_to(tmp_path / "outside")

    done = agent.flush()

    assert done.stdout == f"skipped: {agent.workspace / 'memory'} is a symbolic link\n"
    assert chat.requests == []
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_program_answers_instead_of_a_model(tmp_path: Path) -> None:
    script = "import sys; text = sys.stdin.read(); print('- it read', 'User: hello' in text)"
    agent = Agent(tmp_path, command=[sys.executable, "-c", script])
    agent.say("user", "hello")

    done = agent.flush()

    assert done.status == 0
    assert agent.note == "- it read True\n"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["/no/such/program"], "program cannot be started"),
        ([sys.executable, "-c", "raise SystemExit('it broke')"], "ended with 1: it broke"),
        ([sys.executable, "-c", "import time; time.sleep(60)"], "gave no answer within 1 s"),
    ],
)
def test_a_program_that_fails_is_reported(tmp_path: Path, command: list[str], words: str) -> None:
    agent = Agent(tmp_path, command=command, timeoutSeconds=1 if "1 s" in words else 60)
    agent.say("user", "hello")

    done = agent.flush()

    assert done.status == 1 and words in done.stdout


def test_the_list_shows_what_is_configured_and_how_large_sessions_are(
    tmp_path: Path, chat: ChatServer
) -> None:
    agent = Agent(tmp_path)
    off = memline("flush", env=agent.env)
    refused = agent.flush()
    agent.configure(**at(chat))
    agent.say("assistant", "hello", usage={"totalTokens": 1_234})
    agent.flush()

    shown = memline("flush", env=agent.env).stdout
    listed = memline("flush", "--json", env=agent.env).json

    assert "main: off, no model and no command is configured for it" in off.stdout
    assert refused.status == 2 and "memoryFlush.model" in refused.stderr
    assert f"{SESSION}  1,234 of 6,000 tokens · stored (memory/" in shown
    assert listed[0]["sessions"][0]["tokens"] == 1_234 and listed[0]["enabled"]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"memorySearch": {"enabled": False}}, "memory search is disabled (memorySearch.enabled)"),
        ({}, "it is disabled (agents.defaults.compaction.memoryFlush.enabled)"),
    ],
)
def test_a_flush_that_is_switched_off_names_the_key(
    tmp_path: Path, chat: ChatServer, keys: dict[str, object], words: str
) -> None:
    agent = Agent(tmp_path, **at(chat), **({} if keys else {"enabled": False}))
    file = Path(agent.env["MEMLINE_CONFIG"])
    config = json.loads(file.read_text("utf-8"))
    config["agents"]["defaults"] |= keys
    file.write_text(json.dumps(config), encoding="utf-8")

    listed, refused = memline("flush", env=agent.env), agent.flush()

    assert listed.stdout.startswith(f"main: off, {words}\n")
    assert refused.status == 2
    assert f"no session of main is flushed: {words}\nTry: set that key to true" in refused.stderr
    assert chat.requests == []


def test_an_unknown_session_is_named_and_a_path_is_refused(tmp_path: Path, chat: ChatServer) -> None:
    agent = Agent(tmp_path, **at(chat))
    for folder in (agent.sessions / "inner", tmp_path / "other"):
        folder.mkdir()
        (folder / "x.jsonl").write_text("{}\n", encoding="utf-8")

    done = memline("flush", "--now", "x", env=agent.env)
    paths = [memline("flush", "--now", path, env=agent.env) for path in ("../../other/x", "inner/x", "..")]

    assert done.status == 1 and "there is no transcript x.jsonl" in done.stderr
    # A path is not the name of a session: usage; the last one is a name, of none.
    assert [ran.status for ran in paths] == [2, 2, 1] and chat.requests == []
    assert not (agent.sessions / flush_state.STATE_NAME).exists()
