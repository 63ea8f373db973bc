"""A request is made whole: every text ends with a vector, a reason, or a wait."""

from collections.abc import Callable, Sequence

import pytest

from memline.shared.clock import ManualClock
from memline.shared.embedders.request import Outcome, embed, max_calls
from memline.shared.errors import ProviderLater
from memline.shared.scheduling.leases import lease_s
from tests.support.embedding_server import EmbeddingServer
from tests.support.fake_embedder import FakeEmbedder
from tests.support.gemini_server import GeminiServer
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

    assert outcome == Outcome(vectors=[*FakeEmbedder().embed_documents(given)], paid=[1] * len(given))
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
    # One text that is not of the request tells that the provider works, and 16 of it that it takes so many.
    assert [request.rows for request in server.requests] == [16, 1, 16, 8, 8]
    assert outcome.learned_max_rows == 0


@pytest.mark.parametrize(
    ("fault", "cap", "rows"),
    [
        ("only-rows:8", 8, [32, 1, 32, 16, 8, 8, 8, 8, 8]),
        ("only-rows:1", 1, [32, 1, 32, 16, 8, 4, 2, *[1] * 32]),
        ("same-index", 1, [32, 1, 32, 16, 8, 4, 2, *[1] * 32]),
    ],
)
def test_a_cap_that_shows_in_broken_answers_alone_is_found_and_learned(
    server: EmbeddingServer, connect: Connect, fault: str, cap: int, rows: list[int]
) -> None:
    server.control({"fault": fault})
    given = texts(32)

    outcome = embed(connect(server.url), given)

    assert outcome.vectors == FakeEmbedder().embed_documents(given)
    assert (outcome.error, outcome.learned_max_rows) == (None, cap)
    # The texts themselves are paid for twice, the first time with the answer that could not be used.
    assert outcome.paid == [2] * 32
    assert [request.rows for request in server.requests] == rows


def test_gemini_that_answers_fewer_texts_than_asked_is_asked_for_so_many(connect: Connect) -> None:
    with GeminiServer(dims=768) as server:
        server.control({"fault": "only-rows:4"})

        outcome = embed(connect(server.url, provider="gemini"), texts(16))

    assert missing(outcome) == []
    assert outcome.learned_max_rows == 4
    assert outcome.paid == [2] * 16


@pytest.mark.parametrize("fault", ["nan:POISON", "zero:POISON"])
def test_one_text_with_a_broken_vector_fails_alone(
    server: EmbeddingServer, connect: Connect, fault: str
) -> None:
    server.control({"fault": fault})

    outcome = embed(connect(server.url), texts(64, at_40="POISON"))

    assert missing(outcome) == [40]
    assert [(index, failure.kind) for index, failure in outcome.failures] == [(40, "broken")]
    assert outcome.error is None
    assert len(server.requests) == 3 + 2 * 6


@pytest.mark.parametrize("fault", ["html", "short", "nan", "wrong-dims"])
@pytest.mark.parametrize("count", [1, 2, 256])
def test_a_provider_that_answers_all_badly_is_found_out_with_one_text_more_and_no_text_is_blamed(
    server: EmbeddingServer, connect: Connect, fault: str, count: int
) -> None:
    server.control({"fault": fault})

    outcome = embed(connect(server.url, vector_dims=384), texts(count))

    assert missing(outcome) == list(range(count))
    assert outcome.failures == []
    assert outcome.error is not None
    assert outcome.error.kind == "stop"
    assert outcome.error.hint
    assert [request.rows for request in server.requests] == [count, 1, 1]


def test_texts_that_all_get_broken_vectors_from_a_provider_that_works_are_not_paid_for_without_end(
    server: EmbeddingServer, connect: Connect
) -> None:
    server.control({"fault": "nan:note"})

    outcome = embed(connect(server.url), texts(256))

    assert outcome.is_provider_well
    assert outcome.error is not None and outcome.error.kind == "broken"
    # The whole, one that is known to be good, as many of it, the halves and the quarters.
    assert [request.rows for request in server.requests] == [256, 1, 256, 128, 128, 64, 64, 64, 64]


def test_what_keeps_the_provider_from_telling_whose_fault_it_is_ends_the_calls(
    server: EmbeddingServer, connect: Connect
) -> None:
    server.control({"script": ["nan", "429:60"]})

    outcome = embed(connect(server.url), texts(16))

    assert outcome.failures == []
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.retry_after_s) == ("later", 60)
    assert len(server.requests) == 2


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


def test_a_call_of_many_texts_that_takes_too_long_ends_and_asks_for_smaller_ones(
    server: EmbeddingServer, connect: Connect
) -> None:
    server.control({"fault": "hang"})

    outcome = embed(connect(server.url, timeout_s=0.3), texts(16))

    assert outcome.failures == []
    assert outcome.error is not None
    assert outcome.error.kind == "split"
    assert "no answer within 0.3 s, for 16 texts" in outcome.error.message
    assert (outcome.slow_rows, outcome.learned_max_rows, len(server.requests)) == (8, 0, 1)


def test_a_single_text_that_takes_too_long_fails_and_those_behind_it_wait(
    server: EmbeddingServer, connect: Connect
) -> None:
    server.control({"fault": "hang:POISON"})

    outcome = embed(connect(server.url, timeout_s=0.3), texts(3, at_1="POISON"), max_rows=1)

    assert missing(outcome) == [1, 2]
    ((index, failure),) = outcome.failures
    assert (index, failure.kind) == (1, "broken")
    assert "timeoutSeconds" in failure.hint
    assert outcome.error is not None and outcome.error.kind == "split"
    assert outcome.slow_rows == 0


def test_a_gateway_that_gave_up_waiting_tells_the_same_as_no_answer() -> None:
    class Gateway(FakeEmbedder):
        def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
            raise ProviderLater("failed: 504", status=504)

    outcome = embed(Gateway(), texts(16))

    assert outcome.error is not None and outcome.error.kind == "split"
    assert outcome.slow_rows == 8


def test_no_call_holds_more_texts_than_are_known_to_come_in_time(
    server: EmbeddingServer, connect: Connect
) -> None:
    outcome = embed(connect(server.url), texts(10), max_rows=4)

    assert missing(outcome) == []
    assert [request.rows for request in server.requests] == [4, 4, 2]


class Slow(FakeEmbedder):
    """Takes as many seconds as it gets texts."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock
        self.calls: list[int] = []

    def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
        self.calls.append(len(texts))
        self.clock.advance(len(texts))
        return super().embed_documents(texts)


def test_no_call_begins_when_the_time_of_one_is_over_so_that_the_lease_outlives_the_request(
    clock: ManualClock,
) -> None:
    embedder = Slow(clock)

    outcome = embed(embedder, texts(100), max_rows=25, timeout_s=60, clock=clock)

    assert embedder.calls == [25, 25, 25]
    assert missing(outcome) == list(range(75, 100))
    assert outcome.error is not None and outcome.error.kind == "split"
    assert lease_s(60) > 2 * 2 * 60


def test_an_answer_within_a_quarter_of_the_time_is_quick(clock: ManualClock) -> None:
    quick = embed(Slow(clock), texts(15), timeout_s=60, clock=clock)
    slow = embed(Slow(clock), texts(16), timeout_s=60, clock=clock)

    assert (quick.quick_rows, slow.quick_rows) == (15, 0)


def test_a_quota_of_a_minute_that_is_less_than_the_request_is_learned_from_its_value(
    connect: Connect,
) -> None:
    with GeminiServer(fault="text-quota:8") as gemini:
        outcome = embed(connect(gemini.url, provider="gemini"), texts(30))

    assert missing(outcome) == list(range(30))
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.retry_after_s) == ("later", 1)
    # Half: what else uses the key takes of it too.
    assert (outcome.learned_max_rows, outcome.limited_rows) == (4, 30)


def test_what_was_perhaps_paid_for_is_told_by_the_text(server: EmbeddingServer, connect: Connect) -> None:
    server.control({"fault": "max-rows:8"})
    cut = embed(connect(server.url), texts(20))
    server.control({"fault": "401"})
    refused = embed(connect(server.url), texts(2))
    server.control({"fault": "nan"})
    broken = embed(connect(server.url), texts(1))

    assert cut.paid == [1] * 20
    assert refused.paid == [0, 0]
    assert broken.paid[0] >= 1


def test_an_answer_that_never_came_may_have_been_paid_for_and_a_server_that_is_away_was_not() -> None:
    for error, paid in ((lost_answer(), [1]), (ProviderLater("refused connection"), [0])):
        failing = FakeEmbedder()
        failing.embed_documents = raising(error)  # type: ignore[method-assign]
        assert embed(failing, ["text"]).paid == paid


@pytest.mark.parametrize(
    ("script", "paid", "reference_paid"),
    [
        (["ok"], 1, 0),
        # Then the two halves, one text each.
        (["nan", "ok", "ok", "ok"], 2, 3),
        (["nan", "nan", "ok", "ok", "ok"], 2, 4),
        (["nan", "nan", "nan"], 1, 2),
        (["nan", "429:60"], 1, 0),
        (["nan", "close", "ok", "ok", "ok"], 2, 4),
        (["close", "nan", "ok", "ok", "ok"], 3, 3),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_the_text_that_tells_whose_fault_it_is_is_paid_for_beside_the_others(
    server: EmbeddingServer, connect: Connect, script: list[str], paid: int, reference_paid: int
) -> None:
    server.control({"script": script})

    outcome = embed(connect(server.url), texts(2))

    assert (outcome.paid, outcome.reference_paid) == ([paid] * 2, reference_paid)


@pytest.mark.parametrize(
    ("lost", "paid"), [("close", 2), ("504", 2), ("500", 1)], ids=["cut off", "gateway", "refused"]
)
def test_an_attempt_that_was_lost_counts_beside_the_one_that_is_answered(
    server: EmbeddingServer, connect: Connect, lost: str, paid: int
) -> None:
    server.control({"script": [lost, "ok"]})

    outcome = embed(connect(server.url), texts(3))

    assert missing(outcome) == []
    assert outcome.paid == [paid] * 3


def lost_answer() -> ProviderLater:
    error = ProviderLater("timeout")
    error.maybe_paid = True
    return error


def raising(error: ProviderLater) -> Callable[[Sequence[str]], list[bytes]]:
    def fail(_: Sequence[str]) -> list[bytes]:
        raise error

    return fail


@pytest.mark.parametrize(("fault", "rows"), [("500", 3), ("close", 3), ("429", 0), ("401", 0), ("ok", 0)])
def test_a_call_that_fails_at_the_server_is_told_with_its_texts(
    server: EmbeddingServer, connect: Connect, fault: str, rows: int
) -> None:
    server.control({"fault": fault})

    assert embed(connect(server.url), texts(3)).failed_rows == rows


@pytest.mark.parametrize(
    ("script", "ends", "paid"),
    [
        (["ok"], ["ok"], 1),
        (["429:60"], ["rate_limit"], 0),
        (["500", "close", "ok"], ["later", "later", "ok"], 2),
        (["504", "ok"], ["timeout", "ok"], 2),
        (["nan", "ok"], ["broken", "ok"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_each_attempt_is_noted_with_how_it_ended(
    server: EmbeddingServer, connect: Connect, script: list[str], ends: list[str], paid: int
) -> None:
    server.control({"script": script})

    found = embed(connect(server.url), texts(1)).attempts

    assert len(found) == len(server.requests)
    assert [each.end for each in found] == ends
    assert sum(each.is_paid for each in found) == paid
    assert all(each.took_s >= 0 for each in found)
