"""Who is answered at all: names in Host, origins of pages, addresses that are served."""

from __future__ import annotations

import anyio
import pytest
from starlette.datastructures import Headers
from starlette.types import Message

from producers.http.access import Doorkeeper
from producers.http.guard import MAX_WRONG_TOKENS, Guard
from producers.http.server import is_loopback, refuse_open_door
from shared.config.faces import Serve
from shared.errors import ConfigError


async def nothing(*_: object) -> None: ...


def asked(guard: Guard, address: str, token: str, *messages: Message) -> int:
    """The status of a POST from this address; 0 when it got through."""
    sent: list[Message] = []
    waiting = list(messages or ({"type": "http.request"},))

    async def receive() -> Message:
        return waiting.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/search",
        "client": (address, 1),
        "headers": [(b"host", b"localhost"), (b"authorization", f"Bearer {token}".encode())],
    }
    anyio.run(guard, scope, receive, send)
    return next((message["status"] for message in sent if "status" in message), 0)


def test_who_guesses_tokens_from_afar_has_to_wait_even_with_the_right_one() -> None:
    serve = Serve(token="a-token-of-tests")
    guard = Guard(nothing, serve=serve, doorkeeper=Doorkeeper(serve, default_agent="main"))

    answers = [asked(guard, "10.0.0.9", "wrong-token") for _ in range(MAX_WRONG_TOKENS + 1)]

    assert answers == [401] * MAX_WRONG_TOKENS + [429]
    assert asked(guard, "10.0.0.9", serve.token) == 429
    assert asked(guard, "10.0.0.8", serve.token) == 0


def test_a_request_that_ends_in_the_middle_is_not_acted_upon() -> None:
    guard = Guard(nothing, serve=Serve(), doorkeeper=Doorkeeper(Serve(), default_agent="main"))
    half = {"type": "http.request", "body": b'{"text": "x"}', "more_body": True}

    assert asked(guard, "127.0.0.1", "", half, {"type": "http.disconnect"}) == 400
    assert asked(guard, "127.0.0.1", "", half, {"type": "http.request", "body": b" "}) == 0


def refused(serve: Serve, **headers: str) -> int:
    """The status that a request with these headers is refused with; 0 when it is not."""

    guard = Guard(nothing, serve=serve, doorkeeper=Doorkeeper(serve, default_agent="main"))
    answer = guard._check_origin(Headers({name.replace("_", "-"): text for name, text in headers.items()}))
    return answer.status_code if answer else 0


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:7843", "[::1]", "LocalHost:1"])
def test_loopback_is_answered_by_its_names(host: str) -> None:
    assert refused(Serve(), host=host) == 0


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "127.0.0.2", "10.0.0.1", "localhost.evil.example", "a b", "[::", ""),
        *("me@localhost", "localhost#evil", "localhost/evil", "localhost:x", "localhost:1:2", "locálhost"),
    ],
)
def test_other_names_are_not_answered_on_loopback(host: str) -> None:
    assert refused(Serve(), host=host) == 421


def test_a_name_that_is_allowed_is_answered() -> None:
    serve = Serve(allowed_hosts=("Memory.Example",))

    assert refused(serve, host="memory.example:443") == 0
    assert refused(serve, host="other.example") == 421


def test_on_all_addresses_an_address_is_a_name_and_a_foreign_name_is_not() -> None:
    serve = Serve(host="0.0.0.0", token="a-token-of-tests")

    assert refused(serve, host="192.168.1.5:7843") == 0
    assert refused(serve, host="evil.example") == 421


def test_with_names_given_only_these_are_answered_on_all_addresses() -> None:
    serve = Serve(host="0.0.0.0", token="a-token-of-tests", allowed_hosts=("memory.example",))

    assert refused(serve, host="192.168.1.5") == 421
    assert refused(serve, host="memory.example") == 0


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:7843", 0),
        ("https://localhost:7843", 0),
        ("http://localhost:3000", 403),
        ("http://localhost", 403),
        ("null", 403),
        ("https://notes.example", 0),
        ("https://notes.example.evil", 403),
        ("https://evil.example/://localhost:7843", 403),
    ],
)
def test_pages_are_answered_by_their_origin(origin: str, status: int) -> None:
    serve = Serve(allowed_origins=("https://notes.example",))

    assert refused(serve, host="localhost:7843", origin=origin) == status


def test_two_origins_are_none() -> None:
    guard = Guard(nothing, serve=Serve(), doorkeeper=Doorkeeper(Serve(), default_agent="main"))
    own = (b"origin", b"http://localhost")

    answers = [
        guard._check_origin(Headers(raw=[(b"host", b"localhost"), *origins]))
        for origins in ([own], [own, (b"origin", b"http://evil.example")])
    ]

    assert [answer.status_code if answer else 0 for answer in answers] == [0, 403]


@pytest.mark.parametrize(
    ("site", "status"), [("same-origin", 0), ("none", 0), ("cross-site", 403), ("same-site", 403)]
)
def test_a_request_without_an_origin_is_judged_by_what_the_browser_says(site: str, status: int) -> None:
    assert refused(Serve(), host="localhost", sec_fetch_site=site) == status


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False)],
)
def test_loopback_is_known_by_its_address(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
    if not loopback:
        with pytest.raises(ConfigError, match="a token is needed"):
            refuse_open_door(Serve(host=host))
        refuse_open_door(Serve(host=host, tokens={"main": "a-token-of-tests"}))
