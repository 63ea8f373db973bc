import pytest

from memline.shared.search.question import MAX_CHARS, analyse

TERMS = [
    ("what did we decide about the database?", ["decide", "database"]),
    ("the of and", ["the", "of", "and"]),
    ("?!", []),
    ("b3b9895a", ["b3b9895a"]),
    ("ERR_CONN_42 and OPS-7731", ["err_conn_42", "ops-7731"]),
    ("edit src/app/main.py", ["src/app/main.py", "edit", "src", "app", "main", "py"]),
    ("high-speed and/or wifi", ["high", "speed", "wifi"]),
    ("an e-mail", ["e-mail"]),
    ('"redis timeout" now', ["redis timeout"]),
    ("a 2-factor login", ["2", "factor", "login"]),
    ("東京都", ["東京", "京都"]),
    ("用Caddy吗", ["用", "吗", "caddy"]),
    ("what kind of boat do we make", ["kind", "boat", "make"]),
    ("what kind of boat and trailer do we use?", ["boat", "trailer"]),
    ("wie ist das Boot", ["boot"]),
]


@pytest.mark.parametrize(("question", "labels"), TERMS)
def test_a_question_has_these_terms(question, labels):
    terms = analyse(question).terms

    assert [term.label for term in terms if term.kind != "phrase"] == labels


@pytest.mark.parametrize(
    "question", ['"', 'a" OR b', "NEAR(a b)", "a*", "{text}: x", "x" * 9_000, "\ud800 a"]
)
def test_no_question_is_syntax(question):
    for term in analyse(question).terms:
        assert term.match.count('"') % 2 == 0
    assert len(analyse(question).text) <= MAX_CHARS
