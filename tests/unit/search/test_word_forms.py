"""Forms of a word: inflections, spellings, endings of other languages, and words that are typed wrong."""

import pytest

from memline.shared.config.schema import Query
from memline.shared.search import keyword
from memline.shared.search.forms import MOST_SLIPS
from memline.shared.search.query import analyse
from memline.shared.search.reader import SearchIndex
from memline.shared.search.request import SearchRequest
from memline.shared.search.retrieve import retrieve
from tests.unit.search.conftest import Notes, paths


@pytest.mark.parametrize(
    "forms",
    [
        *("bus buses", "status statuses", "alias aliases aliased", "focus focused focusing", "gas gases"),
        *("die dies died dying", "tie ties tied", "quiz quizzes", "panic panicked", "queue queued queuing"),
        *("analysis analyses", "crisis crises", "axis axes", "wolf wolves", "free freed", "go goes"),
        *(
            "embed embeds embedded embedding embeddings",
            "succeed succeeded succeeding",
            "exceed exceeds exceeded",
        ),
    ],
)
def test_inflections_that_the_stemmer_keeps_apart_find_each_other(
    notes: Notes, index: SearchIndex, forms: str
) -> None:
    for number in range(8):
        notes.add(f"memory/{number}.md", f"# Filler {number}\n\nSome words about cooking.")
    for form in forms.split():
        notes.add(f"memory/{form}.md", f"Yesterday afternoon the {form} was talked over at length.")

    for form in forms.split():
        answer = retrieve(index, SearchRequest(query=form), Query())
        assert {hit.path for hit in answer.hits} == {f"memory/{each}.md" for each in forms.split()}
        # They are the word itself.
        assert all(hit.score >= 0.9 for hit in answer.hits)


@pytest.mark.parametrize(("asked", "written"), [("behaviours", "behavior"), ("organizing", "organised")])
def test_another_spelling_is_the_word_and_a_little_less_beside_it(
    notes: Notes, index: SearchIndex, asked: str, written: str
) -> None:
    for number in range(8):
        notes.add(f"memory/{number}.md", f"# Filler {number}\n\nSome words about cooking.")
    notes.add("memory/other.md", f"Yesterday afternoon their {written} was talked over at length.")

    alone = retrieve(index, SearchRequest(query=asked), Query())
    notes.add("memory/typed.md", f"Yesterday afternoon their {asked} was talked over at length.")
    both = retrieve(index, SearchRequest(query=asked), Query())

    assert (alone.missing, [hit.path for hit in alone.hits]) == ((), ["memory/other.md"])
    assert [hit.path for hit in both.hits] == ["memory/typed.md", "memory/other.md"]
    assert all(hit.score >= 0.9 for hit in (*alone.hits, *both.hits))


@pytest.mark.parametrize(
    ("question", "note"),
    [
        ("wo sind die Häuser", "Das Haus am See wurde verkauft."),
        ("wo sind die Verträge", "Der Vertrag endet im Mai."),
        ("où sont les chevaux", "Le cheval est au pré."),
        ("cuándo son las reuniones", "La reunión del lunes."),
        ("para que são os animais", "O animal doente foi para casa."),
        ("dove sono le fatture", "La fattura del dottore."),
    ],
)
def test_words_of_other_languages_have_their_endings(
    notes: Notes, index: SearchIndex, question: str, note: str
) -> None:
    for number in range(8):
        notes.add(f"memory/{number}.md", f"# Filler {number}\n\nSome words about cooking.")
    notes.add("memory/a.md", note)

    answer = retrieve(index, SearchRequest(query=question), Query())

    assert answer.hits[0].path == "memory/a.md"
    assert answer.missing == ()


@pytest.mark.parametrize(
    ("question", "note"),
    [
        ("cuál es el puerto de la ciudad", "La puerta de la ciudad."),
        ("où est le port de la ville", "La porte de la ville."),
        ("wo ist die Macht der Stadt", "Was machen wir in der Stadt?"),
        ("where is the Docker config", "The dock and its config."),
    ],
)
def test_words_with_other_endings_may_be_other_words(
    notes: Notes, index: SearchIndex, question: str, note: str
) -> None:
    notes.add("memory/a.md", note)

    (hit,) = retrieve(index, SearchRequest(query=question), Query()).hits

    assert hit.score < 0.9


@pytest.mark.parametrize("word", ["Docker", "corner", "poster", "printer"])
def test_a_keyword_is_not_taken_for_what_it_is_made_of(notes: Notes, index: SearchIndex, word: str) -> None:
    notes.add("memory/a.md", "Dock, corn, post and print.")

    assert paths(index, word) == []


@pytest.mark.parametrize("word", ["Auf\u200clage", "नमस्ते", "தமிழ்", "می\u200cخواهم", "x" * 70, "été2"])
def test_a_word_with_letters_that_part_words_has_no_endings(
    notes: Notes, index: SearchIndex, word: str
) -> None:
    notes.add("memory/a.md", f"Hier steht {word} im Text.")

    assert paths(index, f"wo ist die {word} und das") == ["memory/a.md"]


def test_a_word_of_another_language_comes_first_as_it_was_typed(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/one.md", "Die Rechnung vom Klempner liegt im Ordner.")
    notes.add("memory/many.md", "Die Rechnungen vom Klempner liegen im Ordner.")

    assert paths(index, "wo ist die Rechnung") == ["memory/one.md", "memory/many.md"]
    assert paths(index, "wo sind die Rechnungen") == ["memory/many.md", "memory/one.md"]
    # Keywords may be of any language.
    assert paths(index, "Rechnung") == ["memory/one.md"]


def test_a_keyword_that_is_nowhere_is_looked_for_with_another_ending(
    notes: Notes, index: SearchIndex
) -> None:
    notes.add("memory/a.md", "Ein Buch über Vögel.")

    answer = retrieve(index, SearchRequest(query="Bücher"), Query())

    assert [hit.path for hit in answer.hits] == ["memory/a.md"]
    assert answer.missing == ("Bücher",)
    assert "searched instead: buch" in answer.notice


def test_the_beginning_of_a_word_finds_it_when_nothing_else_does(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/a.md", "Kubernetes upgrade plan")

    assert paths(index, "kubern") == ["memory/a.md"]


@pytest.mark.parametrize(
    "typed", ["environent", "environnment", "enviromnent", "environmant", "environments"]
)
def test_a_word_that_is_typed_wrong_finds_the_one_that_is_meant(
    notes: Notes, index: SearchIndex, typed: str
) -> None:
    notes.add("memory/a.md", "Variables of the environment")
    notes.add("memory/b.md", "Variables of the configuration")

    with index.snapshot() as connection:
        found = keyword.by_keyword(connection, analyse(typed), None, 10)

    assert paths(index, f"variables {typed}")[0] == "memory/a.md"
    assert paths(index, typed) == ["memory/a.md"]
    # It stands nowhere all the same.
    assert found.missing == (() if typed == "environments" else (typed,))
    assert [hit.is_full for hit in found.hits] == [typed == "environments"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("програма", "Программа"), ("праграмма", "Программа"), ("μαθματα", "Μαθηματα"), ("gärtne", "Gärtner")],
)
def test_words_of_other_scripts_are_typed_wrong_too(
    notes: Notes, index: SearchIndex, typed: str, meant: str
) -> None:
    notes.add("memory/a.md", f"{meant} 2026")

    assert paths(index, typed) == ["memory/a.md"]


def test_of_words_that_may_be_meant_the_commonest_is(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/rare.md", "The marker is red")
    notes.add("memory/a.md", "The market opens at eight")
    notes.add("memory/b.md", "The market is closed")

    assert sorted(paths(index, "markeh")) == ["memory/a.md", "memory/b.md"]


def test_of_words_that_may_be_meant_the_commonest_of_what_is_searched_is(
    notes: Notes, index: SearchIndex
) -> None:
    notes.add("memory/a.md", "The market opens at eight")
    notes.add("memory/b.md", "The market is closed")
    notes.add("memory/rare.md", "The marker is red")

    with index.snapshot() as connection:
        query = "SELECT id FROM files WHERE path = 'memory/rare.md'"
        file_id = connection.execute(query).fetchone()[0]
        found = keyword.by_keyword(connection, analyse("markeh"), f"[{file_id}]", 10)

    assert found.meant == ("marker",)


def test_of_many_words_that_stand_nowhere_a_few_are_taken_for_typed_wrong(
    notes: Notes, index: SearchIndex
) -> None:
    words = ["market", "bottle", "garden", "window", "kestrel", "harbour"]
    notes.add("memory/a.md", " ".join(words))

    with index.snapshot() as connection:
        found = keyword.by_keyword(connection, analyse(" ".join(f"{word}x" for word in words)), None, 10)

    assert found.meant == tuple(words[:MOST_SLIPS])


def test_words_that_are_there_short_or_long_are_not_typed_wrong(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/a.md", "A table in test room 40212")
    notes.add("memory/b.md", "A cable on the roof, " + 30 * "x")

    assert paths(index, "cable") == ["memory/b.md"]
    for typed in ("tset", "40211", 29 * "x" + "y"):
        assert not paths(index, typed), typed


@pytest.mark.parametrize("word", ["eing", "\u118ding", "e\u0345ing"])
def test_a_word_whose_forms_begin_with_nothing_is_found(notes: Notes, index: SearchIndex, word: str) -> None:
    notes.add("memory/a.md", f"The {word} thing is here, broken boat.")

    assert paths(index, f"{word} boat") == ["memory/a.md"]
