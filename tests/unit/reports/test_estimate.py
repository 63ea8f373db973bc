import json

import pytest

from memline.producers.reports.estimate import estimate, words
from tests.support.workspace import note


@pytest.fixture
def place(place, monkeypatch):
    for name in ("OPENAI", "MISTRAL"):
        monkeypatch.setenv(f"{name}_API_KEY", "sk-some-key")
    place.configure(provider="openai")
    for number in range(4):
        place.write(f"memory/{number}.md", note(number))
    return place


def test_a_plan_counts_what_would_be_read_sent_and_paid(place):
    plan = estimate(place.agent)

    assert [plan[name] for name in ("files", "cached", "mode")] == [4, 0, "requests"]
    assert plan["texts"] >= 4 and plan["costUsd"] == pytest.approx(plan["tokens"] * 0.02 / 1e6)
    first, money, *_ = words(plan)
    counts = f"4 files to read; {plan['chunks']} chunks in them; {plan['texts']} texts to embed, about "
    assert counts in first and "cached" not in first
    assert money.startswith("  openai text-embedding-3-small in requests: ")


def test_a_backlog_that_is_worth_a_batch_has_half_the_price_while_batches_work(place):
    requests = estimate(place.agent)
    place.configure(remote={"batch": {"enabled": True, "minTexts": 4}})
    batch = estimate(place.agent)
    place.configure(remote={"batch": {"enabled": True, "minTexts": 1_000}})
    few = estimate(place.agent)
    place.configure(provider="mistral", remote={"batch": {"enabled": True, "minTexts": 4}})
    without_api = estimate(place.agent)

    assert (batch["mode"], batch["costUsd"]) == ("batch", pytest.approx(requests["costUsd"] / 2))
    assert few["mode"] == without_api["mode"] == "requests"


def test_an_unknown_model_says_how_to_add_its_price(place):
    place.configure(model="my-model", remote={"baseUrl": "http://127.0.0.1:9/v1"})

    plan = estimate(place.agent)

    *_, money, hint = words(plan)
    assert plan["costUsd"] is None and "no price known" in money
    assert '"my-model": { perMillion' in hint


@pytest.mark.parametrize(
    ("model", "limits", "said"),
    [
        ("text-embedding-3-small", {"maxTokensPerDay": 1}, []),
        ("text-embedding-3-small", {"maxCostPerDay": 1e-6}, ["  the daily limit leaves 47 tokens for today"]),
        (
            "mine",
            {"maxCostPerDay": 9},
            ["  no price is known for mine, so limits.maxCostPerDay cannot be kept"],
        ),
        ("mine", {"maxTokensPerDay": 50}, ["  the daily limit leaves 47 tokens for today"]),
    ],
)
def test_a_plan_says_where_the_limits_of_the_day_end_it(place, model, limits, said):
    place.configure(model=model)
    text = json.loads(place.config.read_text())
    place.config.write_text(json.dumps(text | {"limits": limits}))

    assert [line for line in words(estimate(place.agent)) if "limit" in line] == said


def test_without_a_provider_nothing_is_embedded(place):
    place.configure(provider="none")

    assert list(words(estimate(place.agent)))[-1] == "  nothing to embed, keyword search only"
