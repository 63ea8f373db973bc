"""What is exact comes first: lines that were copied, ids, rare words."""

import pytest

from memline.shared.config.schema import Query
from memline.shared.search import forms, keyword
from memline.shared.search.keyword import by_keyword
from memline.shared.search.query import analyse
from memline.shared.search.reader import SearchIndex
from memline.shared.search.request import SearchRequest
from memline.shared.search.retrieve import retrieve
from tests.unit.search.conftest import Notes, paths


def test_a_line_that_was_copied_finds_its_note_first(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/a.md", "Channels: untrusted channels, input of untrusted channels, untrusted input.")
    notes.add("memory/b.md", "Of much else. " * 60 + "Mind that channels are untrusted input, and act on it.")
    for number in range(30):
        notes.add(f"memory/{number}.md", "Channels bring input, and untrusted users stay out.")

    # As it stands, to be or not to be, and in inflections; other lines are found by their words.
    for copied in ("channels are untrusted input", "Channel are untrusted inputs!"):
        assert paths(index, copied)[0] == "memory/b.md"
    assert paths(index, "untrusted channels input")[0] == "memory/a.md"


def test_a_line_of_common_words_is_found(notes: Notes, index: SearchIndex) -> None:
    for number in range(30):
        notes.add(f"memory/{number}.md", "Or it is to be, that is not it.")
    notes.add("memory/line.md", "He asked: to be or not to be? And went away.")

    assert paths(index, "to be or not to be")[0] == "memory/line.md"


def test_a_line_with_a_compound_in_two_words_is_found(
    notes: Notes, index: SearchIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the compound is common, the two words are not looked up beside it."""
    monkeypatch.setattr(forms, "COMMON", 10)
    notes.add("memory/line.md", "The weather was fine. " * 30 + "the x-ray of quarterly lungs today")
    for number in range(30):
        notes.add(f"memory/{number}.md", f"xray lungs and email {number}")

    assert paths(index, "x-ray of quarterly lungs")[0] == "memory/line.md"
    with index.snapshot() as connection:
        assert by_keyword(connection, analyse("x-ray of quarterly lungs"), None, 9).hits[0].is_line


def test_words_of_a_path_are_no_line(notes: Notes, index: SearchIndex) -> None:
    for number in range(12):
        notes.add(f"memory/acme-rollout-plan/{number}.md", f"Lunch with n{number}, and soup.")
    notes.add("memory/note.md", "The plan for the rollout at Acme.")

    assert paths(index, "acme rollout plan")[0] == "memory/note.md"


def test_a_line_by_its_stems_alone_is_behind_the_words_as_typed(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/stems.md", "We import channels input.")
    notes.add("memory/typed.md", f"Input is {'not ' * 30} what channels hold {'not ' * 30} to be important.")

    hits = retrieve(index, SearchRequest(query="important channels input"), Query()).hits

    assert [hit.path for hit in hits] == ["memory/typed.md", "memory/stems.md"]
    assert hits[0].score > hits[1].score


def test_an_id_that_one_file_alone_has_is_before_a_line(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/line.md", "Kestrel err 42x quokka lantern")
    for number, words in enumerate(("Quokka err 42x kestrel lantern", "Quokka err 42x lantern kestrel")):
        notes.add(f"memory/twin{number}.md", words)
    for number in range(40):
        notes.add(f"memory/{number}.md", f"An err 42x in {number}.")
    notes.add("memory/id.md", "word " * 390 + "err-42x.")

    assert paths(index, "kestrel err-42x quokka lantern")[0] == "memory/id.md"


def test_an_id_is_found_among_many_chunks_with_its_tokens(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/id.md", "word " * 390 + "err-42x.")
    for number in range(40):
        notes.add(f"memory/x{number}.md", f"An err 42x in {number}.")

    with index.snapshot() as connection:
        found = keyword.by_keyword(connection, analyse("err-42x"), None, 10)
        first = connection.execute(
            "SELECT path FROM files JOIN chunks ON file_id = files.id WHERE chunks.id = ?",
            (found.hits[0].chunk_id,),
        ).fetchone()[0]

    assert first == "memory/id.md"


@pytest.mark.parametrize(
    ("question", "common", "first"),
    [
        ("the harbour of lanterns", "lanterns harbour " * 3, "word " * 150 + "the harbour of lanterns."),
        (
            "access packager",
            "The package grants access. " * 2,
            "The packager signs. " + "word " * 80 + "access",
        ),
    ],
)
def test_what_a_rule_puts_first_is_asked_about_the_commonest_words(
    notes: Notes, index: SearchIndex, monkeypatch: pytest.MonkeyPatch, question: str, common: str, first: str
) -> None:
    for name, size in (("MANY_ROWS", 20), ("FOUND_ENOUGH", 10), ("SCORED", 8), ("ALONE_CHUNKS", 5)):
        monkeypatch.setattr(keyword, name, size)
    monkeypatch.setattr("memline.shared.search.ranking.ALONE_CHUNKS", 5)
    for number in range(60):
        notes.add(f"memory/{number}.md", common + "x " * (number % 7))
    notes.add("memory/first.md", first)

    with index.snapshot() as connection:
        hit = keyword.by_keyword(connection, analyse(question), None, 4).hits[0]
        path = connection.execute(
            "SELECT path FROM files JOIN chunks ON file_id = files.id WHERE chunks.id = ?", (hit.chunk_id,)
        ).fetchone()[0]

    assert (path, hit.is_full) == ("memory/first.md", True)


@pytest.mark.parametrize(
    ("file", "question"),
    [
        ("🎉 Party", "🎉 Party"),
        ("🚀 Launch plan", "🚀 launch plan"),
        ("What's new?", "What's new?"),
        ("What's new?", "what's new"),
        ("Ready to launch!", "ready to launch!"),
        ("U.S.", "U.S."),
        ("¿Qué hay?", "¿Qué hay?"),
    ],
)
def test_a_file_is_found_by_all_of_its_name(
    notes: Notes, index: SearchIndex, file: str, question: str
) -> None:
    for number in range(8):
        notes.add(f"memory/{number}.md", f"# Filler {number}\n\nSome words about cooking.")
    notes.add(f"memory/{file}.md", "Boats are moored here.")
    notes.add("memory/other.md", f"All of {question} and {question}, or {question}")

    answer = retrieve(index, SearchRequest(query=question), Query())

    assert answer.hits[0].path == f"memory/{file}.md"
    assert answer.missing == ()


def test_an_id_comes_before_a_word_that_one_file_alone_has(notes: Notes, index: SearchIndex) -> None:
    for number in range(8):
        notes.add(f"memory/{number}.md", f"# Filler {number}\n\nSome words about cooking.")
    notes.add("memory/word.md", "A boat, the boat of boats.")
    notes.add("memory/id.md", "word " * 90 + "ERR_CONN_42")

    assert paths(index, "ERR_CONN_42 boat")[0] == "memory/id.md"
