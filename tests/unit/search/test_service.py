from __future__ import annotations

from contextlib import closing
from types import SimpleNamespace
from typing import Any, cast

import pytest

from memline.shared.config.schema import AgentSettings, MemorySearch
from memline.shared.findings.answerer import Answerer
from memline.shared.scheduling import questions
from memline.shared.search.request import SearchRequest
from memline.shared.sync.staleness import DiskState
from tests.support.fake_embedder import FakeEmbedder


def without_provider(notes, folder):
    return AgentSettings(
        agent="main",
        workspace=folder,
        index_path=notes.path,
        state_dir=folder,
        memory=MemorySearch(provider="none"),
    )


def test_a_search_sees_every_change_of_the_index(notes, tmp_path):
    settings = without_provider(notes, tmp_path)
    notes.add("memory/a.md", "redis")
    memory = Answerer(settings, long_lived=True)
    request = SearchRequest(query="redis")

    first, again = memory.ask(request), memory.ask(request)
    notes.add("memory/b.md", "redis as well")
    changed = memory.ask(request)
    behind = memory.ask(request, DiskState(files_behind=1))
    memory.close()

    assert again == first
    assert [hit.path for hit in changed.hits] == ["memory/a.md", "memory/b.md"]
    assert behind.stale and not changed.stale


class Choices:
    """Builds the fake embedder of any identity, and switches the model while a question is embedded."""

    def __init__(self, notes):
        self.notes = notes
        self.asked = []
        #: Names of models that the writer switches to, one at each question.
        self.switches = []
        self.requested, self.identity = "openai", FakeEmbedder(dims=32, model="unused").identity
        self.provider, self.model, self.reason, self.action = "openai", "unused", "", ""
        self.fallback_from = self.base_url = ""

    def for_identity(self, _settings, identity, _base_url):
        return SimpleNamespace(
            identity=identity,
            provider="fake",
            fallback_from="",
            mark="",
            build=lambda **_: Switching(identity.model, self),
        )


class Switching(FakeEmbedder):
    def __init__(self, model, choices):
        super().__init__(dims=32, model=model)
        self.choices = choices

    def embed_query(self, text, *, timeout_s):
        self.choices.asked.append(self.identity.model)
        if self.choices.switches:
            self.choices.notes.embedder = FakeEmbedder(dims=32, model=self.choices.switches.pop(0))
            self.choices.notes.embed()
        return super().embed_query(text, timeout_s=timeout_s)


@pytest.fixture
def choices(notes, monkeypatch):
    choices = Choices(notes)
    monkeypatch.setattr(questions, "choose_for_identity", choices.for_identity)
    return choices


def search_of(notes, choices, tmp_path):
    settings = AgentSettings(agent="main", workspace=tmp_path, index_path=notes.path, state_dir=tmp_path)
    return Answerer(settings, choice=cast(Any, choices))


def test_a_model_that_is_switched_meanwhile_leaves_keyword_hits_and_a_word(notes, choices, tmp_path):
    notes.add("memory/a.md", "Redis.")
    notes.embed()
    choices.switches = ["other"]

    with closing(search_of(notes, choices, tmp_path)) as search:
        answer = search.ask(SearchRequest(query="redis"))
        again = search.ask(SearchRequest(query="redis"))

    assert choices.asked == ["fake", "other"]
    assert (answer.mode, len(answer.hits)) == ("keyword", 1)
    assert any("changed meanwhile" in each.what for each in answer.findings)
    # The vector is the one of the model that answers: the note is its own nearest.
    assert (again.mode, again.model) == ("hybrid", "other")
    assert again.hits[0].vector_score > 0.5
