from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from memline.shared.config.installation import Ceilings
from memline.shared.config.schema import AgentSettings, ConfigFile, MemorySearch, Remote
from memline.shared.embedders.protocol import Identity
from memline.shared.errors import ProviderLater, QueueError
from memline.shared.index.accounts import AccountFile
from memline.shared.index.identities import IdentityRow
from memline.shared.scheduling.budget import spent
from memline.shared.scheduling.health import Health
from memline.shared.scheduling.limits import WINDOW_S, Limits, costs, limit_key
from memline.shared.scheduling.questions import COOLDOWN_SHARE, QueryEmbedder
from tests.support.clock import ManualClock

ACTIVE = IdentityRow(id=1, identity=Identity(provider="openai", model="m"), base_url="", vector_dims=2)
LIMIT_KEY = limit_key("openai:1", "m")


class Provider:
    """Fails after so many seconds, or answers at once."""

    def __init__(self, clock):
        self.clock = clock
        self.calls = 0
        self.fails_after_s = None
        self.retry_after_s = None

    def embed_query(self, text, *, timeout_s):
        self.calls += 1
        if self.fails_after_s is None:
            return b"vector"
        self.clock.advance(self.fails_after_s)
        raise ProviderLater("no answer", retry_after_s=self.retry_after_s)

    def close(self): ...


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def provider(clock):
    return Provider(clock)


@pytest.fixture
def embedder(provider, clock, tmp_path):
    settings = AgentSettings(agent="main", workspace=tmp_path, index_path=tmp_path / "i", state_dir=tmp_path)
    return make_embedder(settings, provider, clock)


class Away(Limits):
    """Limits of a fleet whose Redis does not answer."""

    def take(self, *_, **__):
        raise QueueError("Redis is away")


def make_embedder(settings, provider, clock, limits=None):
    fields = {"provider": "openai", "fallback_from": "", "mark": "1", "build": lambda **_: provider}
    choice = SimpleNamespace(identity=ACTIVE.identity, **fields)
    return QueryEmbedder(settings, cast(Any, choice), limits=limits, clock=clock)


def refusal(embedder):
    with pytest.raises(ProviderLater) as error:
        embedder.embed("q", ACTIVE, Health)
    return str(error.value)


def test_a_silent_provider_holds_up_one_question_and_those_after_it_not(embedder, provider, clock):
    provider.fails_after_s = 8.0
    assert refusal(embedder) == "no answer"

    assert refusal(embedder) == "openai is not asked for another 32 s: no answer"
    assert provider.calls == 1

    provider.fails_after_s = None
    clock.advance(8.0 * COOLDOWN_SHARE)
    assert embedder.embed("q", ACTIVE, Health) == b"vector"


def test_questions_of_all_agents_with_one_key_go_at_once_and_move_texts_on(provider, clock, tmp_path):
    memory = MemorySearch(remote=Remote(requests_per_minute=40))
    paths = {"workspace": tmp_path, "state_dir": tmp_path, "home": tmp_path, "memory": memory}
    agents = [AgentSettings(agent=name, index_path=tmp_path / name, **paths) for name in ("one", "two")]

    for settings in agents:
        make_embedder(settings, provider, clock).embed("q", ACTIVE, Health)

    limits = Limits(AccountFile(agents[0].account_path), clock)
    wait_s = limits.take(LIMIT_KEY, costs(tokens=1, max_requests=40))
    assert (provider.calls, wait_s) == (2, pytest.approx(2 * WINDOW_S / 36))


def with_limit(tmp_path, **content):
    memory = MemorySearch(remote=Remote(requests_per_minute=3))
    paths = {"workspace": tmp_path, "state_dir": tmp_path, "home": tmp_path, "index_path": tmp_path / "i"}
    return AgentSettings(agent="main", memory=memory, **content, **paths)


def test_many_questions_keep_texts_waiting_for_a_minute_at_most(provider, clock, tmp_path):
    settings = with_limit(tmp_path)
    embedder = make_embedder(settings, provider, clock)

    for _ in range(100):
        embedder.embed("q", ACTIVE, Health)

    limits = Limits(AccountFile(settings.account_path), clock)
    assert limits.take(LIMIT_KEY, costs(tokens=1, max_requests=3)) == pytest.approx(WINDOW_S)
    limits.end_cooldown(LIMIT_KEY)
    assert limits.take(LIMIT_KEY, costs(tokens=1, max_requests=3)) == 0


@pytest.mark.parametrize("per_minute", [0, 3])
def test_no_question_goes_before_a_time_that_another_worker_heard(provider, clock, tmp_path, per_minute):
    settings = replace(
        with_limit(tmp_path), memory=MemorySearch(remote=Remote(requests_per_minute=per_minute))
    )
    Limits(AccountFile(settings.account_path), clock).cool_down(LIMIT_KEY, 60)
    embedder = make_embedder(settings, provider, clock)

    assert refusal(embedder).startswith("openai is not asked for another 60 s: ")
    assert provider.calls == 0
    clock.advance(60)
    assert embedder.embed("q", ACTIVE, Health) == b"vector"


def test_questions_go_on_while_another_model_of_the_account_is_refused(provider, clock, tmp_path):
    settings = with_limit(tmp_path)
    Limits(AccountFile(settings.account_path), clock).cool_down(limit_key("openai:1", "no-such-model"), 60)

    assert make_embedder(settings, provider, clock).embed("q", ACTIVE, Health) == b"vector"


def test_while_redis_is_away_a_question_counts_for_the_day_all_the_same(provider, clock, tmp_path):
    settings = with_limit(tmp_path, content=ConfigFile(limits=Ceilings(max_tokens_per_day=5)))
    embedder = make_embedder(
        settings, provider, clock, limits=Away(AccountFile(settings.account_path), clock)
    )

    embedder.embed("twelve chars", ACTIVE, Health)
    with pytest.raises(ProviderLater, match=r"limits\.maxTokensPerDay is reached"):
        embedder.embed("twelve chars", ACTIVE, Health)

    assert provider.calls == 1


def test_questions_are_counted_and_stop_at_the_ceiling_of_the_day(provider, clock, tmp_path):
    paths = {"workspace": tmp_path, "state_dir": tmp_path, "home": tmp_path, "index_path": tmp_path / "i"}
    settings = AgentSettings(agent="main", content=ConfigFile(limits=Ceilings(max_tokens_per_day=5)), **paths)
    embedder = make_embedder(settings, provider, clock)

    embedder.embed("twelve chars", ACTIVE, Health)
    with pytest.raises(ProviderLater, match=r"limits\.maxTokensPerDay is reached") as error:
        embedder.embed("twelve chars", ACTIVE, Health)

    assert "goes on at 2025-06-16" in error.value.hint
    assert provider.calls == 1
    report = spent(AccountFile(settings.account_path), settings.content.limits, clock.now())
    assert report["today"] == {"requests": 1, "tokens": 3, "cost": 0, "unpricedTokens": 3}
    clock.advance(86_400)
    assert embedder.embed("twelve chars", ACTIVE, Health) == b"vector"
