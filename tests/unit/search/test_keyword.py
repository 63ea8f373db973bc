import random
import re

import pytest

from memline.shared.config.schema import Query
from memline.shared.search import keyword
from memline.shared.search.forms import MOST_SLIPS, inflections
from memline.shared.search.postings import CHUNKS, Postings
from memline.shared.search.query import analyse
from memline.shared.search.reader import SearchIndex
from memline.shared.search.request import SearchRequest
from memline.shared.search.retrieve import retrieve
from tests.unit.search.conftest import Notes


def paths(index: SearchIndex, question: str) -> list[str]:
    """Paths of the keyword hits, best first."""
    with index.snapshot() as connection:
        hits = keyword.by_keyword(connection, analyse(question), None, 10)
        return [
            connection.execute(
                "SELECT path FROM files JOIN chunks ON file_id = files.id WHERE chunks.id = ?",
                (hit.chunk_id,),
            ).fetchone()[0]
            for hit in hits.hits
        ]


def test_one_absent_word_hides_nothing(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/a.md", "The redis timeout is five seconds.")

    assert paths(index, "why is the redis timeout xylophone") == ["memory/a.md"]


def test_a_chunk_with_more_of_the_rare_words_comes_first(notes: Notes, index: SearchIndex) -> None:
    for n in range(8):
        notes.add(f"memory/{n}.md", f"We met and talked about the garden, part {n}.")
    notes.add("memory/both.md", "We talked about the kestrel in the garden.")

    assert paths(index, "kestrel garden")[0] == "memory/both.md"


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


def test_a_missing_word_is_named_as_typed(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/a.md", "words")

    with index.snapshot() as connection:
        found = keyword.by_keyword(connection, analyse("words Ёлка oﬃce ﬁ_1.md"), None, 10)

    assert found.missing == ("ﬁ_1.md", "Ёлка", "oﬃce")


def test_a_changed_note_leaves_nothing_of_its_old_words(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/ёж.md", "Die Straße")
    notes.add("memory/ёж.md", "Der Weg")

    assert paths(index, "strasse") == []
    assert paths(index, "weg") == ["memory/ёж.md"]
    notes.writer.connection.execute("INSERT INTO chunks_fts (chunks_fts, rank) VALUES ('integrity-check', 1)")


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


def test_of_many_terms_the_rarest_are_kept(notes: Notes, index: SearchIndex) -> None:
    common = " ".join(f"common{n}" for n in range(40))
    for n in range(5):
        notes.add(f"memory/{n}.md", common)
    notes.add("memory/rare.md", "quokka")

    with index.snapshot() as connection:
        hits = keyword.by_keyword(connection, analyse(f"{common} quokka"), None, 10)

    assert len(hits.terms) == keyword.MAX_TERMS
    assert hits.terms[-1].label == "quokka"


def test_dated_notes_are_found_by_the_day_in_words(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/2023-05-08.md", "Walked the dog.")
    notes.add("memory/2023-05-09.md", "Walked the dog.")

    assert paths(index, "what happened on 8 May 2023")[0] == "memory/2023-05-08.md"


def deploys(notes: Notes, note: str) -> None:
    """Sixty fillers, three notes that repeat a common word, and one long note."""
    for n in range(60):
        notes.add(f"memory/filler-{n}.md", f"Note {n}: bread, butter and a walk in the garden.")
    for n in range(3):
        notes.add(f"memory/often-{n}.md", "Deploy, deploy, deploy!")
    words = " ".join(f"word{n}" for n in range(105))
    notes.add("memory/long.md", f"{words} {note} {words}")


@pytest.mark.parametrize(
    ("note", "question"),
    [
        ("the deploy of b3b9895a was rolled back", "deploy b3b9895a"),
        ("b3b9895a was rolled back", "deploy deploys deploying b3b9895a"),
        ("the deploy of the kestrel service", "deploy kestrel"),
        ("the kestrel service", "deploy kestrel"),
        ("never on a Friday, she said", 'deploy "never on a friday"'),
        ("ERR_CONN_42 was seen", "deploy walk garden butter bread ERR_CONN_42"),
    ],
)
def test_an_id_a_quoted_phrase_and_the_rarest_word_come_before_frequent_words(
    notes: Notes, index: SearchIndex, note: str, question: str
) -> None:
    deploys(notes, note)

    assert paths(index, question)[0] == "memory/long.md"


@pytest.mark.parametrize(
    ("whole", "parts"),
    [
        ("docker-compose.prod.yml", "docker compose prod yml, docker-compose.prod.yml.bak"),
        ("DATABASE_POOL_SIZE", "The database pool size. DATABASE_POOL_SIZE_MAX, pool size of a database"),
        ("nadia.k@example.org", "Nadia K, example org. nadia.k@example.org.uk"),
        ("v18.3.0", "v18 and 3.0, release 18.3.0-rc1 of v18.3.0.1"),
    ],
)
def test_the_whole_id_counts_and_not_its_pieces(
    notes: Notes, index: SearchIndex, whole: str, parts: str
) -> None:
    for n in range(6):
        notes.add(f"memory/parts-{n}.md", f"{parts} {parts} {parts} part {n}")
    words = " ".join(f"word{n}" for n in range(105))
    notes.add("memory/whole.md", f"{words} it is ({whole}) that we mean. {words}")

    assert paths(index, f"where is {whole}")[0] == "memory/whole.md"
    assert missing(index, f"where is {whole}") == ()


def test_a_version_is_found_with_the_letter_and_without(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/bare.md", "Node moved to 18.3.0 today.")
    notes.add("memory/letter.md", "Node moved to v19.4.1 today.")
    notes.add("memory/other.md", "Node 18, 3 and 0; v19, 4 and 1.")

    assert paths(index, "v18.3.0")[0] == "memory/bare.md"
    assert paths(index, "19.4.1")[0] == "memory/letter.md"
    assert missing(index, "v18.3.0 19.4.1") == ()


@pytest.mark.parametrize("others", [1, 2, 5])
def test_small_memories_rank_as_large_ones_do(notes: Notes, index: SearchIndex, others: int) -> None:
    for n in range(others):
        notes.add(f"memory/{n}.md", "Redis, redis, redis, redis.")
    notes.add("memory/z-both.md", "Of redis and its timeout, and of many other things that day.")

    with index.snapshot() as connection:
        hits = keyword.by_keyword(connection, analyse("redis timeout"), None, 10).hits

    assert paths(index, "redis timeout")[0] == "memory/z-both.md"
    assert [hit.is_full for hit in hits] == [True] + [False] * others
    assert all(0.01 < hit.coverage < 0.7 for hit in hits[1:])


def missing(index: SearchIndex, question: str, files: str | None = None) -> tuple[str, ...]:
    with index.snapshot() as connection:
        return keyword.by_keyword(connection, analyse(question), files, 10).missing


def test_words_that_stand_nowhere_are_named_as_typed(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/a.md", "Ann bought a bicycle; Kubernetes runs v1.5.2. 我们讨论了金银价格上涨")

    assert missing(index, "Did Ann buy bicycles?") == ()
    assert missing(index, "Why did Xylophone and the QUOKKA buy bicycles") == ("Xylophone", "QUOKKA")
    assert missing(index, "ERR_CONN_42 kubern") == ("ERR_CONN_42", "kubern")
    assert missing(index, 'who said "a bicycle Bought"') == ("a bicycle Bought", "said")
    assert missing(index, "docker-compose.prod.yml") == ("docker-compose.prod.yml",)
    assert missing(index, "金银价格") == ()
    assert missing(index, "金银手表店") == ("银手表店",)


def test_a_synonym_does_not_stand_for_a_missing_word(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/a.md", "The vehicle is parked.")

    assert paths(index, "car") == ["memory/a.md"]
    assert missing(index, "car") == ("car",)


def test_missing_is_about_what_was_searched(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/a.md", "redis")
    notes.add("memory/b.md", "quokka")

    assert missing(index, "redis quokka", "[1]") == ("quokka",)
    assert missing(index, "redis quokka", "[1, 2]") == ()


def test_the_number_of_chunks_is_read_as_fts5_counts_them(notes: Notes, index: SearchIndex) -> None:
    for n in range(200):
        notes.add(f"memory/{n}.md", f"note {n}")
    notes.remove("memory/7.md")

    with index.snapshot() as connection:
        assert Postings().rows(connection, CHUNKS) == 199


def test_common_words_only_score_what_rare_ones_found(
    notes: Notes, index: SearchIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(40):
        notes.add(f"memory/{n:02}.md", f"common words {'rare ' if n % 4 == 0 else ''}number {n}")
    whole = paths(index, "rare common number")

    monkeypatch.setattr(keyword, "FOUND_ENOUGH", 5)

    assert paths(index, "rare common number") == whole
    assert len(whole) == 10


@pytest.mark.parametrize(
    ("typed", "like_it"),
    [
        ("--max-old-space-size", "max old space size, max-old-space-size"),
        ("@types/node", "types/node, types node"),
        ("std::vector", "std vector, std.vector"),
        ("MyClass::method", "MyClass method, MyClass.method, myclass-method"),
        ("foo()", "foo, foo and foo; foo(x)"),
        ("50%", "50 and 50"),
        ("C++", "C, c and C#, plan C"),
        ("C#", "C, c and C++, plan C"),
        (".env", "env, the env of it, x.env, .env.local"),
        ("src/*.ts", "src/a.ts, src ts, src/*.tsx"),
        ("$HOME/bin", "home/bin"),
        ("~/.bashrc", "bashrc, the bashrc"),
        ("**kwargs", "kwargs, kwargs of it"),
        ("R&D", "R or D, R, D"),
        ("🚀", "rocket 🎉"),
        ("👩‍💻", "👩 💻"),
        ("❤️", "heart 🧡"),
    ],
)
def test_a_name_of_code_finds_the_note_that_has_exactly_it(
    notes: Notes, index: SearchIndex, typed: str, like_it: str
) -> None:
    for number in range(70):
        notes.add(f"memory/{number:02}.md", f"{like_it}. {like_it}; {like_it}, note {number}")
    nowhere = missing(index, typed)
    words = " ".join(f"word{number}" for number in range(105))
    notes.add("memory/exact.md", f"{words} then ({typed}), {words}")

    for question in (typed, f"what about {typed}?", f"the {typed}"):
        answer = retrieve(index, SearchRequest(query=question), Query())
        assert answer.hits[0].path == "memory/exact.md", question
        assert answer.missing == (), question
    assert nowhere == ((typed,) if len(typed) > 1 or typed == "🚀" else ())


@pytest.mark.parametrize(
    ("typed", "stands"),
    [
        ("50%", "50 %"),
        ("@scope/pkg", "@scope/pkg@1.2.3"),
        ("--max-size=8192", "--max-size=4096"),
    ],
)
def test_a_name_of_code_is_found_where_it_stands_with_a_value(
    notes: Notes, index: SearchIndex, typed: str, stands: str
) -> None:
    loose = re.sub(r"\W+", " ", typed)
    for number in range(30):
        notes.add(f"memory/{number:02}.md", f"{loose}. {loose}; {loose}, note {number}")
    notes.add("memory/exact.md", f"{' '.join(f'word{number}' for number in range(60))} then ({stands})")

    assert retrieve(index, SearchRequest(query=typed), Query()).hits[0].path == "memory/exact.md"


@pytest.mark.parametrize("name", ["my_notes", "deploy-plan_v2", "ERR_CONN"])
def test_the_name_of_a_file_with_an_underscore_is_not_missing(
    notes: Notes, index: SearchIndex, name: str
) -> None:
    notes.add(f"memory/{name}.md", "Bread and butter.")
    notes.add("memory/other.md", f"Those are {name.replace('_', ' ')} of mine.")

    answer = retrieve(index, SearchRequest(query=name), Query())

    assert (answer.hits[0].path, answer.missing) == (f"memory/{name}.md", ())
    assert answer.hits[0].score >= 0.9


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


def test_a_note_that_has_a_cjk_name_alone_holds_everything(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/京都案内.md", "Bread and butter.")
    notes.add("memory/other.md", "A note about 京都 and bread.")

    answer = retrieve(index, SearchRequest(query="京都案内"), Query())

    assert (answer.hits[0].path, answer.missing) == ("memory/京都案内.md", ())
    assert answer.hits[0].score >= 0.9 > answer.hits[1].score


def test_a_page_that_is_named_brings_only_what_holds_everything_before_other_pages_that_do(
    notes: Notes, index: SearchIndex
) -> None:
    for number in range(8):
        notes.add(f"memory/x{number}.md", f"Bread, butter and a plugin, note n{number}.")
    filler = "\n\n".join(f"Line {number} of a long page about nothing much." for number in range(60))
    notes.add("memory/kestrel.md", f"# Kestrel\n\nThe kestrel plugin.\n\n{filler}\n\n## Notes\n\nA kestrel.")
    notes.add("memory/inventory.md", "All of them: the plugin that we call kestrel, and others.")

    hits = retrieve(index, SearchRequest(query="kestrel plugin", merge=False), Query()).hits

    assert [hit.path for hit in hits[:3]] == ["memory/kestrel.md", "memory/inventory.md", "memory/kestrel.md"]
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


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
    ("question", "first"),
    [
        # One word of three names the page; of six, a page that is named may be what is meant.
        ("sandbox fjord quokkas", "memory/a.md"),
        ("sandbox fjord quokkas rollout ledger marmalade", "memory/sandbox.md"),
    ],
)
def test_a_page_that_is_named_by_little_of_a_short_question_is_behind_what_holds_all_of_it(
    notes: Notes, index: SearchIndex, question: str, first: str
) -> None:
    notes.add("memory/sandbox.md", "# Sandbox\n\nThe sandbox.\n")
    notes.add("memory/a.md", f"# Diary\n\n{'We met again. ' * 40}{question}.\n")
    for number, word in enumerate(["sandbox", "fjord", "quokkas", "rollout", "ledger", "marmalade"] * 4):
        notes.add(f"memory/other-{number}.md", f"Of {word} nothing, today as yesterday.")

    assert paths(index, question)[0] == first


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


@pytest.mark.parametrize("count", [24, 74, 1_024])
def test_what_holds_more_of_the_words_is_never_behind(
    notes: Notes, index: SearchIndex, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(count)
    asked = ["kestrel", "lantern", "harbour", "car"]
    texts: dict[str, set[str]] = {}
    for number in range(count):
        # A synonym of one of the words does not make up for another.
        words = chance.choices([*asked, "vehicle", "bread", "butter", "walk"], k=chance.choice((2, 4, 30)))
        title = chance.choice(("note", "lantern", "a lantern and everything else"))
        path = f"memory/{title} {number}.md"
        texts[path] = {*words, *title.split()}
        notes.add(path, " ".join(words))
    monkeypatch.setattr(keyword, "SCORED", 60)

    for size in (1, 2, 3, 4):
        question = " ".join(chance.sample(asked, size))
        hits = retrieve(index, SearchRequest(query=question, max_results=20), Query()).hits
        held = [set(question.split()) & texts[hit.path] for hit in hits]
        # Where their names match alike: "lantern" is in both or in neither.
        alike = [("lantern" in question) and "lantern" in hit.path for hit in hits]
        assert not [
            (hits[first].path, hits[later].path)
            for first in range(len(hits))
            for later in range(first, len(hits))
            if held[first] < held[later] and alike[first] <= alike[later]
        ]
        # Nor is what holds more left out.
        more = [
            (set(question.split()) & words, ("lantern" in question) and "lantern" in path)
            for path, words in texts.items()
            if path not in {hit.path for hit in hits}
        ]
        assert not [
            (first, other)
            for first, name in zip(held, alike, strict=True)
            for other, others_name in more
            if first < other and name <= others_name
        ]


def test_chunks_with_more_of_the_words_are_looked_for_beyond_the_best(
    notes: Notes, index: SearchIndex
) -> None:
    # Three hundred short notes with two of the words, and long ones that hold the third as well.
    for number in range(300):
        notes.add(f"memory/a{number}.md", f"kestrel kestrel lantern lantern n{number}")
    for number in range(300):
        notes.add(f"memory/b{number}.md", f"harbour harbour harbour n{number}")
    filler = " ".join(f"word{number}" for number in range(60))
    for number in range(12):
        notes.add(f"memory/c{number}.md", f"{filler} kestrel {filler} lantern harbour n{number}")

    assert [path[:8] for path in paths(index, "kestrel lantern harbour")] == ["memory/c"] * 10


def test_texts_that_hold_a_word_as_often_and_are_as_long_score_apart(
    notes: Notes, index: SearchIndex
) -> None:
    words = [f"word{number}" for number in range(40)]
    for place in range(0, 40, 4):
        text = " ".join([*words[:place], "kestrel", *words[place:]])
        notes.add(f"memory/{place:02}.md", text)

    hits = retrieve(index, SearchRequest(query="kestrel", max_results=10), Query()).hits
    scores = [hit.score for hit in hits]

    assert [hit.path for hit in hits] == [f"memory/{place:02}.md" for place in range(0, 40, 4)]
    assert scores == sorted(set(scores), reverse=True)


def test_the_page_with_the_title_comes_before_pages_that_repeat_its_words(
    notes: Notes, index: SearchIndex
) -> None:
    for number in range(6):
        notes.add(f"memory/{number}.md", f"The sidebar, the sidebar: hide the sidebar, sidebar {number}.")
    notes.add("memory/Sidebar.md", "Press the button on the left to make more room.")
    notes.add("memory/x1.md", "---\ntitle: Restore drill\naliases: [Fire alarm]\n---\nEvery second Tuesday.")
    notes.add("memory/x2.md", "# 金银价格\n\n" + "words\n" * 3)
    notes.add("memory/x3.md", "See [[Fire alarm]] and the fire alarm, a fire alarm.")

    assert paths(index, "how to hide the sidebar")[0] != "memory/x1.md"
    assert paths(index, "Sidebar")[0] == "memory/Sidebar.md"
    assert paths(index, "restore drill")[0] == "memory/x1.md"
    assert paths(index, "金银")[0] == "memory/x2.md"


def test_a_name_finds_its_file_though_no_chunk_holds_a_word_of_it(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/金银价格.md", "nothing of it")
    notes.add("memory/other.md", "nothing of it either")

    assert paths(index, "价格") == ["memory/金银价格.md"]


def test_names_follow_their_file(notes: Notes, index: SearchIndex) -> None:
    connection = notes.writer.connection
    notes.add("memory/a.md", "# Kestrel\n\ntext")
    notes.add("memory/a.md", "# Quokka\n\ntext")
    rows = connection.execute("SELECT key, title, text FROM names ORDER BY id").fetchall()
    notes.remove("memory/a.md")

    assert rows == [("a", "Quokka", "a Quokka"), ("quokka", "", None)]
    assert connection.execute("SELECT count(*) FROM names").fetchone() == (0,)
    for table in ("names_fts", "forms_fts", "chunks_fts"):
        assert connection.execute(
            f"SELECT count(*) FROM {table} WHERE {table} MATCH 'quokka'"
        ).fetchone() == (0,)
        connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('integrity-check', 1)")


def test_a_page_whose_name_shares_the_stem_is_behind_the_rare_word_itself(
    notes: Notes, index: SearchIndex
) -> None:
    for number in range(60):
        notes.add(f"memory/{number}.md", f"A presentation of n{number} and more.")
    notes.add("docs/message presentation.md", "presentation presentation presentation")
    notes.add("memory/long.md", " ".join(["word"] * 150 + ["presentational"]))

    assert paths(index, "presentational")[0] == "memory/long.md"
