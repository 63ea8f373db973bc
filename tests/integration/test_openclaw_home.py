"""Homes of OpenClaw are used as they are: made by the real program where it is installed, else by our hand.

`sh scripts/openclaw.sh` installs an early and the newest release; `OPENCLAW_PROGRAMS` names their folder.
"""

import json
from contextlib import ExitStack

import pytest

from memline.producers.actions.forget import targets_of_session
from memline.producers.memory import Memory
from memline.shared.config.load import Options, load
from tests.support.chat_server import ChatServer
from tests.support.embedding_server import EmbeddingServer
from tests.support.openclaw import chat_models, needs_openclaw, streamed, talk
from tests.support.openclaw_rows import SessionDatabase
from tests.support.transcripts import opening, said, sessions_folder

SECRET = "sk-proj-aB3dE5gH7jK9mN1pQ3sT5vW7"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user's home with a workspace of OpenClaw's."""
    monkeypatch.setenv("HOME", str(tmp_path))
    workspace = tmp_path / ".openclaw/workspace"
    (workspace / "memory").mkdir(parents=True)
    (workspace / "MEMORY.md").write_text("# Facts\n\nInvoices are whole cents.\n")
    (workspace / "memory/2026-02-10.md").write_text("Deploy failed with ERR_CONN_42.\n")
    return tmp_path


def configuration(layout, embeddings, chat="http://127.0.0.1:9/v1"):
    """The file of a release: with a chat model and an embedding provider of the tests."""
    search = {
        "provider": "openai",
        "model": "text-embedding-3-small",
        "remote": {"baseUrl": embeddings, "apiKey": "sk-embed"},
        "sources": ["memory", "sessions"],
        "experimental": {"sessionMemory": True},
    }
    content = chat_models(chat)
    if layout == "early":
        content["agents"]["defaults"]["memorySearch"] = search
    else:
        content["memory"] = {"search": search}
    return content


def agent_of(home):
    return load(Options(home=home / "memline"), {"HOME": str(home)}).agent()


@pytest.fixture
def opened(home):
    """Opens the memory of the home; what was opened is closed."""
    with ExitStack() as stack:

        def open_():
            settings = load(Options(home=home / "memline"), {"HOME": str(home)})
            return stack.enter_context(Memory.of(settings, settings.agents["main"]))

        yield open_


def citations(memory, question):
    return [hit.citation for hit in memory.search(question, source="sessions").hits]


@pytest.fixture
def server():
    with EmbeddingServer() as server:
        yield server


@pytest.mark.parametrize("layout", ["early", "newest"])
def test_both_layouts_are_used_as_they_are(home, server, opened, layout):
    state = home / ".openclaw"
    (state / "openclaw.json").write_text(json.dumps(configuration(layout, server.url)))
    lines = (
        opening("abc")
        + said("user", f"The regatta is off. My key is {SECRET}")
        + said("assistant", "A pity.")
    )
    database = SessionDatabase(state) if layout == "newest" else None
    if database:
        database.say("abc", lines)
    else:
        (sessions_folder(state) / "abc.jsonl").write_text(lines)

    memory = opened()
    memory.index()

    assert [hit.path for hit in memory.search("whole cents").hits][:1] == ["MEMORY.md"]
    (hit,) = memory.search("regatta", source="sessions").hits
    assert hit.citation == "sessions/abc.jsonl#L2-L3" and SECRET not in hit.snippet
    assert memory.search("regatta").mode == "hybrid"
    assert server.texts and not any(SECRET in text for text in server.texts)


def test_sessions_in_rows_are_followed_and_stay_when_they_are_deleted(home, opened):
    state = home / ".openclaw"
    content = configuration("newest", "http://127.0.0.1:9/v1")
    content["memory"]["search"]["provider"] = "none"
    (state / "openclaw.json").write_text(json.dumps(content))
    database = SessionDatabase(state)
    database.say("abc", opening("abc") + said("user", "The regatta is off."))
    database.say("def", opening("def") + said("user", "Tulips are in bloom."))
    memory = opened()
    memory.index()

    database.say("abc", said("assistant", "The walrus took the boat."))

    # A search brings in what grew.
    assert citations(memory, "walrus") == ["sessions/abc.jsonl#L2-L3"]
    assert [str(each) for each in targets_of_session(agent_of(home), "abc")] == ["sessions/abc.jsonl"]
    database.delete("abc")
    memory.index()
    # OpenClaw deleted it: it stays until it is forgotten.
    assert citations(memory, "walrus") == ["sessions/abc.jsonl#L2-L3"]
    assert citations(memory, "tulips") == ["sessions/def.jsonl#L2"]


@needs_openclaw
@pytest.mark.parametrize("layout", ["early", "newest"])
def test_homes_that_the_real_program_made(home, server, opened, layout):
    state = home / ".openclaw"
    with ChatServer() as chat:
        chat.answer = streamed("The walrus took the boat.")
        (state / "openclaw.json").write_text(json.dumps(configuration(layout, server.url, chat.url)))
        talk(layout, home, "first", f"Where is the regatta? My key is {SECRET}")
        memory = opened()
        memory.index()

        (hit,) = memory.search("walrus", source="sessions").hits
        assert hit.path == "sessions/first.jsonl" and "regatta" in hit.snippet and SECRET not in hit.snippet
        talk(layout, home, "first", "Tell me about tulips. " * 100)
        talk(layout, home, "second", "And the zeppelin?")

        # What is longer than a kilobyte is compressed by the newest.
        assert citations(memory, "tulips")[0].startswith("sessions/first.jsonl#L")
        assert citations(memory, "zeppelin")[0].startswith("sessions/second.jsonl#L")
    assert not any(SECRET in text for text in server.texts)
    assert [hit.path for hit in memory.search("ERR_CONN_42").hits][:1] == ["memory/2026-02-10.md"]
