"""Who is answered at all: names in Host, origins of pages, addresses that are served."""

import pytest
from starlette.datastructures import Headers

from memline.producers.api.auth import (
    MAX_CLIENTS,
    MAX_WRONG_TOKENS,
    Authenticator,
    OriginCheck,
)
from memline.shared.config.installation import Serve


async def nothing(*_): ...


def refused(serve, **headers):
    """The status that a request with these headers is refused with; 0 when it is not."""

    check = OriginCheck(nothing, serve=serve)
    answer = check.check(Headers({name.replace("_", "-"): text for name, text in headers.items()}))
    return answer.status_code if answer else 0


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:7843", "[::1]", "LocalHost:1"])
def test_loopback_is_answered_by_its_names(host):
    assert refused(Serve(), host=host) == 0


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "127.0.0.2", "10.0.0.1", "localhost.evil.example", "a b", "[::", ""),
        *("me@localhost", "localhost#evil", "localhost/evil", "localhost:x", "localhost:1:2", "locálhost"),
    ],
)
def test_other_names_are_not_answered_on_loopback(host):
    assert refused(Serve(), host=host) == 421


def test_a_request_of_http_1_0_without_a_host_is_answered_unless_a_page_asks():
    assert refused(Serve()) == 0
    assert refused(Serve(), origin="http://evil.example") == refused(Serve(), origin="http://") == 403


def test_on_all_addresses_an_address_is_a_name_and_a_foreign_name_is_not():
    serve = Serve(host="0.0.0.0", token="a-token-of-tests")

    assert refused(serve, host="192.168.1.5:7843") == 0
    assert refused(serve, host="evil.example") == 421


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:7843", 0),
        ("https://localhost:7843", 0),
        ("http://localhost:3000", 403),
        ("http://localhost", 403),
        ("null", 403),
        ("https://notes.example", 403),
        ("https://evil.example/://localhost:7843", 403),
    ],
)
def test_pages_are_answered_by_their_origin(origin, status):
    assert refused(Serve(), host="localhost:7843", origin=origin) == status


def test_two_origin_headers_are_refused():
    check = OriginCheck(nothing, serve=Serve())
    own = (b"origin", b"http://localhost")

    answers = [
        check.check(Headers(raw=[(b"host", b"localhost"), *origins]))
        for origins in ([own], [own, (b"origin", b"http://evil.example")])
    ]

    assert [answer.status_code if answer else 0 for answer in answers] == [0, 403]


@pytest.mark.parametrize(
    ("site", "status"), [("same-origin", 0), ("none", 0), ("cross-site", 403), ("same-site", 403)]
)
def test_a_request_without_an_origin_is_judged_by_what_the_browser_says(site, status):
    assert refused(Serve(), host="localhost", sec_fetch_site=site) == status


ALL, MAIN, WORK = "token-for-all", "token-for-main", "token-for-work"


SERVE = Serve(token=ALL, tokens={"main": MAIN, "work": WORK})


def authenticator(serve=SERVE):
    return Authenticator(serve, default_agent="main")


def bearer(token):
    return {"authorization": f"Bearer {token}"}


def test_without_tokens_every_client_may_ask():
    access = authenticator(Serve()).access({}, "127.0.0.1")

    assert access is not None
    assert (access.client, access.caller().agent, access.caller("work").agent) == (
        "127.0.0.1",
        "main",
        "work",
    )


def test_an_empty_token_never_matches_one_that_is_not_set():
    assert authenticator(Serve(tokens={"main": MAIN})).access(bearer(""), "x") is None


def test_an_address_waits_after_wrong_tokens_and_one_that_is_silent_is_forgotten():
    made = authenticator()

    waits = [made.wait_s("a", has_access=False, has_token=True) for _ in range(MAX_WRONG_TOKENS + 1)]

    assert not any(waits[:-1]) and 59 < waits[-1] <= 60
    assert made.wait_s("a", has_access=True, has_token=True) == 0
    assert made.wait_s("b", has_access=False, has_token=True) == 0
    for number in range(MAX_CLIENTS):
        made.wait_s(str(number), has_access=False, has_token=True)
    assert made.wait_s("a", has_access=False, has_token=True) == 0
