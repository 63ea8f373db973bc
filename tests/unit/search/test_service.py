from __future__ import annotations

from pathlib import Path

from memline.shared.clock import ManualClock
from memline.shared.config.schema import AgentSettings, MemorySearch
from memline.shared.search import service
from memline.shared.search.results import Answer, SearchRequest
from memline.shared.search.service import ANSWER_GOOD_FOR_S, MAX_ANSWERS, AnswerCache
from memline.shared.search.staleness import DiskState
from tests.unit.search.conftest import Notes


def test_an_answer_is_reused_while_nothing_changed() -> None:
    cache, answer = AnswerCache(), Answer(notice="n")
    cache.put("q", (1, 1), answer)

    assert cache.get("q", (1, 1)) is answer
    assert cache.get("other", (1, 1)) is None
    assert cache.get("q", (1, 2)) is None


def test_an_answer_is_not_kept_for_ever() -> None:
    clock = ManualClock()
    cache = AnswerCache(monotonic=clock.now)
    cache.put("q", 1, Answer())

    clock.advance(ANSWER_GOOD_FOR_S + 0.001)

    assert cache.get("q", 1) is None


def test_an_answer_with_a_warning_is_not_cached() -> None:
    cache = AnswerCache()
    cache.put("q", 1, Answer(warning="only keywords were searched"))

    assert cache.get("q", 1) is None


def test_only_so_many_are_kept() -> None:
    cache = AnswerCache()
    for number in range(MAX_ANSWERS + 10):
        cache.put(number, 1, Answer())

    assert cache.get(9, 1) is None
    assert cache.get(10, 1) is not None


def test_a_search_sees_every_change_of_the_index(notes: Notes, tmp_path: Path) -> None:
    settings = AgentSettings(
        agent="main",
        workspace=tmp_path,
        index_path=notes.path,
        state_dir=tmp_path,
        memory=MemorySearch(provider="none"),
    )
    notes.add("memory/a.md", "redis")
    memory = service.MemorySearch(settings, long_lived=True, caches_answers=True)
    request = SearchRequest(query="redis")

    first, again = memory.ask(request), memory.ask(request)
    notes.add("memory/b.md", "redis as well")
    changed = memory.ask(request)
    behind = memory.ask(request, DiskState(files_behind=1))
    memory.close()

    assert again is first
    assert [hit.path for hit in changed.hits] == ["memory/a.md", "memory/b.md"]
    assert behind.stale and not changed.stale
