"""One workspace and three providers, told apart by configuration alone: each in turn, and one for another."""

import json
import threading
from collections.abc import Mapping
from contextlib import ExitStack

import pytest

from memline.shared.scheduling import model_change
from tests.support.embedding_server import EmbeddingServer, GeminiServer, VoyageServer
from tests.support.fake_embedder import FakeEmbedder
from tests.support.workspace import paths

NAMES = ("openai", "gemini", "voyage")
SERVERS = {"openai": EmbeddingServer, "gemini": GeminiServer, "voyage": VoyageServer}

#: Their names below `models.providers`.
ENTRIES = {"openai": "openai", "gemini": "google", "voyage": "voyage"}

KEYS = {name: f"key-of-{name}-0123456789" for name in NAMES}

#: Notes of the workspace; each has three texts.
NOTES = 4
TEXTS = 3 * NOTES

#: A question for which note 3 has both words and meaning.
QUESTION = "word3x1x7 word3x1x8"

Servers = Mapping[str, EmbeddingServer]

pytestmark = pytest.mark.place(notes=NOTES)


@pytest.fixture
def servers():
    """The three providers, each with the key it expects, and with dimensions of its own."""
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(SERVERS[name](key=KEYS[name], dims=16 + 8 * number))
            for number, name in enumerate(NAMES)
        }


def configure(place, servers, *, keys=KEYS, **memory):
    """Write a configuration with address and key of every provider; `memory` says which of them counts."""
    providers = {
        ENTRIES[name]: {"baseUrl": servers[name].url, "apiKey": keys.get(name, "")} for name in NAMES
    }
    defaults = {"workspace": str(place.workspace), "memorySearch": memory}
    place.config.write_text(
        json.dumps({"agents": {"defaults": defaults}, "models": {"providers": providers}})
    )


def is_question(request):
    """Whether a request to Gemini or Voyage is for the vector of a question, by its own words."""
    kinds = {
        part.get("taskType", part.get("input_type")) for part in request.body.get("requests", [request.body])
    }
    assert len(kinds) == 1
    return kinds.pop() in ("RETRIEVAL_QUERY", "query")


def test_three_providers_in_turn_never_mix_and_coming_back_costs_nothing(place, servers):
    for name in (*NAMES, "gemini"):
        configure(place, servers, provider=name)
        for server in servers.values():
            server.control({"clear_log": True})

        report = place.index()
        answer = place.search(QUESTION)

        assert not report.failed
        assert (answer.provider, answer.mode) == (name, "hybrid")
        # Vectors of the one that is searched, and of its dimensions, alone.
        embedder = FakeEmbedder(dims=servers[name].dims)
        expected = set(embedder.embed_documents([text for *_, text in place.contents().chunks]))
        assert set(place.contents().vectors.values()) == expected
        assert [other for other in NAMES if servers[other].requests] == [name]
    assert len(servers["gemini"].requests) == 1, "the question; its texts were still at hand"


@pytest.mark.parametrize(
    ("first", "fault", "second"),
    [
        ("gemini", "429-quota", "voyage"),
        ("voyage", "401", "gemini"),
    ],
)
def test_the_fallback_takes_over_and_the_reason_is_shown_until_the_first_is_back(
    place, servers, first, fault, second
):
    configure(place, servers, provider=first, fallback=second)
    servers[first].control({"fault": fault})

    report = place.index()
    asked = len(servers[first].requests)
    answer = place.search(QUESTION)
    status = place.status()

    assert report.provider == second
    assert report.vectors == {"embedded": TEXTS, "cached": 0, "pending": 0, "failed": 0}
    assert f"the fallback {second} embeds instead of {first}: {first} embeddings failed" in report.warning
    assert status["fallback"]["from"] == first
    assert f"{first} embeddings failed" in status["fallback"]["reason"]
    assert (status["requestedProvider"], status["identity"]["active"]["provider"]) == (first, second)
    assert (status["provider"], status["model"]) == (answer.provider, answer.model)
    assert answer.fallback == status["fallback"]
    assert (answer.provider, answer.mode) == (second, "hybrid")
    assert paths(answer)[0] == "memory/note-3.md"
    # The question was embedded as its texts were, and the provider that stopped was not asked again.
    assert len(servers[first].requests) == asked
    assert [is_question(request) for request in servers[second].requests][-1] is True

    servers[first].control({"fault": ""})
    place.end_cooldowns()
    report = place.index()
    answer = place.search(QUESTION)

    assert (report.provider, report.warning) == (first, "")
    assert (answer.provider, answer.fallback, answer.mode) == (first, None, "hybrid")
    assert place.status()["fallback"] is None


def test_a_run_that_looks_while_the_fallback_is_being_named_waits_for_its_texts(place, servers, monkeypatch):
    configure(place, servers, provider="voyage", fallback="gemini")
    servers["voyage"].control({"fault": "401"})
    named, looked = threading.Event(), threading.Event()
    want_all = model_change._want_all
    looks = []

    def want_all_late(*arguments):
        named.set()
        looked.wait(120)
        want_all(*arguments)

    def look(progress):
        looks.extend([progress] if named.is_set() else [])
        if len(looks) == 3:
            looked.set()

    monkeypatch.setattr(model_change, "_want_all", want_all_late)

    report = place.index(on_progress=look)

    assert looked.is_set()
    assert report.vectors == {"embedded": TEXTS, "cached": 0, "pending": 0, "failed": 0}


def test_while_the_model_changes_a_question_is_embedded_as_the_vectors_that_are_searched(place, servers):
    configure(place, servers, provider="gemini")
    place.index()
    configure(place, servers, provider="voyage")
    servers["voyage"].control({"fault": "429-quota", "clear_log": True})

    report = place.index()
    without = place.search(QUESTION)
    configure(place, servers, provider="voyage", fallback="gemini")
    servers["gemini"].control({"clear_log": True})
    answer = place.search(QUESTION)

    assert report.failed
    # Without a way to Gemini the question gets no vector rather than one of Voyage's.
    assert (without.mode, without.stale) == ("keyword", True)
    assert without.warning
    assert not any(is_question(request) for request in servers["voyage"].requests)
    # With one it is Gemini's, whose vectors are still searched.
    assert (answer.provider, answer.mode, answer.stale) == ("gemini", "hybrid", True)
    assert [is_question(request) for request in servers["gemini"].requests] == [True]


def test_a_plan_knows_the_price_of_the_public_services_alone(place, servers, monkeypatch):
    monkeypatch.setenv("VOYAGE_API_KEY", "pa-some-key")
    monkeypatch.setenv("GEMINI_API_KEY", "AIza-some-key")
    costs = {}
    for name in ("gemini", "voyage"):
        place.configure(provider=name)
        (plan,) = place.call("reindex", "--plan", "--json").json
        assert plan["texts"] == TEXTS
        costs[name] = plan["costUsd"] / plan["tokens"] * 1e6
    configure(place, servers, provider="voyage")
    (own,) = place.call("reindex", "--plan", "--json").json

    assert costs == {"gemini": pytest.approx(0.15), "voyage": pytest.approx(0.12)}
    assert own["costUsd"] is None
