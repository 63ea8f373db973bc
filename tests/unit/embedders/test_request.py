"""A request is made whole: every text ends with a vector, a reason, or a wait."""

from __future__ import annotations

import pytest

from memline.shared.embedders.request import Outcome, embed, max_calls
from tests.support.embedding_server import EmbeddingServer
from tests.support.fake_embedder import FakeEmbedder
from tests.unit.embedders.conftest import Connect


def texts(count: int, **replaced: str) -> list[str]:
    """`texts(4, at_2="POISON")`: four texts, the third of them another."""
    made = [f"note number {index}" for index in range(count)]
    for place, text in replaced.items():
        made[int(place.removeprefix("at_"))] = text
    return made


def missing(outcome: Outcome) -> list[int]:
    return [index for index, vector in enumerate(outcome.vectors) if vector is None]


def test_a_good_request_is_one_call(server: EmbeddingServer, connect: Connect) -> None:
    given = texts(10)

    outcome = embed(connect(server.url), given)

    assert outcome == Outcome(vectors=[*FakeEmbedder().embed_documents(given)])
    assert len(server.requests) == 1


def test_no_texts_are_no_call(server: EmbeddingServer, connect: Connect) -> None:
    assert embed(connect(server.url), []) == Outcome()
    assert not server.requests


def test_a_named_cap_of_rows_is_cut_to_and_learned(server: EmbeddingServer, connect: Connect) -> None:
    server.control({"fault": "max-rows:8"})
    given = texts(20)

    outcome = embed(connect(server.url), given)

    assert outcome.vectors == FakeEmbedder().embed_documents(given)
    assert outcome.learned_max_rows == 8
    assert [request.rows for request in server.requests] == [20, 8, 8, 4]


def test_a_cap_of_tokens_is_halved_to_and_learned(server: EmbeddingServer, connect: Connect) -> None:
    server.control({"fault": "max-tokens:30"})

    outcome = embed(connect(server.url), texts(16))

    assert missing(outcome) == []
    assert outcome.learned_max_tokens == 30
    # Once half of the rows were too many, no other part is tried with as many.
    assert [request.rows for request in server.requests] == [16, 8, 4, 4, 4, 4]


def test_a_cap_without_a_name_is_learned_as_the_rows_that_passed(
    server: EmbeddingServer, connect: Connect
) -> None:
    server.control({"fault": "max-bytes:200"})

    outcome = embed(connect(server.url), texts(16))

    assert missing(outcome) == []
    assert outcome.learned_max_rows == 4
    assert outcome.learned_max_tokens == 0


def test_one_text_too_big_alone_fails_and_teaches_no_cap_of_a_request(
    server: EmbeddingServer, connect: Connect
) -> None:
    server.control({"fault": "max-text-tokens:50"})

    outcome = embed(connect(server.url), texts(16, at_5="long " * 100))

    assert missing(outcome) == [5]
    ((index, failure),) = outcome.failures
    assert (index, failure.kind) == (5, "too_big")
    assert (outcome.learned_max_rows, outcome.learned_max_tokens) == (0, 0)
    assert outcome.error is None
    assert len(server.requests) <= 10


@pytest.mark.parametrize("bad", [[0], [15], [3, 9], [0, 1, 2]])
def test_refused_texts_are_found_and_their_neighbours_are_embedded(
    server: EmbeddingServer, connect: Connect, bad: list[int]
) -> None:
    server.control({"fault": "refuse:POISON"})

    outcome = embed(connect(server.url), texts(16, **{f"at_{index}": f"POISON {index}" for index in bad}))

    assert missing(outcome) == bad
    assert [(index, failure.kind) for index, failure in outcome.failures] == [(i, "refused") for i in bad]
    assert outcome.error is None


def test_an_answer_broken_once_is_asked_for_again(server: EmbeddingServer, connect: Connect) -> None:
    server.control({"script": ["short", "ok"]})

    outcome = embed(connect(server.url), texts(16))

    assert missing(outcome) == []
    assert len(server.requests) == 2


@pytest.mark.parametrize("fault", ["nan:POISON", "zero:POISON"])
def test_one_text_with_a_broken_vector_fails_alone(
    server: EmbeddingServer, connect: Connect, fault: str
) -> None:
    server.control({"fault": fault})

    outcome = embed(connect(server.url), texts(64, at_40="POISON"))

    assert missing(outcome) == [40]
    assert [(index, failure.kind) for index, failure in outcome.failures] == [(40, "broken")]
    assert outcome.error is None
    assert len(server.requests) == 2 + 2 * 6


@pytest.mark.parametrize("fault", ["html", "short", "nan", "wrong-dims"])
def test_a_provider_that_answers_all_badly_is_given_up_soon(
    server: EmbeddingServer, connect: Connect, fault: str
) -> None:
    server.control({"fault": fault})

    outcome = embed(connect(server.url, vector_dims=384), texts(256))

    assert missing(outcome) == list(range(256))
    assert outcome.failures == []
    assert outcome.error is not None
    assert outcome.error.kind == "broken"
    assert len(server.requests) == 8


def test_a_provider_that_refuses_all_is_given_up_and_no_text_is_blamed_for_it(
    server: EmbeddingServer, connect: Connect
) -> None:
    server.control({"fault": "refuse:note"})

    outcome = embed(connect(server.url), texts(256))

    assert outcome.failures == []
    assert outcome.error is not None
    assert outcome.error.kind == "broken"
    assert len(server.requests) == 31


@pytest.mark.parametrize(("fault", "kind"), [("429:60", "later"), ("401", "stop")])
def test_later_and_stop_end_the_calls_and_keep_what_came(
    server: EmbeddingServer, connect: Connect, fault: str, kind: str
) -> None:
    server.control({"script": ["max-rows:8", "ok", fault]})

    outcome = embed(connect(server.url), texts(32))

    assert missing(outcome) == list(range(8, 32))
    assert outcome.error is not None
    assert outcome.error.kind == kind
    assert outcome.error.retry_after_s == (60 if kind == "later" else None)
    assert outcome.learned_max_rows == 8
    assert len(server.requests) == 3


@pytest.mark.parametrize("fault", ["max-rows:1", "max-text-tokens:1", "refuse:7", "nan:1"])
def test_calls_have_a_hard_bound_and_no_text_is_lost(
    server: EmbeddingServer, connect: Connect, fault: str
) -> None:
    server.control({"fault": fault})
    given = texts(512)

    outcome = embed(connect(server.url), given)

    assert len(server.requests) <= max_calls(512)
    assert len(outcome.vectors) == 512
    without_reason = set(missing(outcome)) - {index for index, _ in outcome.failures}
    assert not without_reason or outcome.error is not None


def test_what_a_cap_leaves_over_waits_for_smaller_requests(server: EmbeddingServer, connect: Connect) -> None:
    server.control({"fault": "max-rows:1"})

    outcome = embed(connect(server.url), texts(512))

    assert outcome.failures == []
    assert outcome.learned_max_rows == 1
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.retry_after_s) == ("later", 0)
