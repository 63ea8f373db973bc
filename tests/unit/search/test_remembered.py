from __future__ import annotations

from pathlib import Path

from shared.clock import ManualClock
from shared.config.schema import AgentSettings, MemorySearch
from shared.search import service
from shared.search.remembered import GOOD_FOR_S, MAX_ANSWERS, Remembered
from shared.search.results import Answer, SearchRequest
from tests.unit.search.conftest import Notes


def test_an_answer_comes_back_while_nothing_changed() -> None:
    remembered, answer = Remembered(), Answer(notice="n")
    remembered.put("q", (1, 1), answer)

    assert remembered.get("q", (1, 1)) is answer
    assert remembered.get("other", (1, 1)) is None
    assert remembered.get("q", (1, 2)) is None


def test_an_answer_is_not_kept_for_ever() -> None:
    clock = ManualClock()
    remembered = Remembered(monotonic=clock.now)
    remembered.put("q", 1, Answer())

    clock.advance(GOOD_FOR_S + 0.001)

    assert remembered.get("q", 1) is None


def test_trouble_is_not_remembered() -> None:
    remembered = Remembered()
    remembered.put("q", 1, Answer(warning="only keywords were searched"))

    assert remembered.get("q", 1) is None


def test_only_so_many_are_kept() -> None:
    remembered = Remembered()
    for number in range(MAX_ANSWERS + 10):
        remembered.put(number, 1, Answer())

    assert remembered.get(9, 1) is None
    assert remembered.get(10, 1) is not None


def test_a_search_sees_every_change_of_the_index(notes: Notes, tmp_path: Path) -> None:
    settings = AgentSettings(
        agent="main",
        workspace=tmp_path,
        index_path=notes.path,
        state_dir=tmp_path,
        memory=MemorySearch(provider="none"),
    )
    notes.add("memory/a.md", "redis")
    memory = service.MemorySearch(settings, long_lived=True, remembers=True)
    request = SearchRequest(query="redis")

    first, again = memory.ask(request), memory.ask(request)
    notes.add("memory/b.md", "redis as well")
    changed = memory.ask(request)
    behind = memory.ask(request, files_behind=1)
    memory.close()

    assert again is first
    assert [hit.path for hit in changed.hits] == ["memory/a.md", "memory/b.md"]
    assert behind.stale and not changed.stale
