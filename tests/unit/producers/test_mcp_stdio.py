from __future__ import annotations

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from producers import mcp_stdio
from producers.mcp_stdio import Unanswered


def message(said: JSONRPCMessage) -> SessionMessage:
    return SessionMessage(said)


def waits(*heard: JSONRPCMessage, answered: tuple[int, ...] = ()) -> bool:
    """Whether a client that said this waits for something still."""

    async def run() -> bool:
        unanswered = Unanswered()
        for said in heard:
            unanswered.heard(message(said))
        for number in answered:
            unanswered.answered(message(JSONRPCResponse(jsonrpc="2.0", id=number, result={})))
        with anyio.move_on_after(0) as over:
            await unanswered.wait()
        return over.cancelled_caught

    return anyio.run(run)


ASKED = JSONRPCRequest(jsonrpc="2.0", id=1, method="tools/call")
CANCELLED = JSONRPCNotification(
    jsonrpc="2.0", method="notifications/cancelled", params={"requestId": 1, "reason": "late"}
)


def test_a_client_waits_for_what_it_asked_until_it_is_answered() -> None:
    assert waits(ASKED)
    assert not waits(ASKED, answered=(1,))
    assert not waits()


def test_what_a_client_cancelled_is_not_waited_for() -> None:
    assert not waits(ASKED, CANCELLED)


def test_what_is_never_answered_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        unanswered = Unanswered()
        unanswered.heard(message(ASKED))
        await unanswered.wait()

    monkeypatch.setattr(mcp_stdio, "PATIENCE_S", 0.01)

    anyio.run(run)
