"""The real OpenClaw, where `sh scripts/openclaw.sh` installed it: `OPENCLAW_PROGRAMS` names its folder."""

import json
import os
import subprocess
from pathlib import Path

import pytest

#: Has `early/openclaw` and `newest/openclaw`; empty when they are not installed.
PROGRAMS = os.environ.get("OPENCLAW_PROGRAMS", "")

needs_openclaw = pytest.mark.skipif(
    not PROGRAMS, reason="sh scripts/openclaw.sh installs OpenClaw, and OPENCLAW_PROGRAMS names its folder"
)


def chat_models(url):
    """The part of a configuration that has the agent talk to a chat server of the tests."""
    model = {"id": "chat", "name": "Chat", "reasoning": False, "input": ["text"], "contextWindow": 128_000}
    costs = {"cost": dict.fromkeys(("input", "output", "cacheRead", "cacheWrite"), 0), "maxTokens": 4096}
    stub = {"baseUrl": url, "apiKey": "sk-chat", "api": "openai-completions", "models": [{**model, **costs}]}
    defaults = {"model": {"primary": "stub/chat"}}
    return {"models": {"providers": {"stub": stub}}, "agents": {"defaults": defaults}}


def streamed(text, *, call=None):
    """An answer of a chat model as a stream of events: a text, or the call of a tool."""
    delta = {"role": "assistant", "content": text}
    if call:
        asked = {"index": 0, "id": "call_1", "type": "function", "function": call}
        delta = {"role": "assistant", "tool_calls": [asked]}
    pieces = (delta, None), ({}, "tool_calls" if call else "stop")
    events = [
        {"id": "1", "object": "chat.completion.chunk", "model": "chat", "choices": [choice]}
        for choice in ({"index": 0, "delta": delta, "finish_reason": end} for delta, end in pieces)
    ]
    return b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events) + b"data: [DONE]\n\n"


def talk(layout, home, session, message):
    """Have the agent `main` of a release (`early`, `newest`) answer a message."""
    subprocess.run(
        [
            *(Path(PROGRAMS, layout, "openclaw"), "agent", "--local", "--agent", "main"),
            *("--session-id", session, "--message", message),
        ],
        env={"HOME": str(home), "PATH": "/usr/bin:/bin"},
        cwd=home,
        check=True,
        capture_output=True,
        timeout=300,
    )
