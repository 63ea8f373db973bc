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


@pytest.mark.parametrize("name", NAMES)
def test_each_provider_serves_index_and_hybrid_search_by_its_name_alone(place, servers, name):
    configure(place, servers, provider=name)

    report = place.index()
    answer = place.search(QUESTION)

    assert not report.failed, (report.warning, report.failures)
    assert (report.provider, report.vectors["embedded"]) == (name, TEXTS)
    assert paths(answer)[0] == "memory/note-3.md"
    assert (answer.mode, answer.provider, answer.stale, answer.warning) == ("hybrid", name, False, "")
    assert answer.hits[0].vector_score
    for other in NAMES:
        assert bool(servers[other].requests) == (other == name)
    assert not servers[name].repeated()


@pytest.mark.parametrize("name", ["gemini", "voyage"])
def test_texts_and_questions_are_never_taken_for_each_other(place, servers, name):
    configure(place, servers, provider=name)

    place.index()
    indexing = len(servers[name].requests)
    place.search(QUESTION)
    probe = place.call("status", "--deep", "--json").json[0]["embeddingProbe"]

    kinds = [is_question(request) for request in servers[name].requests]
    assert kinds == [False] * indexing + [True, True]
    assert probe["ok"]


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


@pytest.mark.parametrize("name", ["gemini", "voyage"])
def test_shortened_vectors_are_another_identity_and_of_unit_length(place, servers, name):
    configure(place, servers, provider=name)
    place.index()

    configure(place, servers, provider=name, outputDimensionality=256)
    report = place.index()
    answer = place.search(QUESTION)

    assert report.vectors["embedded"] == TEXTS
    assert {len(vector) for vector in place.contents().vectors.values()} == {4 * 256}
    assert answer.mode == "hybrid"
    assert answer.hits[0].vector_score and 0 < answer.hits[0].vector_score <= 1.000001


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_key_stops_with_what_to_do_and_the_right_one_goes_on(place, servers, name):
    wrong = "wrong-key-but-secret-9876543210"
    configure(place, servers, keys={name: wrong}, provider=name)

    refused = place.call("index")
    answer = place.search(QUESTION)
    status = place.call("status", "--deep", "--json")
    configure(place, servers, provider=name)
    mended = place.call("index", "--json")

    assert refused.status == 1
    assert f"check the {name} key" in refused.stderr
    assert wrong not in refused.stdout + refused.stderr + status.stdout
    assert paths(answer) == ["memory/note-3.md"]
    assert (answer.mode, answer.stale) == ("keyword", True)
    assert f"check the {name} key" in answer.action
    assert status.json[0]["embeddingProbe"]["ok"] is False
    assert status.json[0]["status"]["providerHealth"]["state"] == "open"
    assert mended.status == 0
    assert mended.json[0]["vectors"] == {"embedded": TEXTS, "cached": 0, "pending": 0, "failed": 0}
    assert place.search(QUESTION).mode == "hybrid"


@pytest.mark.parametrize(
    ("keys", "chosen"), [(NAMES, "openai"), (NAMES[1:], "gemini"), (NAMES[2:], "voyage"), ((), "none")]
)
def test_auto_takes_the_first_provider_with_a_key(place, monkeypatch, keys, chosen):
    for name in keys:
        monkeypatch.setenv(f"{name.upper()}_API_KEY", KEYS[name])
    place.configure(provider="auto")

    assert place.status()["provider"] == chosen


@pytest.mark.parametrize(
    ("first", "fault", "second"),
    [
        ("gemini", "429-quota", "voyage"),
        ("voyage", "401", "gemini"),
        ("openai", "404-model", "gemini"),
        ("gemini", "403-quota", "openai"),
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
    if second != "openai":
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


def test_a_fallback_that_has_no_key_either_is_told_with_both_reasons(place, servers):
    configure(place, servers, keys={}, provider="gemini", fallback="voyage")
    content = json.loads(place.config.read_text())
    for entry in content["models"]["providers"].values():
        del entry["baseUrl"]
    place.config.write_text(json.dumps(content))

    report = place.index()
    answer = place.search(QUESTION)

    assert report.failed
    for text in (report.warning, answer.warning):
        assert 'No API key found for provider "gemini"' in text
        assert 'Fallback to voyage failed: No API key found for provider "voyage"' in text
    assert "GEMINI_API_KEY" in answer.action
    assert paths(answer) == ["memory/note-3.md"]


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
