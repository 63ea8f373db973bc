from collections.abc import Callable
from pathlib import Path

import pytest

from memline.shared.clock import ManualClock
from memline.shared.config.schema import Query
from memline.shared.errors import IndexMissing
from memline.shared.search.reader import SearchIndex
from memline.shared.search.request import SearchRequest
from memline.shared.search.retrieve import retrieve
from tests.unit.search.conftest import Notes


def found(index: SearchIndex, notes: Notes, question: str) -> list[str]:
    embed_query = notes.vector if notes.active else None
    answer = retrieve(index, SearchRequest(query=question), Query(min_score=0.99), embed_query=embed_query)
    return [hit.path for hit in answer.hits]


def test_no_index_yet_is_an_error_that_names_the_command(tmp_path: Path) -> None:
    index = SearchIndex(tmp_path / "none.sqlite")

    with pytest.raises(IndexMissing) as caught, index.snapshot():
        pass

    assert caught.value.hint == "memline index"


@pytest.mark.parametrize("long_lived", [False, True])
def test_a_change_is_seen_by_the_next_question(
    notes: Notes, opened: Callable[..., SearchIndex], long_lived: bool
) -> None:
    notes.add("memory/a.md", "kestrel")
    notes.embed()
    index = opened(long_lived=long_lived)
    assert found(index, notes, "kestrel") == ["memory/a.md"]

    notes.add("memory/b.md", "quokka")
    notes.embed()

    assert found(index, notes, "quokka") == ["memory/b.md"]


def test_an_index_that_was_replaced_is_opened_again(
    notes: Notes, opened: Callable[..., SearchIndex], clock: ManualClock
) -> None:
    notes.add("memory/a.md", "kestrel")
    index = opened(long_lived=True)
    assert found(index, notes, "kestrel") == ["memory/a.md"]
    notes.writer.close()

    for ending in ("", "-wal", "-shm"):
        file = Path(f"{notes.path}{ending}")
        if file.exists():
            file.rename(f"{notes.path}.damaged{ending}")
    rebuilt = Notes(notes.path, clock)
    rebuilt.add("memory/b.md", "quokka")
    rebuilt.writer.close()

    assert found(index, notes, "kestrel") == []
    assert found(index, notes, "quokka") == ["memory/b.md"]


def test_all_retrievers_of_a_question_see_the_same_index(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/a.md", "kestrel")

    with index.snapshot() as connection:
        before = connection.execute("SELECT count(*) FROM chunks").fetchone()
        notes.add("memory/b.md", "quokka")
        after = connection.execute("SELECT count(*) FROM chunks").fetchone()

    assert before == after == (1,)


def test_a_closed_index_opens_again_for_the_next_question(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/a.md", "kestrel")
    found(index, notes, "kestrel")

    index.close()

    assert found(index, notes, "kestrel") == ["memory/a.md"]
