from typing import Any

import pytest

from memline.producers.reports.estimate import Estimate, with_costs
from memline.shared.config.schema import AgentSettings, Batch
from memline.shared.embedders.choice import choose
from memline.shared.scheduling.breaker import Health
from tests.support.workspace import Place

TEXTS = [400] * 1000


@pytest.fixture
def place(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-some-key")
    monkeypatch.setenv("VOYAGE_API_KEY", "pa-some-key")
    place.configure(provider="openai")
    return place


def plan(
    settings: AgentSettings,
    texts: list[int] = TEXTS,
    *,
    own: dict[str, dict[str, Any]] | None = None,
    learned: Health | None = None,
    is_batch_stopped: bool = False,
) -> Estimate:
    choice = choose(settings)
    planned = with_costs(
        Estimate(agent="main", provider=choice.provider, model=choice.model),
        settings,
        choice,
        texts,
        own=own or {},
        learned=learned or Health(),
        is_batch_stopped=is_batch_stopped,
    )
    assert planned.chosen is not None
    return planned


def test_requests_are_packed_as_the_dispatcher_packs_them(place: Place) -> None:
    place.configure(remote={"maxRows": 10})

    by_rows = plan(place.agent)
    by_learned_rows = plan(place.agent, learned=Health(max_rows=5))

    assert (by_rows.chosen.mode, by_rows.chosen.calls) == ("requests", 100)
    assert by_learned_rows.chosen.calls == 200


def test_the_other_mode_is_told_with_its_price(place: Place) -> None:
    requests = plan(place.agent)
    place.configure(remote={"batch": {"enabled": True}})
    by_batch = plan(place.agent)

    assert requests.other is not None
    assert (requests.chosen.mode, requests.chosen.cost) == ("requests", pytest.approx(0.008))
    assert (requests.other.mode, requests.other.calls, requests.other.cost) == (
        "batch",
        1,
        pytest.approx(0.004),
    )
    assert (by_batch.chosen, by_batch.other) == (requests.other, requests.chosen)
    assert by_batch.to_json()["batches"] == 1
    assert by_batch.to_json()["costUsd"] == pytest.approx(0.004)


def test_few_texts_and_a_stopped_batch_api_go_by_requests(place: Place) -> None:
    place.configure(remote={"batch": {"enabled": True}})

    assert plan(place.agent, TEXTS[: Batch().min_texts - 1]).chosen.mode == "requests"
    assert plan(place.agent, is_batch_stopped=True).chosen.mode == "requests"


def test_batches_are_as_many_as_rows_and_bytes_ask_for(place: Place) -> None:
    place.configure(remote={"batch": {"enabled": True}})

    assert plan(place.agent, [10] * 50_001).chosen.calls == 2
    assert plan(place.agent, [1600] * 40_000).chosen.calls == 2


def test_the_time_is_that_of_the_limits_that_are_set(place: Place) -> None:
    without = plan(place.agent)
    place.configure(remote={"tokensPerMinute": 100_000})
    by_rows = plan(place.agent)
    place.configure(remote={"requestsPerMinute": 10, "maxRows": 10})
    by_requests = plan(place.agent)

    assert without.chosen.seconds is None
    assert by_rows.chosen.seconds == 180
    assert by_requests.chosen.seconds == 540
    assert "9 minutes at least" in by_requests.words()[0]


def test_where_texts_are_counted_the_plan_counts_them(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "some-key")
    place.configure(provider="gemini", remote={"requestsPerMinute": 100})

    by_texts = plan(place.agent, [4] * 1000)
    place.configure(provider="openai")
    by_requests = plan(place.agent, [4] * 1000)

    assert (by_texts.chosen.calls, by_texts.chosen.counted, by_texts.chosen.seconds) == (200, 1000, 540)
    assert "by 200 requests that count as 1000:" in by_texts.words()[0]
    assert by_texts.to_json()["countedRequests"] == 1000
    assert (by_requests.chosen.calls, by_requests.chosen.counted, by_requests.chosen.seconds) == (1, 1, 0)
    assert "count" not in by_requests.words()[0]


def test_what_the_provider_taught_about_time_makes_more_requests(place: Place) -> None:
    assert plan(place.agent, learned=Health(max_rows=50, shrunk_rows=4)).chosen.calls == 250


def test_an_unknown_model_says_how_to_add_its_price(place: Place) -> None:
    place.configure(model="my-model", remote={"baseUrl": "http://127.0.0.1:9/v1"})

    unknown = plan(place.agent)
    known = plan(place.agent, own={"my-model": {"perMillion": 5.0, "currency": "EUR"}})

    assert unknown.chosen.cost is None
    assert "no price known" in unknown.words()[0]
    assert '"my-model": { perMillion' in unknown.words()[-1]
    assert unknown.other is None
    assert "EUR 2.0000" in known.words()[0]
    assert known.to_json()["costUsd"] is None
    assert (known.to_json()["cost"], known.to_json()["currency"]) == (2.0, "EUR")


def test_a_provider_without_batches_has_no_other_way(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MISTRAL_API_KEY", "some-key")
    place.configure(provider="mistral")

    assert plan(place.agent).other is None
