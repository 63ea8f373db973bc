"""Transcripts as an agent writes them, for tests."""

import json
from pathlib import Path

from msgspec.structs import replace

from memline.shared.config.environment import PROGRAMS
from memline.shared.config.schema import AgentSettings, Experimental, MemorySearch
from memline.shared.sessions import transcripts
from memline.shared.sessions.openclaw import OpenClaw
from tests.support.clock import ManualClock


def said(role, text, *, at="2026-02-10T10:00:00.000Z"):
    """The line of a message."""
    message = {"role": role, "content": [{"type": "text", "text": text}]}
    return json.dumps({"type": "message", "timestamp": at, "message": message}, ensure_ascii=False) + "\n"


def opening(session="abc"):
    """The first line of a transcript."""
    record = {"type": "session", "version": 3, "id": session, "timestamp": "2026-02-10T10:00:00.000Z"}
    return json.dumps(record) + "\n"


def tool_result(text):
    """The line of what a tool gave."""
    message = {"role": "toolResult", "content": [{"type": "text", "text": text}]}
    return json.dumps({"type": "message", "message": message}) + "\n"


def talk(turns, *, first=0, words=40):
    """Turns of user and agent, each with words of its own."""
    return "".join(
        said(
            "user" if number % 2 == 0 else "assistant",
            " ".join(f"word{number}x{count}" for count in range(words)),
        )
        for number in range(first, first + turns)
    )


def sessions_folder(state_dir, agent="main"):
    """The sessions folder of an agent, made."""
    folder = state_dir / "agents" / agent / "sessions"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def session_settings(state_dir, **memory):
    """An agent that may see its own sessions."""
    seen = MemorySearch(sources=("sessions",), experimental=Experimental(session_memory=True), **memory)
    return AgentSettings(
        agent="main", workspace=state_dir, index_path=state_dir / "x.sqlite", state_dir=state_dir, memory=seen
    )


def store_of(program, place, workspace="/w/proj"):
    """The sessions of a program that were held in a workspace; `place` is where it keeps them."""
    places = dict.fromkeys(PROGRAMS, place)
    settings = AgentSettings(
        agent="main",
        workspace=Path(workspace),
        index_path=place / "index.sqlite",
        state_dir=place,
        transcript_places=places,
    )
    return transcripts.PROGRAMS[program](settings)


def openclaw_store(state_dir, agent="main"):
    """The sessions of an agent of OpenClaw."""
    return OpenClaw(replace(session_settings(Path(state_dir)), agent=agent))


def names_in(store):
    """The names of the sessions that a store finds."""
    return [file.path.rpartition("/")[2].removesuffix(".jsonl") for file in store.discover().files]


def reading(store, program, name):
    """What an index gets of a session."""
    return transcripts.read_session(
        store,
        f"sessions/{program}/{name}.jsonl",
        max_tokens=4000,
        overlap_tokens=0,
        clock=ManualClock(1_800_000_000),
    )


def said_in(store, program, name):
    """Who said what in a session, a line each."""
    return [line for chunk in reading(store, program, name).chunks for line in chunk.text.split("\n")]
