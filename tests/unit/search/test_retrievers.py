from __future__ import annotations

from collections.abc import Callable

from memline.shared.search import retrievers
from memline.shared.search.query import analyse
from memline.shared.search.reader import SearchIndex
from tests.unit.search.conftest import Notes


def paths(index: SearchIndex, question: str) -> list[str]:
    """Paths of the keyword hits, best first."""
    with index.snapshot() as connection:
        hits = retrievers.by_keyword(connection, analyse(question), None, 10)
        return [
            connection.execute(
                "SELECT path FROM files JOIN chunks ON file_id = files.id WHERE chunks.id = ?", (chunk_id,)
            ).fetchone()[0]
            for chunk_id, _ in hits.hits
        ]


def test_one_absent_word_hides_nothing(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/a.md", "The redis timeout is five seconds.")

    assert paths(index, "why is the redis timeout xylophone") == ["memory/a.md"]


def test_a_chunk_with_more_of_the_rare_words_comes_first(notes: Notes, index: SearchIndex) -> None:
    for n in range(8):
        notes.add(f"memory/{n}.md", f"We met and talked about the garden, part {n}.")
    notes.add("memory/both.md", "We talked about the kestrel in the garden.")

    assert paths(index, "kestrel garden")[0] == "memory/both.md"


def test_every_bm25_is_at_most_zero_so_lower_is_better(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/a.md", "apples and pears")

    with index.snapshot() as connection:
        hits = retrievers.by_keyword(connection, analyse("apples"), None, 10)

    assert [bm25 <= 0 for _, bm25 in hits.hits] == [True]


def test_words_are_found_in_other_grammatical_forms(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/a.md", "Yesterday Ann bought three bicycles.")
    notes.add("memory/b.md", "Nothing to see here.")

    assert paths(index, "did Ann buy a bicycle") == ["memory/a.md"]
    assert paths(index, "who is buying") == ["memory/a.md"]


def test_the_word_itself_counts_more_than_another_form(notes: Notes, index: SearchIndex) -> None:
    for n in range(6):
        notes.add(f"memory/{n}.md", f"filler number {n}")
    notes.add("memory/form.md", "They purchased it: purchase, purchase.")
    notes.add("memory/word.md", "We buy.")

    assert paths(index, "buy")[0] == "memory/word.md"


def test_accents_and_case_do_not_matter(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/a.md", "Réunion au CAFÉ de la gare")

    assert paths(index, "cafe reunion") == ["memory/a.md"]


def test_a_word_inside_a_run_of_cjk_is_found(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/zh.md", "我们讨论了金银价格上涨")
    notes.add("memory/ja.md", "昨日は会議でした")

    assert paths(index, "金银价格") == ["memory/zh.md"]
    assert paths(index, "价") == ["memory/zh.md"]
    assert paths(index, "会議") == ["memory/ja.md"]


def test_ids_are_found_exactly(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/a.md", "Reverted in a828e60, see ERR_CONN_42 and v1.5.2.")
    notes.add("memory/b.md", "Released v1.5.3; 42 tests; conn pool err rate; 5 and 2.")

    for token in ("a828e60", "ERR_CONN_42", "v1.5.2"):
        assert paths(index, token) == ["memory/a.md"], token


def test_a_version_that_no_note_has_gives_way_to_its_pieces(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/a.md", "Notes on release v1 and others")

    assert paths(index, "v1.9.9") == ["memory/a.md"]


def test_the_beginning_of_a_word_finds_it_when_nothing_else_does(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/a.md", "Kubernetes upgrade plan")

    assert paths(index, "kubern") == ["memory/a.md"]


def test_of_many_terms_the_rarest_are_kept(notes: Notes, index: SearchIndex) -> None:
    common = " ".join(f"common{n}" for n in range(20))
    for n in range(5):
        notes.add(f"memory/{n}.md", common)
    notes.add("memory/rare.md", "quokka")

    with index.snapshot() as connection:
        hits = retrievers.by_keyword(connection, analyse(f"{common} quokka"), None, 10)

    assert len(hits.terms) == retrievers.MAX_TERMS
    assert hits.terms[-1].label == "quokka"


def test_dated_notes_are_found_by_the_day_in_words(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/2023-05-08.md", "Walked the dog.")
    notes.add("memory/2023-05-09.md", "Walked the dog.")

    assert paths(index, "what happened on 8 May 2023")[0] == "memory/2023-05-08.md"


def named(index: SearchIndex, question: str) -> dict[str, int]:
    with index.snapshot() as connection:
        found = retrievers.by_name(connection, analyse(question), None, 50)
        path_of: Callable[[int], str] = lambda chunk_id: connection.execute(  # noqa: E731
            "SELECT path FROM files JOIN chunks ON file_id = files.id WHERE chunks.id = ?", (chunk_id,)
        ).fetchone()[0]
        return {path_of(chunk_id): tier for chunk_id, tier in found}


def test_files_are_known_by_path_name_stem_and_day(notes: Notes, index: SearchIndex) -> None:
    for path in ("memory/deploy-notes.md", "memory/2026-02-10-rollout.md", "memory/other_file.md"):
        notes.add(path, "something else")

    assert named(index, "what is in memory/deploy-notes.md?") == {"memory/deploy-notes.md": retrievers.PATH}
    assert named(index, "memory/deploy-notes") == {"memory/deploy-notes.md": retrievers.PATH}
    assert named(index, "open deploy-notes.md") == {"memory/deploy-notes.md": retrievers.NAME}
    assert named(index, "Deploy notes") == {"memory/deploy-notes.md": retrievers.STEM}
    assert named(index, "other-file") == {"memory/other_file.md": retrievers.STEM}
    assert named(index, "2026-02-10") == {"memory/2026-02-10-rollout.md": retrievers.STEM}
    assert named(index, "deploy%notes") == {}
