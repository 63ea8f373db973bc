"""Sessions that their program deleted stay until they are forgotten."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.support.workspace import Place, paths

DAY_S = 86_400

pytestmark = pytest.mark.place(
    files={"MEMORY.md": "# Notes\n\nWe chose Redis.\n"},
    provider="none",
    sources=["memory", "sessions"],
    experimental={"sessionMemory": True},
    transcripts=["claude-code", "codex", "gemini"],
)


def projects_of_claude(place, tmp_path):
    name = "".join(each if each.isalnum() else "-" for each in str(place.workspace))
    return tmp_path / "claude/projects" / name


def chats_of_gemini(place, tmp_path):
    chats = tmp_path / "home-of-gemini/.gemini/tmp/shop/chats"
    chats.mkdir(parents=True)
    (chats.parent / ".project_root").write_text(str(place.workspace))
    return chats


def claude_said(place, text):
    return {"type": "user", "cwd": str(place.workspace), "message": {"role": "user", "content": text}}


def gemini_said(place, text):
    return {"type": "user", "id": "a", "content": text}


@pytest.fixture(autouse=True)
def homes(tmp_path, monkeypatch):
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    monkeypatch.setenv("GEMINI_CLI_HOME", str(tmp_path / "home-of-gemini"))


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """A program that deletes its old sessions, in the workspace of a place."""

    folder: Path
    name: str
    said: Callable[[Place, str], dict[str, object]]

    def path(self, name):
        return f"sessions/{self.name}/session-{name}.jsonl"

    def session(self, place, name, text, *, age_days):
        return session(self.folder / f"session-{name}.jsonl", self.said(place, text), age_days=age_days)


@pytest.fixture(params=["claude-code", "gemini"])
def client(request, place, tmp_path):
    if request.param == "gemini":
        return Client(folder=chats_of_gemini(place, tmp_path), name="gemini", said=gemini_said)
    return Client(folder=projects_of_claude(place, tmp_path), name="claude-code", said=claude_said)


def session(file, record, *, age_days):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(record) + "\n")
    changed = time.time() - age_days * DAY_S
    os.utime(file, (changed, changed))
    return file


@pytest.mark.parametrize("asked", ["path", "query"])
def test_what_its_program_cleaned_up_stays_until_it_is_forgotten(place, client, asked):
    old = client.session(place, "old", "the marmalade recipe", age_days=31)
    place.index()
    content = old.read_bytes(), old.stat()

    old.unlink()
    report = place.call("index", "--json").json[0]

    assert paths(place.search("marmalade")) == [client.path("old")]
    assert report["files"]["removed"] == 0
    assert place.call("index", "--accept-removals").status == 0
    # It may stay for years, and is no finding.
    answer = place.search("marmalade")
    assert (paths(answer), answer.findings) == ([client.path("old")], ())
    assert place.call("get", f"{client.path('old')}#L1").stdout == "User: the marmalade recipe\n"

    old.write_bytes(content[0])
    os.utime(old, ns=(content[1].st_mtime_ns, content[1].st_mtime_ns))
    place.index()
    assert paths(place.search("marmalade")) == [client.path("old")]
    old.unlink()
    place.index()

    target = [client.path("old")] if asked == "path" else ["--query", "marmalade"]
    forgotten = place.call("forget", *target, "--yes")
    assert forgotten.status == 0, forgotten.stderr
    assert paths(place.search("marmalade")) == []
    assert b"marmalade" not in place.index_path.read_bytes()


def test_what_its_program_cleaned_up_is_taken_over_from_an_index_of_an_older_release(place, client):
    old = client.session(place, "old", "the marmalade recipe", age_days=31)
    new = client.session(place, "new", "the quince jelly", age_days=1)
    place.index()
    old.unlink()
    place.execute("PRAGMA user_version = 18")

    ran = place.call("index")

    assert ran.status == 0, ran.stderr
    assert paths(place.search("marmalade")) == [client.path("old")]
    assert paths(place.search("quince")) == [client.path("new")] and new.exists()


def test_switching_transcripts_off_removes_them_however_old(place, client):
    file = client.session(place, "old", "the marmalade recipe", age_days=31)
    place.index()
    file.unlink()
    place.configure(transcripts=["codex"])

    place.index()

    assert paths(place.search("marmalade")) == []
