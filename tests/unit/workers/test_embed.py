import pytest
from msgspec.structs import replace

from memline.shared.embedders.request import Outcome
from memline.shared.errors import (
    IndexFault,
    ProviderBrokenAnswer,
    ProviderLater,
    ProviderRefused,
    ProviderStop,
    QueueError,
)
from memline.shared.index.accounts import account_id
from memline.shared.index.rows import TextRow
from memline.shared.queue.messages import EmbedTexts
from memline.shared.scheduling.leases import CLOCKS_S, Request
from memline.shared.scheduling.limits import STOP_COOLDOWN_S, limit_key
from memline.workers import embed
from tests.unit.workers.conftest import work

TEXTS = (TextRow(hash=b"h1", text="one"), TextRow(hash=b"h2", text="two"))


def request(identity, *, agent="main", until=1e12):
    return EmbedTexts(
        agent=agent, request=Request(lease="lease", identity=identity, texts=TEXTS, until=until)
    )


def account(context):
    choice = context.choices("main")[0]
    return limit_key(account_id(choice.provider, choice.mark), choice.model)


@pytest.fixture
def identity(context):
    """The identity of this worker's settings."""
    identity = context.choices("main")[0].identity
    assert identity is not None
    return identity


@pytest.fixture
def provider(monkeypatch):
    """Let every request to the provider have this outcome, after a place within the limits."""

    def answer(outcome):
        class Answered:
            def __init__(self, embedder, texts, before_call, **_):
                self.begin = lambda: before_call(texts)

            def embed(self):
                self.begin()
                return outcome

        monkeypatch.setattr(embed, "Request", Answered)

    return answer


def failures(sent):
    """The texts without a vector of the last message, by kind."""
    return [(each.kind, each.hashes) for each in sent[-1].answer.failures]


def test_vectors_and_refused_texts_are_told_to_the_store_worker(context, identity, sent, provider):
    refused = ProviderRefused("no")
    provider(Outcome(vectors=[b"v1", None], failures=[(1, refused)]))

    work(embed.embed_texts, request(identity))

    (stored,) = sent
    assert failures(sent) == [("refused", (b"h2",))]
    assert [row.hash for row in stored.answer.vectors] == [b"h1"]


def test_a_definite_no_is_logged_and_keeps_all_workers_from_the_provider_for_a_while(
    context, identity, sent, provider, caplog
):
    provider(Outcome(vectors=[None, None], error=ProviderStop("bad key")))

    work(embed.embed_texts, request(identity))

    assert failures(sent) == [("stop", (b"h1", b"h2"))]
    assert context.limits.take(account(context), {}) == STOP_COOLDOWN_S
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [("WARNING", "request.failed")]


@pytest.mark.parametrize("code", ["unreachable", ""])
def test_a_provider_that_was_not_reached_is_told_from_one_that_failed(
    context, identity, sent, provider, code
):
    provider(Outcome(vectors=[None, None], error=ProviderLater("no", code=code)))

    work(embed.embed_texts, request(identity))

    assert [each.is_unreachable for each in sent[-1].answer.failures] == [code == "unreachable"]


@pytest.mark.parametrize("agent", ["main", "work"])
def test_without_a_place_within_the_limits_of_a_key_the_texts_of_any_agent_go_back_until_there_is_one(
    context,
    identity,
    sent,
    provider,
    agent,
):
    provider(Outcome(vectors=[b"v1", b"v2"]))
    # One request a minute is allowed.
    work(embed.embed_texts, request(identity))

    work(embed.embed_texts, request(identity, agent=agent))

    _, unsent = sent
    (failure,) = unsent.answer.failures
    assert (unsent.agent, failure.kind) == (agent, "unsent")
    assert failure.error == "openai is at its limit of a minute, or asked to wait"
    assert failure.retry_after_s is not None and 50 < failure.retry_after_s < 62


@pytest.fixture
def no_call(monkeypatch):
    """Fail where the provider is called."""
    monkeypatch.setattr(
        "memline.shared.embedders.remote.RemoteEmbedder.embed_documents",
        lambda *_: pytest.fail("the provider was asked"),
    )


@pytest.mark.usefixtures("no_call")
def test_a_call_that_may_end_after_the_lease_is_not_made_and_frees_its_texts(context, identity, sent):
    timeout_s = context.choices("main")[0].timeout_s

    work(embed.embed_texts, request(identity, until=context.clock.now() + timeout_s + CLOCKS_S - 1))

    assert (failures(sent), sent[0].answer.used_tokens) == ([("unsent", (b"h1", b"h2"))], 0)


@pytest.mark.usefixtures("no_call")
def test_a_process_that_ends_sends_no_more(context, identity, sent):
    context.stopping.set()

    work(embed.embed_texts, request(identity))

    assert (failures(sent), sent[0].answer.used_tokens) == ([("unsent", (b"h1", b"h2"))], 0)


@pytest.mark.usefixtures("no_call")
def test_a_request_that_another_worker_has_begun_is_dropped(context, identity, sent, monkeypatch):
    monkeypatch.setattr(context, "begin", lambda *_: False)

    work(embed.embed_texts, request(identity))

    assert sent == []


@pytest.mark.usefixtures("no_call")
@pytest.mark.parametrize(
    ("part", "name", "error"),
    [
        ("", "begin", QueueError("Redis is away")),
        ("limits", "take", QueueError("Redis is away")),
        ("limits", "take", IndexFault("the file is locked, as if Redis is away")),
    ],
)
def test_what_cannot_be_noted_is_not_sent(context, identity, sent, monkeypatch, part, name, error):
    def away(*_, **__):
        raise error

    monkeypatch.setattr(getattr(context, part, context), name, away)

    work(embed.embed_texts, request(identity))

    (failed,) = sent[0].answer.failures
    assert failed.kind == "unsent"
    assert failed.error.endswith("Redis is away")


def test_a_slip_is_told_to_the_rows_before_it_is_raised(context, identity, sent, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("a bug")

    monkeypatch.setattr(embed, "Request", fail)

    with pytest.raises(RuntimeError):
        work(embed.embed_texts, request(identity))

    assert failures(sent) == [("broken", (b"h1", b"h2"))]


@pytest.mark.parametrize(
    ("agent", "changes", "words"),
    [
        ("main", {"endpoint": "x"}, "the settings do not lead to openai a"),
        ("main", {"provider": "voyage"}, "the settings do not lead to voyage a"),
        ("bob", {}, "'bob', which is not configured here"),
    ],
)
def test_a_request_that_is_not_for_this_worker_goes_back_with_the_reason_and_the_account_goes_on(
    context, identity, sent, agent, changes, words
):
    context.stopping.set()

    work(embed.embed_texts, request(replace(identity, **changes), agent=agent))

    (failed,) = sent[0].answer.failures
    assert failed.kind == "unsent" and words in failed.error
    assert failed.retry_after_s is None
    assert failed.action.endswith("memline config show")


@pytest.mark.parametrize("is_well", [False, True])
def test_a_request_that_brought_nothing_is_a_fault_of_a_provider_that_does_not_work(
    context, identity, sent, provider, is_well
):
    error = ProviderBrokenAnswer("NaN")
    provider(Outcome(vectors=[None, None], error=error, is_provider_well=is_well, max_rows=4))

    work(embed.embed_texts, request(identity))

    (failed,) = sent[0].answer.failures
    assert (failed.kind, failed.no_results, sent[0].answer.learned) == ("broken", not is_well, 4)
