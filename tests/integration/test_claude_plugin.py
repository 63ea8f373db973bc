"""The plugin for Claude Code: the documented form, and every command in it as Claude Code runs it.

The form is that of https://code.claude.com/docs/en/plugins/manifest-reference and /hooks, November 2026.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from datetime import date

import anyio
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from memline.producers.cli.root import COMMANDS
from tests.support.process import ROOT, TIMEOUT_S

PLUGIN = ROOT / "deploy" / "claude-code"
MEMLINE = ["-c", "from memline.producers.start import main; main()"]
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def read(path):
    return json.loads((ROOT / path).read_text("utf-8"))


def hooks(event):
    """The commands that Claude Code runs at an event."""
    groups = read("deploy/claude-code/hooks/hooks.json")["hooks"][event]
    return [hook for group in groups for hook in group["hooks"]]


@pytest.fixture
def notes(tmp_path, home):
    """A project whose notes have an index, in which Claude Code works."""
    notes = tmp_path / "project"
    (notes / "memory").mkdir(parents=True)
    (notes / "MEMORY.md").write_text("# Facts\n\nInvoices are whole cents.\n")
    (notes / "memory" / f"{date.today()}.md").write_text("The deploy is on Monday.\n")
    assert run("memline init --yes", "", notes).returncode == 0
    return notes


def run(command, event, cwd, **env):
    """Run the command of a hook as Claude Code does: the event on standard input."""
    program, *arguments = shlex.split(command)
    assert program == "memline"
    return subprocess.run(
        [sys.executable, *MEMLINE, *arguments],
        input=event if isinstance(event, str) else json.dumps(event),
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        timeout=TIMEOUT_S,
        check=False,
    )


def event(name, cwd, **more):
    """What Claude Code says of an event."""
    return {
        "session_id": "0f9e", "transcript_path": "/nowhere/0f9e.jsonl", "cwd": str(cwd),
        "permission_mode": "default", "hook_event_name": name, **more,
    }  # fmt: skip


def test_the_manifests_have_the_documented_form():
    marketplace, plugin = (
        read(".claude-plugin/marketplace.json"), read("deploy/claude-code/.claude-plugin/plugin.json")
    )  # fmt: skip

    assert marketplace.keys() <= {"name", "owner", "plugins", "description", "metadata"}
    (entry,) = marketplace["plugins"]
    assert NAME.fullmatch(marketplace["name"]) and marketplace["owner"]["name"]
    # Relative to the root of the repository.
    assert entry["source"].startswith("./") and (ROOT / entry["source"]) == PLUGIN
    assert plugin.keys() <= {"name", "version", "description", "author", "license", "keywords"}
    assert NAME.fullmatch(plugin["name"]) and plugin["name"] == entry["name"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert plugin["version"] == project["version"]
    # Only the manifest is in the folder of the manifest.
    assert os.listdir(PLUGIN / ".claude-plugin") == ["plugin.json"]


def test_the_skill_says_when_it_is_used():
    (file,) = PLUGIN.glob("skills/*/SKILL.md")
    _, head, body = file.read_text("utf-8").split("---\n", 2)
    name, description = re.fullmatch(r"name: (.*)\ndescription: (.*)\n", head, re.DOTALL).groups()  # type: ignore[union-attr]

    assert NAME.fullmatch(name) and name == file.parent.name and len(name) <= 64
    assert len(description) <= 1024 and "Use before answering" in description and "\n" not in description
    for tool in ("memory_search", "memory_get", "memory_append", "memory_status"):
        assert tool in body


def test_hooks_have_the_documented_form_and_commands_that_there_are():
    groups = read("deploy/claude-code/hooks/hooks.json")["hooks"]

    assert groups.keys() == {"SessionStart", "PreCompact"}
    for name, listed in groups.items():
        for group in listed:
            assert group.keys() <= {"matcher", "hooks"}
            matched = set(filter(None, group.get("matcher", "").split("|")))
            assert matched <= {"startup", "resume", "clear", "compact"} and (
                name == "SessionStart" or not matched
            )
        for hook in hooks(name):
            assert hook.keys() <= {"type", "command", "timeout", "async"} and hook["type"] == "command"
            program, command, *_ = shlex.split(hook["command"])
            assert program == "memline" and command in COMMANDS and hook["timeout"] > 0


def test_a_session_starts_with_the_context_of_its_folder(notes):
    (hook,) = hooks("SessionStart")
    (notes / "src").mkdir()

    ran = run(hook["command"], event("SessionStart", notes / "src", source="startup"), notes.parent)

    assert (ran.returncode, ran.stderr) == (0, "")
    (output,) = json.loads(ran.stdout).values()
    assert json.loads(ran.stdout).keys() == {"hookSpecificOutput"}
    assert output.keys() == {"hookEventName", "additionalContext"}
    assert output["hookEventName"] == "SessionStart"
    assert "The deploy is on Monday." in output["additionalContext"]
    assert "Invoices are whole cents." in output["additionalContext"]


def test_a_context_that_is_too_long_for_a_hook_is_cut(notes):
    (notes / "MEMORY.md").write_text("A fact.\n" * 10_000)

    ran = run("memline hook", event("SessionStart", notes, source="clear"), notes)

    assert 5_000 < len(json.loads(ran.stdout)["hookSpecificOutput"]["additionalContext"]) < 10_000


@pytest.mark.parametrize("name", ["SessionStart", "PreCompact", "Stop"])
def test_a_folder_without_notes_and_an_event_that_is_not_answered_are_quiet(tmp_path, home, name):
    ran = run("memline hook", event(name, tmp_path), tmp_path)

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_a_problem_is_told_to_the_user_and_stops_no_session(notes):
    (notes / "c.json5").write_text("{")
    ran = run("memline hook", event("SessionStart", notes), notes, MEMLINE_CONFIG=str(notes / "c.json5"))

    assert ran.returncode == 0 and json.loads(ran.stdout).keys() == {"systemMessage"}
    assert "is not closed" in json.loads(ran.stdout)["systemMessage"]


@pytest.mark.parametrize("given", ["", "no JSON", "[]", "7"])
def test_what_is_no_event_is_an_error(notes, given):
    ran = run("memline hook", given, notes)

    # Not 2: that would block the compaction.
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "no event as JSON" in ran.stderr


KEY = "sk-proj-abcdefghijklmnop1234567890"


@pytest.fixture
def transcript(tmp_path):
    """A transcript of Claude Code with a compaction in it."""
    record = {"sessionId": "0f9e", "timestamp": "2026-02-10T10:00:00.000Z"}

    def said(role, content, **more):
        return {**record, "type": role, "message": {"role": role, "content": content}, **more}

    text = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Oslo, in May. "}]
    result = [{"type": "tool_result", "content": "the whole file"}]
    lines = [
        said("user", "What was before."),
        {**record, "type": "system", "subtype": "compact_boundary", "content": "Conversation compacted"},
        said("user", "This session is being continued.", isCompactSummary=True),
        said("user", f"Where does Ada move? My key is {KEY}"),
        said("assistant", text),
        said("user", result),
        said("user", "A note of the program.", isMeta=True),
        said("assistant", "Words of a subagent.", isSidechain=True),
        {"type": "summary", "summary": "x"},
    ]
    file = tmp_path / "0f9e.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"half')
    return file


def configured(notes, **flush):
    compaction = {"compaction": {"memoryFlush": flush}, "userTimezone": "UTC"}
    (notes / "c.json5").write_text(json.dumps({"agents": {"defaults": compaction}}))
    return {"MEMLINE_CONFIG": str(notes / "c.json5"), "OPENAI_API_KEY": ""}


def test_a_session_is_written_down_before_it_is_compacted(notes, transcript, chat):
    (hook,) = hooks("PreCompact")
    env = configured(notes, model="m", baseUrl=chat.url)
    happened = event(
        "PreCompact", notes, transcript_path=str(transcript), trigger="auto", custom_instructions=""
    )

    ran = run(hook["command"], happened, notes, **env)

    assert (ran.returncode, ran.stderr) == (0, "")
    assert re.search(r"written down in memory/.*\.md#L", json.loads(ran.stdout)["systemMessage"])
    assert "- Ada moves to Oslo in May" in "".join(
        file.read_text() for file in (notes / "memory").glob("*.md")
    )
    (request,) = chat.requests
    sent = json.dumps(request)
    assert "Where does Ada move?" in sent and "Oslo, in May." in sent
    for left_out in ("was before", "continued", "whole file", "of the program", "subagent", "hm", KEY):
        assert left_out not in sent
    # The same again is nothing new, and a model that fails stops nothing.
    assert run(hook["command"], happened, notes, **env).stdout == ""
    chat.status, chat.answer = 401, b"{}"
    failed = run(hook["command"], happened, notes, **env)
    assert failed.returncode == 0 and "memory flush failed" in json.loads(failed.stdout)["systemMessage"]


def test_without_a_model_nothing_is_sent_and_a_transcript_that_is_gone_is_nothing(notes, transcript, chat):
    assert (
        run("memline hook", event("PreCompact", notes, transcript_path=str(transcript)), notes).stdout == ""
    )
    env = configured(notes, model="m", baseUrl=chat.url)

    ran = run("memline hook", event("PreCompact", notes), notes, **env)

    assert (ran.returncode, ran.stdout, chat.requests) == (0, "", [])


def test_the_server_of_the_plugin_starts_and_answers(notes):
    (entry,) = read("deploy/claude-code/.mcp.json")["mcpServers"].values()
    assert entry.keys() == {"command", "args"} and entry["command"] == "memline"

    async def talk():
        parameters = StdioServerParameters(
            command=sys.executable,
            args=[*MEMLINE, *entry["args"]],
            cwd=notes,
            env={"PYTHONPATH": str(ROOT), "HOME": os.environ["HOME"]},
        )
        with anyio.fail_after(TIMEOUT_S):
            async with Client(stdio_client(parameters)) as client:
                assert "memory_search" in {tool.name for tool in (await client.list_tools()).tools}

    anyio.run(talk)
