"""Sessions that their program deleted stay until they are forgotten."""

import json
import os
import time

import pytest

from tests.support.workspace import paths

OLD, NEW = "sessions/claude-code/session-old.jsonl", "sessions/claude-code/session-new.jsonl"

pytestmark = pytest.mark.place(
    files={"MEMORY.md": "# Notes\n\nWe chose Redis.\n"},
    provider="none",
    sources=["memory", "sessions"],
    experimental={"sessionMemory": True},
    transcripts=["claude-code"],
)


@pytest.fixture
def say(place, tmp_path, monkeypatch):
    """Write a session of Claude Code, some days ago; return its file."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    name = "".join(each if each.isalnum() else "-" for each in str(place.workspace))

    def say(path, text, *, days):
        file = tmp_path / "claude/projects" / name / path.rpartition("/")[2]
        file.parent.mkdir(parents=True, exist_ok=True)
        message = {"role": "user", "content": text}
        file.write_text(json.dumps({"type": "user", "cwd": str(place.workspace), "message": message}) + "\n")
        changed = time.time() - days * 86_400
        os.utime(file, (changed, changed))
        return file

    return say


@pytest.mark.parametrize("target", [[OLD], ["--query", "marmalade"]])
def test_what_its_program_cleaned_up_stays_until_it_is_forgotten(place, say, target):
    old = say(OLD, "the marmalade recipe", days=31)
    place.index()
    content = old.read_bytes(), old.stat()

    old.unlink()
    report = place.call("index", "--json").json[0]

    assert report["files"]["removed"] == 0
    assert place.call("index", "--accept-removals").status == 0
    # It may stay for years, and is no finding.
    answer = place.search("marmalade")
    assert (paths(answer), answer.findings) == ([OLD], ())
    assert place.call("get", f"{OLD}#L1").stdout == "User: the marmalade recipe\n"

    old.write_bytes(content[0])
    os.utime(old, ns=(content[1].st_mtime_ns, content[1].st_mtime_ns))
    place.index()
    assert paths(place.search("marmalade")) == [OLD]
    old.unlink()
    place.index()

    forgotten = place.call("forget", *target, "--yes")
    assert forgotten.status == 0, forgotten.stderr
    assert paths(place.search("marmalade")) == []
    assert b"marmalade" not in place.index_path.read_bytes()


def test_what_its_program_cleaned_up_is_taken_over_from_an_index_of_an_older_release(place, say):
    old = say(OLD, "the marmalade recipe", days=31)
    say(NEW, "the quince jelly", days=1)
    place.index()
    old.unlink()
    place.execute("PRAGMA user_version = 18")

    ran = place.call("index")

    assert ran.status == 0, ran.stderr
    assert paths(place.search("marmalade")) == [OLD] and paths(place.search("quince")) == [NEW]
