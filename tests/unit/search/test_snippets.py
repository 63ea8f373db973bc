import pytest

from memline.shared.search import keyword, snippets
from memline.shared.search.query import analyse
from memline.shared.search.reader import SearchIndex
from memline.shared.search.snippets import MAX_CHARS, Mark, rarity, snippet
from tests.unit.search.conftest import Notes

FILLER = "\n".join(f"- line {n} about nothing in particular, as lines go" for n in range(12))


def shown(notes: Notes, index: SearchIndex, text: str, question: str) -> str:
    """The snippet of the first hit in a note."""
    notes.add("memory/a.md", text)
    with index.snapshot() as connection:
        hits = keyword.by_keyword(connection, analyse(question), None, 1)
        texts = dict(connection.execute("SELECT id, text FROM chunks WHERE id = ?", (hits.hits[0].chunk_id,)))
        found = snippets.Marker().marks(hits, texts)
        ((chunk_id, whole),) = texts.items()
        return snippet(whole, found[chunk_id], rarity(found))


def test_a_short_chunk_is_shown_whole(notes: Notes, index: SearchIndex) -> None:
    assert shown(notes, index, "# Redis\n\nTimeout: 5 s\n", "redis") == "# Redis\n\nTimeout: 5 s"


def test_the_lines_with_the_evidence_are_shown(notes: Notes, index: SearchIndex) -> None:
    text = f"# Log\n{FILLER}\n- The Redis timeout was raised to 30 s.\n{FILLER}"

    part = shown(notes, index, text, "why was the redis timeout raised")

    assert "- The Redis timeout was raised to 30 s." in part
    assert len(part) <= MAX_CHARS
    assert set(part.split("\n")) <= set(text.split("\n"))


def test_evidence_is_matched_as_the_index_matches_it(notes: Notes, index: SearchIndex) -> None:
    text = f"{FILLER}\n- Ann bought a Café table.\n{FILLER}"

    assert "Ann bought a Café table." in shown(notes, index, text, "buying cafe tables")


def test_evidence_in_cjk_is_found(notes: Notes, index: SearchIndex) -> None:
    filler = "\n".join("这一行什么也没有说，只是为了占据一些地方。" * 2 for _ in range(9))
    text = f"{filler}\n我们讨论了金银价格上涨\n"
    notes.add("memory/other.md", filler)

    assert "金银价格" in shown(notes, index, text, "金银价格")


@pytest.mark.parametrize(
    ("word", "question"),
    [("Straße", "strasse"), ("ёлку", "елку"), ("ｶﾞｽ", "ガス"), ("oﬃce", "office"), ("㌔㍍", "キロ")],
)
def test_a_mark_stands_on_the_letters_of_the_text_as_it_is(
    notes: Notes, index: SearchIndex, word: str, question: str
) -> None:
    text = f"ﬃ ßß ёж ２½ {word} end"
    notes.add("memory/a.md", text)

    with index.snapshot() as connection:
        hits = keyword.by_keyword(connection, analyse(question), None, 1)
    marks = snippets.Marker().marks(hits, {1: text})[1]

    assert marks
    assert {text[mark.start : mark.end] for mark in marks} <= {word, "ｶﾞｽ", "㌔"}
    assert marks[0].start == text.index(word)


def test_a_line_that_is_too_long_is_cut_around_the_evidence(notes: Notes, index: SearchIndex) -> None:
    text = "filler words " * 30 + "the kestrel landed " + "more filler " * 60

    part = shown(notes, index, text, "kestrel landed")

    assert "the kestrel landed" in part
    assert len(part) <= MAX_CHARS
    assert part.startswith("…")
    assert part.endswith("…")


def test_without_a_match_the_beginning_is_shown() -> None:
    text = f"first\n{FILLER}\n{FILLER}"

    assert snippet(text, [], {}).startswith("first\n")


def test_a_word_in_few_hits_weighs_more() -> None:
    found = {
        1: [Mark(start=0, end=4, key="redis"), Mark(start=9, end=12, key="quokk")],
        2: [Mark(start=0, end=4, key="redis")],
    }

    weights = rarity(found)

    assert weights["quokk"] > weights["redis"] > 0


def test_a_text_with_control_characters_is_shown_as_it_is(notes: Notes, index: SearchIndex) -> None:
    assert shown(notes, index, "odd \x02redis\x03 text", "redis") == "odd \x02redis\x03 text"


def test_a_thousand_tiny_lines_are_no_trouble() -> None:
    text = "\n".join("a" for _ in range(799)) + "\nb"

    assert snippet(text, [Mark(start=1598, end=1599, key="b")], {"b": 1.0}).endswith("\nb")


def test_what_lines_say_in_other_words_counts_as_much_as_words_that_match() -> None:
    lines = [f"line {number} of a long chunk, as lines go, with nothing in it" for number in range(40)]
    marks = [Mark(start=0, end=4, key="line")]
    nothing: list[list[tuple[int, float]]] = [[] for _ in lines]
    said = [*nothing]
    said[30] = [(0, 0.7), (1, 0.5)]

    assert snippet("\n".join(lines), marks, {"line": 2.0}, nothing).startswith("line 0 ")
    assert "line 30 " in snippet("\n".join(lines), marks, {"line": 2.0}, said)


def test_what_is_said_again_counts_less_than_what_is_said_better() -> None:
    lines = [f"line {number} of a long chunk, as lines go, with nothing in it" for number in range(40)]
    said: list[list[tuple[int, float]]] = [[] for _ in lines]
    said[2] = said[3] = [(0, 0.5)]
    said[30] = [(0, 0.8)]

    assert "line 30 " in snippet("\n".join(lines), [], {}, said)
