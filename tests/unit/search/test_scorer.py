"""Which note is first, by the words of a question alone."""

from contextlib import closing

import pytest

from memline.shared.search.search_index import SearchIndex
from tests.unit.search.conftest import Notes, ask, paths

FILLER = "Weather and lunch, a walk, some reading about gardens and stones."

#: Notes beside twelve others; a question; which of them is first.
FIRST = {
    "the words of a quote stand together": (
        {"a.md": "The timeout of redis.", "b.md": "A redis timeout."},
        '"redis timeout"',
        "b.md",
    ),
    "words that stand together are above words far apart": (
        {"a.md": f"Boiler. {FILLER * 5} Valve.", "b.md": f"{FILLER * 3} Boiler valve. {FILLER * 2}"},
        "boiler valve",
        "b.md",
    ),
    "an irregular form is found": ({"a.md": "We bought a kettle."}, "who buys kettles", "a.md"),
    "another spelling is found": ({"a.md": "How we organise it."}, "organize", "a.md"),
    "a beginning is found": ({"a.md": "The configuration is old."}, "config", "a.md"),
    "a title that is most of the question is lifted": (
        {"hp.md": "# Harbour plan\n\nBudget.", "x.md": "The plan of a harbour has a budget. Show it."},
        "show the harbour plan",
        "hp.md",
    ),
    "a list gives its sum to the note that it describes": (
        {
            "index.md": "- [Boat](boat.md): broker, policy and renewal\n"
            "- [Car](car.md): its own garage, and tyres\n- [House](house.md): the roof and what else leaks",
            "boat.md": "# Boat\n\nIt is insured by the broker.",
            "car.md": "A car.",
            "house.md": "A house.",
        },
        "renewal of the policy by the broker",
        "boat.md",
    ),
    "a version is found with its letter and without": ({"a.md": "Use 18.3.0 now."}, "v18.3.0", "a.md"),
}


@pytest.mark.parametrize("case", FIRST)
def test_it_is_first(notes, index, case):
    texts, question, first = FIRST[case]
    for number in range(12):
        notes.add(f"filler/{number}.md", f"{FILLER} Number {number}.")
    for path, text in texts.items():
        notes.add(path, text)

    assert paths(index, question)[0] == first


@pytest.mark.parametrize(
    ("question", "missing"),
    [
        ("espresso wombatizer", ("wombatizer",)),
        ("espreso", ("espreso",)),
        ("ERR_NONE_42 espresso", ("ERR_NONE_42",)),
        ("bought espresso", ()),
        ("犬小屋", ("犬小屋",)),
    ],
)
def test_words_that_no_note_has_are_missing(notes, index, question, missing):
    notes.add("a.md", "Buy an espresso machine.")

    assert ask(index, question).missing == missing


def test_a_chunk_with_a_word_and_another_form_of_it_holds_the_word(notes, index):
    notes.add("a.md", "We bought what others buy.")
    for number in range(3):
        notes.add(f"{number}.md", f"They buy {number}.")

    assert ask(index, "bought").hits[0].text_score == 1.0


def test_common_words_score_what_rare_ones_find(notes, opened):
    for number in range(700):
        notes.add(f"{number}.md", f"common words, more common words {number}")
    notes.add("rare.md", "a common kestrel")
    index = opened(long_lived=True)

    first = paths(index, "common words kestrel")

    assert first[0] == "rare.md"
    assert paths(index, "common words kestrel") == first


def test_a_question_in_some_files_is_answered_from_these(notes, index):
    notes.add("in/a.md", "kestrel")
    notes.add("out/b.md", "kestrel barn")

    answer = ask(index, "kestrel barn", path="in/**")

    assert [hit.path for hit in answer.hits] == ["in/a.md"]
    assert answer.missing == ("barn",)


@pytest.mark.parametrize("question", ["stove", "stove of the cellar"])
def test_an_index_that_was_made_in_another_order_answers_the_same(tmp_path, clock, question):
    answers = []
    for name, step in (("forwards", 1), ("backwards", -1)):
        notes = Notes(tmp_path / f"{name}.sqlite", clock)
        with closing(notes.writer), closing(SearchIndex(notes.path)) as index:
            for number in range(150)[::step]:
                notes.add(f"{number:03}.md", f"The stove {number:03}.{' In the cellar.' * (number % 3 == 0)}")
            answers.append([(hit.path, hit.score) for hit in ask(index, question, max_results=100).hits])

    assert answers[0] == answers[1]
