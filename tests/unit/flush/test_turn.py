from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from shared.config.schema import AgentSettings, Compaction, MemoryFlush, ProviderEntry, Sessions
from shared.errors import ProviderError, ProviderStop
from shared.flush import turn

KEYS = {"openai": "sk-of-openai", "mistral": "of-mistral"}
PROXY = ProviderEntry(base_url="http://proxy:4000/v1", api_key="of-proxy", headers={"X-Team": "a"})


def settings(providers: dict[str, ProviderEntry] | None = None, **flush: Any) -> AgentSettings:
    return AgentSettings(
        agent="main",
        workspace=Path("/ws"),
        index_path=Path("/i"),
        state_dir=Path("/s"),
        providers=providers or {},
        environment_keys=KEYS,
        sessions=Sessions(compaction=Compaction(memory_flush=MemoryFlush(**flush))),
    )


@pytest.mark.parametrize(
    ("model", "more", "expected"),
    [
        ("gpt-5-mini", {}, ("https://api.openai.com/v1", "gpt-5-mini", "sk-of-openai")),
        ("openai/gpt-5-mini", {}, ("https://api.openai.com/v1", "gpt-5-mini", "sk-of-openai")),
        ("mistral/small", {}, ("https://api.mistral.ai/v1", "small", "of-mistral")),
        ("ollama/qwen3:8b", {}, ("http://127.0.0.1:11434/v1", "qwen3:8b", "")),
        ("proxy/team/model", {}, ("http://proxy:4000/v1", "team/model", "of-proxy")),
        # An address of one's own takes the name as it stands, and no key of anybody else.
        ("proxy/m", {"base_url": "http://own/v1"}, ("http://own/v1", "proxy/m", "")),
    ],
)
def test_a_model_is_asked_where_it_is_with_the_key_of_that_place(
    model: str, more: dict[str, Any], expected: tuple[str, str, str]
) -> None:
    endpoint, name = turn.endpoint_of(settings({"proxy": PROXY}, model=model, **more))

    assert (endpoint.base_url, name, endpoint.key) == expected
    assert ("x-team" in endpoint.headers) is (endpoint.base_url == "http://proxy:4000/v1")


def test_openclaws_own_address_of_ollama_gets_the_path_of_the_protocol() -> None:
    bare = ProviderEntry(base_url="http://gpu:11434")

    endpoint, _ = turn.endpoint_of(settings({"ollama": bare}, model="ollama/qwen3:8b"))

    assert endpoint.base_url == "http://gpu:11434/v1"


def test_openais_key_goes_to_no_proxy() -> None:
    proxy = ProviderEntry(base_url="http://proxy:4000/v1")

    endpoint, _ = turn.endpoint_of(settings({"openai": proxy}, model="openai/gpt-5-mini"))

    assert (endpoint.base_url, endpoint.key) == ("http://proxy:4000/v1", "")


def test_a_conversation_is_sent_nowhere_by_a_guess() -> None:
    with pytest.raises(ProviderStop) as caught:
        turn.endpoint_of(settings(model="anthropic/claude-opus"))

    assert "models.providers.anthropic has no address" in caught.value.message
    assert "memoryFlush.baseUrl" in caught.value.hint


@pytest.mark.parametrize("beginning", [b"HTTP/1.1 200 OK\r\nx-slow: ", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_a_server_that_trickles_is_given_up(beginning: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn, "_GRACE_S", 0.1)
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def trickle() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(beginning)
                try:
                    while not ended.wait(0.05):
                        connection.sendall(b"a")
                except OSError:
                    ended.set()

        server = threading.Thread(target=trickle)
        server.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"

        with pytest.raises(ProviderError, match="chat memory flush failed: no answer within 1 s"):
            turn.take(
                settings(model="m", base_url=url, timeout_seconds=1),
                system="s",
                conversation="c",
                request="r",
            )

        # The connection is closed, or the server would go on for ever.
        server.join(10)
        assert not server.is_alive()
