import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from memline.shared.config.schema import AgentSettings, Compaction, MemoryFlush, ProviderEntry, Sessions
from memline.shared.errors import ProviderError, ProviderStop
from memline.shared.flush import flush_request
from tests.support.workspace import until

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
        # A configured address takes the name unchanged, and no other place's key.
        ("proxy/m", {"base_url": "http://own/v1"}, ("http://own/v1", "proxy/m", "")),
    ],
)
def test_a_model_is_asked_where_it_is_with_the_key_of_that_place(
    model: str, more: dict[str, Any], expected: tuple[str, str, str]
) -> None:
    endpoint, name = flush_request.endpoint_of(settings({"proxy": PROXY}, model=model, **more))

    assert (endpoint.base_url, name, endpoint.key) == expected
    assert ("x-team" in endpoint.headers) is (endpoint.base_url == "http://proxy:4000/v1")


def test_openclaws_own_address_of_ollama_gets_the_path_of_the_protocol() -> None:
    bare = ProviderEntry(base_url="http://gpu:11434")

    endpoint, _ = flush_request.endpoint_of(settings({"ollama": bare}, model="ollama/qwen3:8b"))

    assert endpoint.base_url == "http://gpu:11434/v1"


def test_openais_key_is_not_sent_to_a_proxy() -> None:
    proxy = ProviderEntry(base_url="http://proxy:4000/v1")

    endpoint, _ = flush_request.endpoint_of(settings({"openai": proxy}, model="openai/gpt-5-mini"))

    assert (endpoint.base_url, endpoint.key) == ("http://proxy:4000/v1", "")


def test_a_conversation_is_sent_nowhere_by_a_guess() -> None:
    with pytest.raises(ProviderStop) as caught:
        flush_request.endpoint_of(settings(model="anthropic/claude-opus"))

    assert "models.providers.anthropic has no address" in caught.value.message
    assert "memoryFlush.baseUrl" in caught.value.hint


def test_a_server_that_trickles_is_given_up() -> None:
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def trickle() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                try:
                    while not ended.wait(0.05):
                        connection.sendall(b"a")
                except OSError:
                    ended.set()

        server = threading.Thread(target=trickle)
        server.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"

        with pytest.raises(ProviderError, match="chat memory flush failed: no answer within 1 s"):
            flush_request.ask(settings(model="m", base_url=url, timeout_seconds=1), "s", "u")

        # The connection is closed, or the server would go on for ever.
        server.join(120)
        assert not server.is_alive()


def run(script: str, text: str = "hello", *, timeout_s: float = 120.0) -> str:
    command = [sys.executable, "-c", script]
    return flush_request.run_program(command, text, timeout_s=timeout_s, max_bytes=1_000_000)


def test_a_program_that_does_not_read_what_it_is_given_may_answer() -> None:
    assert run("print('- fact')", "x" * 1_000_000) == "- fact\n"


def test_a_program_that_answers_while_it_reads_is_not_blocked() -> None:
    script = "import sys; [print(line, end='') for line in sys.stdin]"

    assert run(script, "line\n" * 15_000) == "line\n" * 15_000


def test_an_endless_answer_is_refused() -> None:
    with pytest.raises(ProviderError, match="more than 1000000 bytes"):
        run("while True: print('x' * 1_000)")


def test_an_error_quotes_the_end_of_the_standard_error() -> None:
    script = "import sys; sys.stderr.write('noise ' * 100_000 + 'key=sk-abcdefgh12345678 end'); sys.exit(3)"

    with pytest.raises(ProviderError, match="ended with 3: ") as caught:
        run(script)

    assert "abcdefgh" not in caught.value.message and len(caught.value.message) < 500


def test_what_a_program_started_ends_with_it() -> None:
    # The child holds the output open, which delays nothing.
    script = "import subprocess; print(subprocess.Popen(['sleep', '60']).pid)"

    child = Path("/proc") / run(script).strip() / "stat"

    # Dead, even if nobody has collected it yet.
    until(lambda: not child.exists() or ") Z " in child.read_text("utf-8"))


def test_a_program_without_an_answer_is_given_up() -> None:
    with pytest.raises(ProviderError, match=r"no answer within 0\.5 s"):
        run("import time; time.sleep(60)", timeout_s=0.5)


@pytest.mark.parametrize("name", ["", "/no/such/program", "a\0b"])
def test_a_program_that_cannot_be_started_is_reported(name: str) -> None:
    with pytest.raises(ProviderError, match="cannot be started"):
        flush_request.run_program([name], "", timeout_s=1, max_bytes=1)
