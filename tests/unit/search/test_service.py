"""What an answerer knows of the index and of the model, from one question to the next."""

from contextlib import closing
from types import SimpleNamespace

from memline.shared.config.schema import AgentSettings
from memline.shared.findings.answerer import Answerer
from memline.shared.scheduling import questions
from memline.shared.search import matches
from memline.shared.search.request import SearchRequest
from memline.shared.sync.staleness import DiskState
from tests.support.fake_embedder import FakeEmbedder
from tests.unit.search.conftest import ask

REQUEST = SearchRequest(query="redis")


def answerer(notes, folder, **options):
    settings = AgentSettings(agent="main", workspace=folder, index_path=notes.path, state_dir=folder)
    return closing(Answerer(settings, **options))


def test_a_search_sees_every_change_of_the_index(notes, tmp_path):
    notes.add("memory/a.md", "redis")
    disk = [DiskState()]
    with answerer(notes, tmp_path, long_lived=True, look=lambda: disk[-1]) as memory:
        first, again = memory.ask(REQUEST), memory.ask(REQUEST)
        notes.add("memory/b.md", "redis as well")
        changed = memory.ask(REQUEST)
        disk.append(DiskState(files_behind=1))
        behind = memory.ask(REQUEST)

    assert again == first
    assert [hit.path for hit in changed.hits] == ["memory/a.md", "memory/b.md"]
    assert behind.stale and not changed.stale


def test_answers_are_kept_while_they_are_few(notes, index, monkeypatch):
    notes.add("memory/a.md", "redis")
    monkeypatch.setattr(matches, "MOST_KEPT", 3 * matches.ANSWER)

    for number in range(20):
        ask(index, f"redis {number}")
        assert len(index.matches.answers) <= 4
    ask(index, "redis " * 1_000)

    assert all(len(request.query) < 1_000 for request, *_ in index.matches.answers)


def test_a_model_that_is_switched_meanwhile_leaves_keyword_hits_and_a_word(notes, tmp_path, monkeypatch):
    notes.add("memory/a.md", "Redis.")
    notes.embed()
    asked = []

    class Switching(FakeEmbedder):
        """Switches the model of the index while the first question is embedded."""

        def embed_query(self, text, *, timeout_s):
            asked.append(self.identity.model)
            if len(asked) == 1:
                notes.embedder = FakeEmbedder(dims=32, model="other")
                notes.embed()
            return super().embed_query(text, timeout_s=timeout_s)

    def choose(_settings, identity, _base_url):
        build = lambda **_: Switching(dims=32, model=identity.model)  # noqa: E731
        return SimpleNamespace(identity=identity, provider="fake", fallback_from="", mark="", build=build)

    monkeypatch.setattr(questions, "choose_for_identity", choose)
    texts = dict.fromkeys(("provider", "model", "reason", "action", "fallback_from", "base_url"), "unused")
    unused = FakeEmbedder(dims=32, model="unused").identity
    choice = SimpleNamespace(requested="openai", identity=unused, **texts | {"fallback_from": ""})
    with answerer(notes, tmp_path, choice=choice) as search:
        answer, again = search.ask(REQUEST), search.ask(REQUEST)

    assert asked == ["fake", "other"]
    assert (answer.mode, len(answer.hits)) == ("keyword", 1)
    assert any("changed meanwhile" in each.what for each in answer.findings)
    # The vector is the one of the model that answers: the note is its own nearest.
    assert (again.mode, again.model) == ("hybrid", "other")
    assert again.hits[0].vector_score > 0.5
