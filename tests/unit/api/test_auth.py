"""Who is answered at all: names in Host, origins of pages, tokens."""

import pytest
from starlette.datastructures import Headers

from memline.producers.api.auth import MAX_CLIENTS, MAX_WRONG_TOKENS, Access, Authenticator, OriginCheck
from memline.shared.config.installation import Serve

HERE, ANYWHERE = Serve(), Serve(host="0.0.0.0", token="a-token-of-tests")


@pytest.mark.parametrize(
    ("serve", "status", "headers"),
    [
        *((HERE, 0, [("host", host)]) for host in ("localhost", "127.0.0.1:7843", "[::1]", "LocalHost:1")),
        *(
            (HERE, 421, [("host", host)])
            for host in (
                *("evil.example", "127.0.0.2", "localhost.evil.example", "a b", "[::", "", "locálhost"),
                *("me@localhost", "localhost#evil", "localhost/evil", "localhost:x", "localhost:1:2"),
            )
        ),
        (ANYWHERE, 0, [("host", "192.168.1.5:7843")]),
        (ANYWHERE, 421, [("host", "evil.example")]),
        # HTTP/1.0, unless a page asks.
        (HERE, 0, []),
        (HERE, 403, [("origin", "http://evil.example")]),
        (HERE, 403, [("origin", "http://")]),
        (HERE, 0, [("host", "localhost:1"), ("origin", "https://localhost:1")]),
        *(
            (HERE, 403, [("host", "localhost:1"), ("origin", origin)])
            for origin in ("http://localhost:3000", "http://localhost", "null", "https://x/://localhost:1")
        ),
        (HERE, 403, [("host", "localhost"), ("origin", "http://localhost"), ("origin", "http://x")]),
        (HERE, 0, [("host", "localhost"), ("sec-fetch-site", "same-origin")]),
        (HERE, 403, [("host", "localhost"), ("sec-fetch-site", "same-site")]),
    ],
)
def test_only_programs_and_pages_of_this_server_are_answered(serve, status, headers):
    raw = [(name.encode(), text.encode("latin-1")) for name, text in headers]
    answer = OriginCheck(serve).check(Headers(raw=raw))

    assert (answer.status_code if answer else 0) == status


def test_an_empty_token_never_matches_one_that_is_not_set():
    made = Authenticator(Serve(tokens={"main": "token-for-main", "work": ""}))

    assert made.admit("", "x") == (None, 0) and made.admit("token-for-main", "x") == (Access("main"), 0)


def test_an_address_waits_after_wrong_tokens_and_one_that_is_silent_is_forgotten():
    made = Authenticator(ANYWHERE)

    waits = [made.admit("wrong-token", "a")[1] for _ in range(MAX_WRONG_TOKENS + 1)]

    assert not any(waits[:-1]) and 59 < waits[-1] <= 60
    access, wait_s = made.admit("a-token-of-tests", "a")
    assert access is not None and wait_s == made.admit("wrong-token", "b")[1] == 0
    for number in range(MAX_CLIENTS):
        made.admit("wrong-token", str(number))
    assert made.admit("wrong-token", "a") == (None, 0)
