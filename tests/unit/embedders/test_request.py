"""A request is made whole: every text ends with a vector, a reason, or a wait."""

import pytest

from memline.shared.embedders.request import Request
from memline.shared.errors import ProviderTooBig
from tests.support.fake_embedder import FakeEmbedder


def texts(count, **replaced):
    """`texts(4, at_2="POISON")`: four texts, the third of them another."""
    made = [f"note number {index}" for index in range(count)]
    for place, text in replaced.items():
        made[int(place.removeprefix("at_"))] = text
    return made


def embed(*args, **options):
    return Request(*args, **{"estimate": len, **options}).embed()


def missing(outcome):
    return [index for index, vector in enumerate(outcome.vectors) if vector is None]


def kinds(outcome):
    return [(index, failure.kind) for index, failure in outcome.failures]


@pytest.mark.parametrize(
    ("control", "count", "rows", "max_rows"),
    [
        ({}, 10, [10], 0),
        ({}, 0, [], 0),
        # Once half of the texts were too many, no other part is tried with as many.
        ({"fault": "max-rows:8"}, 20, [20, 10, 5, 5, 5, 5], 5),
        ({"fault": "max-tokens:30"}, 16, [16, 8, 4, 4, 4, 4], 4),
        # One text that is not of the request tells that the server works.
        ({"script": ["short", "ok"]}, 16, [16, 1, 8, 8], 8),
        ({"fault": "same-index"}, 8, [8, 1, 4, 2, *[1] * 8], 1),
        ({"fault": "500-rows:8"}, 16, [16, 16, 16, 1, 8, 8], 8),
    ],
)
def test_all_texts_get_their_vectors_and_a_size_is_learned(server, connect, control, count, rows, max_rows):
    server.control(control)

    outcome = embed(connect(server.url), texts(count))

    assert outcome.vectors == FakeEmbedder().embed_documents(texts(count))
    assert (outcome.error, outcome.failures) == (None, [])
    assert [request.rows for request in server.requests] == rows
    assert outcome.max_rows == max_rows


@pytest.mark.parametrize("bad", [[0], [15], [3, 9], [0, 1, 2]])
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("refuse:POISON", "refused"),
        ("nan:POISON", "broken"),
        ("zero:POISON", "broken"),
        # A filter before the server; and a server whose model fails.
        ("blocked:POISON", "broken"),
        ("424-text:POISON", "broken"),
    ],
)
def test_bad_texts_fail_alone_and_their_neighbours_are_embedded(server, connect, fault, kind, bad):
    server.control({"fault": fault})

    outcome = embed(connect(server.url), texts(16, **{f"at_{index}": f"POISON {index}" for index in bad}))

    assert missing(outcome) == bad
    assert kinds(outcome) == [(index, kind) for index in bad]
    assert (outcome.error, outcome.max_rows) == (None, 0)


@pytest.mark.parametrize("count", [1, 2, 256])
@pytest.mark.parametrize(
    ("fault", "kind", "calls"),
    [
        ("html", "stop", 2),
        ("nan", "stop", 2),
        ("refuse:m", "stop", 2),
        ("blocked:m", "stop", 2),
        ("424-text:m", "later", 2),
        ("401", "stop", 1),
        ("500", "later", 4),
        ("close", "later", 4),
    ],
)
def test_a_server_that_fails_everything_is_known_after_few_calls_and_no_text_is_blamed(
    server, connect, fault, kind, calls, count
):
    server.control({"fault": fault})

    outcome = embed(connect(server.url), texts(count, at_0="make"))

    assert missing(outcome) == list(range(count))
    assert outcome.failures == []
    assert (outcome.error.kind, len(server.requests)) == (kind, calls)
    assert not outcome.is_provider_well


@pytest.mark.parametrize("fault", ["nan:note", "refuse:note", "max-rows:1", "max-text-tokens:1", "refuse:7"])
def test_calls_have_a_bound_and_no_text_is_lost(server, connect, fault):
    server.control({"fault": fault})

    outcome = embed(connect(server.url), texts(256))

    assert len(server.requests) <= 150
    without_reason = set(missing(outcome)) - {index for index, _ in outcome.failures}
    assert not without_reason or outcome.error is not None
    if fault == "nan:note":
        # Each of these calls is paid for.
        assert sum(request.rows for request in server.requests) < 3 * 256


@pytest.mark.parametrize(
    ("script", "kind", "wait_s", "count"),
    [
        (["max-rows:16", "ok", "429:60"], "later", 60, 3),
        (["max-rows:16", "ok", "401"], "stop", None, 3),
        # Whose fault the first answer was cannot be found out now.
        (["nan", "429:60"], "later", 60, 2),
    ],
)
def test_later_and_stop_end_the_calls_and_keep_what_came(server, connect, script, kind, wait_s, count):
    server.control({"script": script})

    outcome = embed(connect(server.url), texts(32))

    assert missing(outcome) == list(range(16 if "ok" in script else 0, 32))
    assert (outcome.error.kind, outcome.error.retry_after_s, outcome.failures) == (kind, wait_s, [])
    assert len(server.requests) == count


class Slow(FakeEmbedder):
    """Takes as many seconds as it gets texts, at most 25."""

    def __init__(self, clock):
        super().__init__()
        self.clock, self.calls = clock, []

    def embed_documents(self, texts):
        self.calls.append(len(texts))
        if len(texts) > 25:
            raise ProviderTooBig("too many")
        self.clock.advance(len(texts))
        return super().embed_documents(texts)


def test_no_call_begins_when_the_time_of_one_is_over(clock):
    embedder = Slow(clock)

    outcome = embed(embedder, texts(100), timeout_s=60, clock=clock)

    assert embedder.calls == [100, 50, 25, 25, 25]
    assert missing(outcome) == list(range(75, 100))
    assert outcome.error.kind == "split"


@pytest.mark.parametrize(
    ("script", "paid", "used"),
    [
        (["ok"], 1, 2),
        (["429:60"], 0, 0),
        (["401"], 0, 0),
        # What had no answer may be paid for as well.
        (["close", "ok"], 2, 4),
        (["504", "ok"], 2, 4),
        (["524", "ok"], 2, 4),
        (["500", "ok"], 1, 2),
        # With the text that tells whose fault it was.
        (["nan", "ok", "ok", "ok"], 4, 6),
        # The provider's own count, where it has one.
        (["usage:70"], 1, 70),
        (["close", "usage:70"], 2, 72),
    ],
)
def test_every_attempt_that_was_perhaps_paid_for_is_counted(server, connect, script, paid, used):
    server.control({"script": script})

    outcome = embed(connect(server.url), ["one", "two"], estimate=lambda text: 2 if text == "memory" else 1)

    assert (outcome.paid_calls, outcome.used_tokens) == (paid, used)
