from datetime import date

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from memline.shared.search import keyword, retrievers, snippets
from memline.shared.search.query import MAX_CANDIDATES, MAX_CHARS, analyse
from memline.shared.search.ranking import KeywordHits
from memline.shared.search.reader import SearchIndex
from memline.shared.search.word_forms import related, spellings
from memline.shared.words import is_question, stop_words, stop_words_of
from tests.unit.search.conftest import Notes


def labels(question: str) -> list[str]:
    return [term.label for term in analyse(question).terms]


def matches(question: str) -> list[str]:
    return [term.match for term in analyse(question).terms]


def test_stop_words_are_dropped_and_the_rest_keeps_its_order() -> None:
    assert labels("What did we decide about the Redis timeout?") == ["decide", "redis", "timeout"]


def test_stop_words_stay_when_there_is_nothing_else() -> None:
    assert labels("To be or not to be") == ["to", "be", "or", "not"]


def test_stop_words_of_another_language_go_only_when_the_question_is_in_it() -> None:
    assert labels("Warum haben wir die Datenbank gewechselt") == ["datenbank", "gewechselt"]
    assert labels("the war and the die roll") == ["war", "die", "roll"]


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("What kind of books does Ann use for the seminar?", ["books", "ann", "seminar"]),
        ("what kind of books does she use for the seminar", ["books", "seminar"]),
        ("how many moorings do we make", ["many", "moorings", "make"]),
        ("how do I vendor Go modules", ["vendor", "go", "modules"]),
        ("make target of the docs", ["make", "target", "docs"]),
        ("Wo ist das Kind zur Schule gegangen?", ["kind", "schule", "gegangen"]),
    ],
)
def test_light_words_are_dropped_from_an_english_question_that_has_others(
    question: str, words: list[str]
) -> None:
    assert labels(question) == words


def test_words_of_days_and_light_words_are_no_evidence_beside_token_vectors() -> None:
    asked = analyse("What kind of boat did we sell on 8 May 2023?", today=date(2026, 3, 1))

    assert asked.light == ("kind", "8", "may", "2023")


@pytest.mark.parametrize(
    ("token", "phrase"),
    [
        ("v1.5.2", '"v1 5 2"'),
        ("ERR_CONN_42", '"err conn 42"'),
        ("2026-02-10", '"2026 02 10"'),
        ("src/app.py", '"src app py"'),
        ("10.0.0.1", '"10 0 0 1"'),
    ],
)
def test_ids_versions_dates_and_paths_are_phrases(token: str, phrase: str) -> None:
    assert phrase in matches(f"where is {token} mentioned?")


def test_the_pieces_of_a_version_are_no_terms_of_their_own() -> None:
    assert matches("v1.5.2") == ['"v1 5 2"']


def test_a_hyphenated_word_is_its_words() -> None:
    assert labels("pet-friendly flat") == ["pet", "friendly", "flat"]


def test_quoted_words_are_one_phrase() -> None:
    assert matches('who said "never deploy on friday" again') == ['"never deploy on friday"', '"said"']


def test_a_run_of_cjk_characters_is_its_pairs() -> None:
    assert matches("金银价格 Redis") == [
        '{grams} : "金银"',
        '{grams} : "银价"',
        '{grams} : "价格"',
        '"redis"',
    ]


def test_a_single_cjk_character_is_the_beginning_of_a_pair() -> None:
    assert matches("金") == ['{grams} : "金" *']


@pytest.mark.parametrize(
    "words", ["8 May 2023", "May 8, 2023", "8th of May 2023", "May 8th 2023", "2023-05-08"]
)
def test_a_day_in_words_is_looked_for_in_paths_and_headings(words: str) -> None:
    terms = analyse(f"what happened on {words}", date(2026, 3, 18)).terms

    assert '{path heading} : "2023-05-08"' in [term.match for term in terms]


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ("yesterday", []),
        ("what did I do last week", []),
        ("boats on 14 March", ["boats"]),
        ("2026-03-14", ["2026-03-14"]),
        ("boats since last Tuesday", ["boats"]),
        ("la semaine dernière", []),
        ("l'année dernière", []),
        ("barcos del martes pasado", ["barcos"]),
        ("na semana passada", []),
        ("14.3.2026", []),
        ("Notizen der letzten Woche", ["notizen"]),
        ("the la mar harbour last week", ["la", "mar", "harbour"]),
    ],
)
def test_the_words_of_a_day_are_hints_and_stop_words_beside_them_nothing(
    words: str, asked: list[str]
) -> None:
    question = analyse(words, date(2026, 3, 18))

    assert [term.label for term in question.terms if term.is_asked] == asked
    assert len(question.days) == 1


def test_days_in_quotes_are_words() -> None:
    question = analyse('who sings "Yesterday"', date(2026, 3, 18))

    assert not question.days
    assert [term.label for term in question.terms if term.is_exact] == ["yesterday"]


def test_an_accent_typed_as_two_characters_is_one_letter() -> None:
    assert labels("cafe\u0301") == ["caf\u00e9"]


def test_a_pasted_document_is_cut() -> None:
    question = analyse("needle " + "haystack" * 200_000)

    assert len(question.text) == MAX_CHARS
    assert question.terms[0].label == "needle"


def test_an_id_at_the_end_of_a_pasted_page_is_looked_for() -> None:
    assert "e1042" in labels("lorem " * 600 + "E1042")


def test_there_is_a_limit_to_the_terms() -> None:
    assert len(analyse(" ".join(f"word{n}" for n in range(500))).terms) == MAX_CANDIDATES


ANYTHING = st.one_of(
    st.text(max_size=200),
    # Lone surrogates, which no UTF-8 can carry.
    st.text(st.characters(categories=["Cs", "L", "P", "S", "Zs"]), max_size=40),
    st.lists(
        st.sampled_from(
            [
                *('"', "AND", "OR", "NOT", "NEAR(", ")", "(", "*", "^", ":", "{text}", "-", "+", "\x00", "'"),
                *(
                    "a",
                    "grams:",
                    "金",
                    "_",
                    "__",
                    "%",
                    "\\",
                    ";--",
                    "“",
                    "”",
                    "1e",
                    "٣",
                    "ₓ",
                    "\u0300",
                    "\u200d",
                ),
            ]
        ),
        max_size=12,
    ).map(" ".join),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(question=ANYTHING)
@example(question='" OR text:*')
@example(question="a\x00b")
@example(question="\ud800 \udfff")
@example(question='""" AND ( NOT')
@example(question="\u0301 \u0301 \u0301 a")
@example(question="x" * 1_000_000)
@example(question='"' * 100_000)
def test_no_question_is_a_syntax_error(filled: SearchIndex, question: str) -> None:
    with filled.snapshot() as connection:
        analysed = analyse(question)
        hits = keyword.by_keyword(connection, analysed, None, 10)
        keyword.by_keyword(connection, analysed, "[1]", 10)
        snippets.matched_terms(connection, hits, [1])
        retrievers.by_name(connection, analysed, KeywordHits(), None, 10)


@pytest.fixture
def filled(notes: Notes, index: SearchIndex) -> SearchIndex:
    notes.add("memory/a.md", "# Alpha\n\nA café, grams: 金银价格 and NEAR NOT AND or a-b_c.")
    return index


@pytest.mark.parametrize(
    ("word", "other"),
    [
        ("buy", "bought"),
        ("buying", "bought"),
        ("studies", "learn"),
        ("running", "ran"),
        ("children", "child"),
        ("conversion", "convert"),
        ("verified", "verification"),
        ("folders", "directory"),
        ("disabled", "deactivate"),
    ],
)
def test_irregular_forms_and_synonyms_are_known_in_every_ending(word: str, other: str) -> None:
    assert other in related(word)


@pytest.mark.parametrize(
    ("british", "american"),
    [
        ("organise", "organize"),
        ("summarising", "summarizing"),
        ("organisations", "organizations"),
        ("analysed", "analyzed"),
        ("behaviour", "behavior"),
        ("coloured", "colored"),
        ("favourites", "favorites"),
        ("travelled", "traveled"),
        ("cancelling", "canceling"),
        ("grey", "gray"),
        ("defence", "defense"),
    ],
)
def test_a_word_has_its_other_spelling_both_ways(british: str, american: str) -> None:
    assert (spellings(british), spellings(american)) == ([american], [british])


@pytest.mark.parametrize("word", ["four", "hour", "size", "called", "raise", "original", "journal"])
def test_most_words_have_no_other_spelling(word: str) -> None:
    assert spellings(word) == []


def test_a_word_is_not_related_to_itself_and_most_words_to_nothing() -> None:
    assert "buy" not in related("buy")
    assert related("a828e60") == {}


def test_english_is_the_rule() -> None:
    assert stop_words(["what", "is", "the", "die", "size"]) == stop_words_of("en")
    assert stop_words([]) == stop_words_of("en")


def test_a_question_in_french_gets_french_stop_words() -> None:
    assert stop_words(["où", "est", "la", "clé", "de", "la", "cave"]) == stop_words_of("fr")


def test_what_is_said_for_politeness_is_not_asked() -> None:
    asked = [analyse(each) for each in ("tell me about sluices please", "sluices", "sluices, thanks")]

    assert len({tuple(term.match for term in each.terms) for each in asked}) == 1


@pytest.mark.parametrize(
    ("text", "is_asked"),
    [
        ("When did we sell the boat?", True),
        ("the boat was sold when?)", True),
        ("船はいつ売れた？", True),
        ("what did we decide about the boat", True),
        ("who's on call", True),
        ("how many anchors", True),
        ("what kind of books does she read", True),
        ("is it paid", True),
        ("What a plugin shows", False),
        ("How to sync notes across devices", False),
        ("boat? anchor", False),
        ("isolation levels", False),
        ("", False),
    ],
)
def test_a_question_is_told_from_a_phrase(text: str, is_asked: bool) -> None:
    assert is_question(text) == is_asked
