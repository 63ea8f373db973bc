from __future__ import annotations

import pytest

from producers.http.access import Doorkeeper
from shared.config.faces import Serve
from shared.errors import AccessDenied

ALL, MAIN, WORK = "token-for-all", "token-for-main", "token-for-work"
SERVE = Serve(token=ALL, tokens={"main": MAIN, "work": WORK})


def keeper(serve: Serve = SERVE) -> Doorkeeper:
    return Doorkeeper(serve, default_agent="main")


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_without_tokens_everybody_who_gets_here_may_ask() -> None:
    access = keeper(Serve()).access({}, "127.0.0.1")

    assert access is not None
    assert (access.client, access.caller().agent, access.caller("work").agent) == (
        "127.0.0.1",
        "main",
        "work",
    )


def test_the_token_for_all_opens_every_agent() -> None:
    access = keeper().access(bearer(ALL), "x")

    assert access is not None
    assert (access.caller().agent, access.caller("work").agent) == ("main", "work")


def test_the_token_of_an_agent_opens_that_one_alone() -> None:
    access = keeper().access(bearer(WORK), "x")

    assert access is not None
    assert (access.client, access.caller().agent) == ("tokens.work", "work")
    for other in ("main", "nobody", "../work", "Work"):
        with pytest.raises(AccessDenied, match="this token does not open the agent"):
            access.caller(other)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer(""),
        bearer("wrong-token"),
        bearer(ALL[:-1]),
        bearer(ALL + "x"),
        {"authorization": ALL},
        {"authorization": f"Basic {ALL}"},
        {"authorization": "Bearer"},
        bearer("\udcff"),
    ],
)
def test_nothing_else_opens_anything(headers: dict[str, str]) -> None:
    assert keeper().access(headers, "x") is None


def test_the_scheme_may_be_written_in_any_case() -> None:
    assert keeper().access({"authorization": f"bearer {ALL}"}, "x") is not None


def test_an_empty_token_never_matches_one_that_is_not_set() -> None:
    assert keeper(Serve(tokens={"main": MAIN})).access(bearer(""), "x") is None
