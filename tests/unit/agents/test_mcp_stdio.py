import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from memline.producers.agents import mcp_stdio
from memline.producers.agents.mcp_stdio import InFlightRequests
from memline.shared.errors import MemlineError


def message(body: JSONRPCMessage) -> SessionMessage:
    return SessionMessage(body)


def waits(*received: JSONRPCMessage, answered: tuple[int, ...] = ()) -> bool:
    """Whether a client that sent these messages still waits for an answer."""

    async def run() -> bool:
        requests = InFlightRequests()
        for body in received:
            requests.received(message(body))
        for number in answered:
            requests.sent(message(JSONRPCResponse(jsonrpc="2.0", id=number, result={})))
        with anyio.move_on_after(0) as over:
            await requests.wait()
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


def test_a_cancelled_request_is_not_waited_for() -> None:
    assert not waits(ASKED, CANCELLED)


def test_waiting_for_an_answer_that_never_comes_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        requests = InFlightRequests()
        requests.received(message(ASKED))
        await requests.wait()

    monkeypatch.setattr(mcp_stdio, "DRAIN_TIMEOUT_S", 0.01)

    anyio.run(run)


def test_an_sdk_that_is_built_otherwise_is_refused_with_the_versions_that_work() -> None:
    with pytest.raises(MemlineError, match="mcp is not supported") as caught:
        mcp_stdio._lowlevel(object())  # type: ignore[arg-type]

    assert "mcp>=" in caught.value.hint
