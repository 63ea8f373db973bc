"""A word is found in its other forms, and as it was meant; what only resembles it counts less."""

import pytest

from memline.shared.config.schema import Query
from memline.shared.search import keyword
from memline.shared.search.query import analyse
from memline.shared.search.reader import SearchIndex
from memline.shared.search.request import SearchRequest
from memline.shared.search.retrieve import retrieve
from memline.shared.search.word_forms import inflections
from tests.unit.search.conftest import Notes, missing, paths


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


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("Мы купили ёлку и чёрный чай", "черный"),
        ("Die Straße ist nass", "strasse"),
        ("The oﬃce moved", "office"),
        ("Server ｄｅｐｌｏｙ done", "deploy"),
        ("ｶﾞｽ料金", "ガス"),
        ("x２ is the ﬁrst", "x2"),
        ("see ﬁle_one.cfg", "file_one.cfg"),
        ("the host is ＤＢ＿ＨＯＳＴ here", "DB_HOST"),
    ],
)
def test_forms_of_a_letter_find_each_other(
    notes: Notes, index: SearchIndex, written: str, asked: str
) -> None:
    notes.add("memory/a.md", written)
    notes.add("memory/b.md", asked)
    notes.add("memory/c.md", "nothing of the kind")

    with index.snapshot() as connection:
        found = keyword.by_keyword(connection, analyse(asked), None, 10)

    assert sorted(paths(index, asked)) == ["memory/a.md", "memory/b.md"]
    assert all(hit.is_full for hit in found.hits)


def test_a_question_is_folded_as_the_notes_are(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/елка.md", "Купили елку в офисе office")
    notes.add("memory/b.md", "# Чёрный чай\n\ntext")

    assert paths(index, "oﬃce") == ["memory/елка.md"]
    assert paths(index, "ёлку") == ["memory/елка.md"]
    assert paths(index, "черный") == ["memory/b.md"]


def test_headings_and_paths_are_folded_too(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/straße-süd.md", "# Чёрный чай\n\n" + "words and words\n" * 200 + "the end")

    assert paths(index, "strasse") == ["memory/straße-süd.md"] * len(paths(index, "strasse"))
    assert paths(index, "strasse")
    assert len(paths(index, "черный")) == len(paths(index, "strasse")) > 1
    # What is shown stays as it is written.
    found = notes.writer.connection.execute("SELECT DISTINCT heading FROM chunks").fetchall()
    assert found == [("Чёрный чай",)]


def test_a_synonym_does_not_stand_for_a_missing_word(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/a.md", "The vehicle is parked.")

    assert paths(index, "car") == ["memory/a.md"]
    assert missing(index, "car") == ("car",)


@pytest.mark.parametrize("asked", ["how do I start over", "I started over", "starting over"])
def test_a_verb_of_two_words_has_synonyms(notes: Notes, index: SearchIndex, asked: str) -> None:
    notes.add("memory/reset.md", "Reset the vault with one command.")
    notes.add("memory/boat.md", "The boat was painted.")

    assert paths(index, asked) == ["memory/reset.md"]
    assert missing(index, asked) in (("start",), ("started",), ("starting",))


@pytest.mark.parametrize("asked", ['"start over"', "over the start", "Jo in Paris", "work out the price"])
def test_what_is_no_verb_of_two_words_has_none(notes: Notes, index: SearchIndex, asked: str) -> None:
    notes.add("memory/reset.md", "Reset the vault, attend, and merge.")
    notes.add("memory/gym.md", "The gym opens at six.")

    assert paths(index, asked) == []


@pytest.mark.parametrize(
    ("whole", "halves", "more"),
    [
        ("flashcards", "flash cards", "Spanish"),
        ("login", "log in", "router"),
        ("checklist", "check list", "boats"),
        ("email", "e-mail", "plumber"),
    ],
)
def test_a_compound_counts_as_much_written_as_two_words(
    notes: Notes, index: SearchIndex, whole: str, halves: str, more: str
) -> None:
    for number in range(12):
        notes.add(f"memory/x{number}.md", f"Bread, butter and a walk, note n{number}.")
    notes.add("memory/one.md", f"My {whole} app.")
    notes.add("memory/two.md", f"Make {halves} for {more}.")

    for asked in (f"{whole} for {more}", f"{halves} for {more}"):
        hits = retrieve(index, SearchRequest(query=asked), Query()).hits
        assert (hits[0].path, hits[0].score >= 0.9) == ("memory/two.md", True), asked
    for asked in (whole, halves):
        hits = retrieve(index, SearchRequest(query=asked), Query()).hits
        assert {hit.path for hit in hits if hit.score >= 0.9} == {"memory/one.md", "memory/two.md"}, asked


def test_what_has_one_of_two_words_is_behind_what_has_their_compound(
    notes: Notes, index: SearchIndex
) -> None:
    notes.add("memory/logs.md", "The logs: all logs of the server are in logs.")
    notes.add("memory/login.md", "The page of the login is broken since Tuesday.")

    assert retrieve(index, SearchRequest(query="log in"), Query()).hits[0].path == "memory/login.md"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("flash cards", "flashcards"),
        ("e-mail", "email"),
        ("check list", "checklist"),
        ("check-list", "checklist"),
        ("log in", "login"),
        ("set up", "setup"),
        ("x-ray", "xray"),
        ("two", "2"),
        ("2-factor", "two-factor"),
        ("two factor", "2-factor"),
        ("twelve monkeys", "12 monkeys"),
    ],
)
def test_compounds_and_numbers_find_each_other(
    notes: Notes, index: SearchIndex, one: str, other: str
) -> None:
    for number in range(12):
        notes.add(f"memory/x{number}.md", f"Bread, butter and a walk, note n{number}.")
    notes.add("memory/one.md", f"We spoke of {one} there.")

    for asked in (one, other):
        answer = retrieve(index, SearchRequest(query=asked), Query())
        assert (answer.hits[0].path, answer.missing) == ("memory/one.md", ()), asked
        assert answer.hits[0].score >= 0.9
    notes.remove("memory/one.md")
    notes.add("memory/other.md", f"We spoke of {other} there.")
    assert paths(index, one)[0] == paths(index, other)[0] == "memory/other.md"


def test_two_words_with_an_article_between_them_are_not_one(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/a.md", "It was a part of it, and he met a friend.")

    assert missing(index, "apart") == ("apart",)
    assert missing(index, "meta") == ("meta",)


@pytest.mark.parametrize("question", ["email", "e-mail", "Emails", "E-Mails"])
def test_email_and_e_mail_find_each_other(notes: Notes, index: SearchIndex, question: str) -> None:
    notes.add("memory/one.md", "Send an email to Ann.")
    notes.add("memory/two.md", "Send an e-mail to Bob.")
    notes.add("memory/other.md", "The mail came late, plan e was dropped.")

    assert set(paths(index, question)) == {"memory/one.md", "memory/two.md"}
    assert missing(index, question) == ()


@pytest.mark.parametrize(
    ("asked", "written"),
    [
        ("severance", "several"),
        ("import", "important"),
        ("university", "universe"),
        ("news", "new"),
        ("new", "news"),
        ("regression", "regress"),
        ("emulator", "emulate"),
        ("general", "generate"),
        ("organization", "organ"),
    ],
)
def test_what_shares_only_its_stem_counts_a_third_and_the_word_is_missing(
    notes: Notes, index: SearchIndex, asked: str, written: str
) -> None:
    notes.add("memory/stem.md", f"{written}, {written} and {written}")
    notes.add("memory/other.md", "Nothing of the kind is here.")

    alone = retrieve(index, SearchRequest(query=asked), Query())
    notes.add("memory/word.md", f"A long note about many other things, and in it once, late, a {asked}.")
    both = retrieve(index, SearchRequest(query=asked), Query())

    assert alone.missing == (asked,)
    assert [hit.path for hit in alone.hits] == ["memory/stem.md"]
    assert alone.hits[0].score <= 0.5
    assert [hit.path for hit in both.hits] == ["memory/word.md", "memory/stem.md"]
    assert both.missing == ()
    assert both.hits[0].score >= 0.9 > 0.5 >= both.hits[1].score


@pytest.mark.parametrize(
    ("asked", "title"), [("relax", "Relaxation times"), ("café", "Cafes and cafeterias")]
)
def test_a_name_with_the_stem_alone_is_behind_a_chunk_with_the_word(
    notes: Notes, index: SearchIndex, asked: str, title: str
) -> None:
    words = " ".join(f"word{number}" for number in range(100))
    for number in range(3):
        notes.add(f"memory/{number}.md", f"# {title} {number}\n\nRelaxation, cafeteria, {number}")
    notes.add("memory/word.md", f"{words} {asked} {words}")
    notes.add("memory/named.md", f"# A {asked}\n\nNothing else.")

    assert paths(index, asked)[0] == "memory/named.md"
    if asked == "relax":
        assert paths(index, asked)[1] == "memory/word.md"


@pytest.mark.parametrize(
    ("asked", "written"),
    [
        ("import", "imported"),
        ("imports", "importing"),
        ("planning", "plans"),
        ("hope", "hoping"),
        ("studies", "study"),
        ("tried", "try"),
        ("boxes", "box"),
        ("cancel", "cancelled"),
        ("agreed", "agree"),
        ("using", "used"),
        ("Universities", "university"),
    ],
)
def test_plain_inflections_count_as_the_word_itself(
    notes: Notes, index: SearchIndex, asked: str, written: str
) -> None:
    notes.add("memory/form.md", f"It was {written} then.")

    answer = retrieve(index, SearchRequest(query=asked), Query())

    assert answer.missing == ()
    assert answer.hits[0].score >= 0.9
    assert inflections("car") == ["car", "cars", "carred", "carring"], "not those of care"


def test_a_page_whose_name_shares_the_stem_is_behind_the_rare_word_itself(
    notes: Notes, index: SearchIndex
) -> None:
    for number in range(60):
        notes.add(f"memory/{number}.md", f"A presentation of n{number} and more.")
    notes.add("docs/message presentation.md", "presentation presentation presentation")
    notes.add("memory/long.md", " ".join(["word"] * 150 + ["presentational"]))

    assert paths(index, "presentational")[0] == "memory/long.md"


def test_the_word_as_typed_comes_before_the_same_as_two_words(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/two.md", "An HTTP URL is optional.")
    notes.add("memory/typed.md", "The field httpUrl is optional.")

    found = retrieve(index, SearchRequest(query="httpurl"), Query())

    assert [hit.path for hit in found.hits] == ["memory/typed.md", "memory/two.md"]
    # Both hold what was asked.
    assert all(hit.score >= 0.9 for hit in found.hits)


def test_a_rare_word_comes_first_where_many_have_others_of_its_stem(
    notes: Notes, index: SearchIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memline.shared.search.keyword.ALONE_CHUNKS", 5)
    monkeypatch.setattr("memline.shared.search.ranking.ALONE_CHUNKS", 5)
    monkeypatch.setattr("memline.shared.search.keyword.FOUND_ENOUGH", 3)
    for number in range(30):
        notes.add(f"memory/{number}.md", f"The package has a doctor and grants access, {number} times.")
    notes.add(
        "memory/rare.md", "None but the packager signs. " + "It takes a while, and then some more. " * 20
    )

    found = retrieve(index, SearchRequest(query="access packager doctor", max_results=5), Query())

    assert found.hits[0].path == "memory/rare.md"
