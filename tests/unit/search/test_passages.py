import pytest

from memline.shared.config.schema import Query
from memline.shared.search.fusion import Candidate
from memline.shared.search.passages import once_of_both, passages
from memline.shared.search.reader import SearchIndex
from memline.shared.search.request import SearchRequest
from memline.shared.search.results import Answer
from memline.shared.search.retrieve import retrieve
from tests.unit.search.conftest import Notes

LINES = [f"{n} kestrels nest in the barn, as far as I know" for n in range(1, 101)]


def candidate(
    chunk_id: int, first: int, last: int, *, path: str = "a.md", source: str = "memory"
) -> Candidate:
    return Candidate(
        chunk_id=chunk_id, path=path, start_line=first, end_line=last, source=source, fused=1 - chunk_id / 100
    )


def cited(*spans: tuple[int, int], wanted: int = 6, max_tokens: int = 600) -> list[tuple[int, int]]:
    """The lines of the passages that are made of the chunks of one note, best first."""
    ranked = [candidate(n, *span) for n, span in enumerate(spans)]
    texts = {n: "\n".join(LINES[first - 1 : last]) for n, (first, last) in enumerate(spans)}
    made = passages(ranked, texts, wanted=wanted, max_tokens=max_tokens)
    for passage in made:
        assert passage.text.split("\n") == LINES[passage.start_line - 1 : passage.end_line]
    return [(passage.start_line, passage.end_line) for passage in made]


def test_chunks_that_overlap_or_adjoin_are_one_passage() -> None:
    assert cited((10, 20), (18, 30)) == [(10, 30)]
    assert cited((18, 30), (10, 20)) == [(10, 30)]
    assert cited((10, 20), (21, 30)) == [(10, 30)]
    assert cited((10, 20), (12, 15)) == [(10, 20)]
    assert cited((10, 20), (22, 30)) == [(10, 20), (22, 30)]


def test_a_passage_is_a_chunk_and_a_half_at_most() -> None:
    (first, last), *rest = cited((1, 30), (26, 60))

    assert (first, rest) == (1, [])
    assert (
        sum(len(line) + 1 for line in LINES[:last])
        <= 2_400
        < sum(len(line) + 1 for line in LINES[: last + 1])
    )
    assert cited((1, 45), (40, 90)) == [(1, 45), (40, 90)]


def test_the_places_that_are_freed_go_to_others() -> None:
    assert cited((1, 10), (9, 18), (40, 50), wanted=2) == [(1, 18), (40, 50)]


def test_fewer_passages_are_a_prefix_of_more() -> None:
    spans = [(n * 7 % 90 + 1, n * 7 % 90 + 8) for n in range(60)]
    most = cited(*spans, wanted=30)

    for wanted in range(30):
        assert cited(*spans, wanted=wanted) == most[:wanted]


def test_chunks_of_other_files_and_pieces_of_one_line_stay_apart() -> None:
    ranked = [candidate(1, 5, 5), candidate(2, 5, 5), candidate(3, 5, 5, path="b.md")]
    texts = {1: "one half of it", 2: "the other half", 3: "another note"}

    assert len(passages(ranked, texts, wanted=9, max_tokens=600)) == 3


@pytest.mark.parametrize(
    "links",
    [
        "[book]: https://example.org/book\n[guide]: https://example.org/guide 'The book'",
        "- [book](https://example.org/book)\n- [guide](guide.md)\n* [more](more.md)",
        "https://example.org/book/guide\n<https://example.org/guide>",
    ],
)
@pytest.mark.parametrize("question", ["reading list", "Reading list.md", "ERR_CONN_42 boat"])
def test_a_note_of_links_is_found_as_any_other(
    notes: Notes, index: SearchIndex, links: str, question: str
) -> None:
    notes.add("memory/Reading list.md", f"{links}\n<https://example.org/ERR_CONN_42>")
    notes.add("memory/o.md", "# Habits\n\nReading, a list of reading, and lists. A boat, the boat.")
    for number in range(8):
        notes.add(f"memory/{number}.md", f"# Filler {number}\n\nSome words about cooking.")

    hits = retrieve(index, SearchRequest(query=question), Query()).hits

    assert hits[0].path == "memory/Reading list.md"


TALK = "we moved the nightly restore drill to the second tuesday of the month because the ferry leaves early"


def asked(index: SearchIndex, **options: str) -> Answer:
    return retrieve(index, SearchRequest(query="restore drill tuesday", **options), Query())


def test_a_note_stands_for_a_transcript_with_the_same_words(notes: Notes, index: SearchIndex) -> None:
    notes.add("sessions/a.jsonl", f"User: {TALK}", source="sessions")
    notes.add("memory/a.md", f"# Log\n\nA long day.\n\n- {TALK.capitalize()}.\n\nThen we went home.")
    other = "User: is the restore drill on tuesday or later, and who does it"
    notes.add("sessions/b.jsonl", other, source="sessions")

    assert {hit.path for hit in asked(index).hits} == {"memory/a.md", "sessions/b.jsonl"}
    sessions = asked(index, source="sessions").hits
    assert {hit.path for hit in sessions} == {"sessions/a.jsonl", "sessions/b.jsonl"}


def test_other_words_in_the_same_number_are_another_text() -> None:
    note, transcript = candidate(1, 1, 1), candidate(2, 1, 1, path="s.jsonl", source="sessions")
    texts = {1: TALK, 2: " ".join(sorted(TALK.split()))}

    assert once_of_both([note, transcript], texts) == [note, transcript]
    assert once_of_both([note, transcript], {1: TALK, 2: TALK}) == [note]


def test_words_that_a_note_repeats_count_in_the_order_of_the_transcript() -> None:
    note, transcript = candidate(1, 1, 1), candidate(2, 1, 1, path="s.jsonl", source="sessions")
    # The longest run that both have is no part of the best.
    said = "the ferry leaves at nine and we walk to the old pier"
    texts = {1: f"to the old pier. {' well '.join(said.split())}. {'well ' * 2_000}", 2: said}

    assert once_of_both([transcript, note], texts) == [note]


def test_a_search_cites_neighbours_once(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/a.md", "\n".join(LINES[:55]))
    notes.add("memory/b.md", "Kestrels in the barn.")

    merged = retrieve(index, SearchRequest(query="kestrels barn"), Query()).hits
    alone = retrieve(index, SearchRequest(query="kestrels barn", merge=False), Query()).hits

    spans = {hit.path: (hit.start_line, hit.end_line) for hit in merged}
    assert len(merged) == 2
    assert spans["memory/a.md"][0] == 1
    assert spans["memory/a.md"][1] > 45
    assert len(alone) == 3
