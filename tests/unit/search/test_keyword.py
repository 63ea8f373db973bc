import random
import re

import pytest

from memline.shared.config.schema import Query
from memline.shared.search import keyword
from memline.shared.search.postings import CHUNKS, Postings
from memline.shared.search.query import analyse
from memline.shared.search.reader import SearchIndex
from memline.shared.search.request import SearchRequest
from memline.shared.search.retrieve import retrieve
from tests.unit.search.conftest import Notes, missing, paths


def test_one_absent_word_hides_nothing(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/a.md", "The redis timeout is five seconds.")

    assert paths(index, "why is the redis timeout xylophone") == ["memory/a.md"]


def test_a_chunk_with_more_of_the_rare_words_comes_first(notes: Notes, index: SearchIndex) -> None:
    for n in range(8):
        notes.add(f"memory/{n}.md", f"We met and talked about the garden, part {n}.")
    notes.add("memory/both.md", "We talked about the kestrel in the garden.")

    assert paths(index, "kestrel garden")[0] == "memory/both.md"


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


def test_words_that_stand_nowhere_are_named_as_typed(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/a.md", "Ann bought a bicycle; Kubernetes runs v1.5.2. 我们讨论了金银价格上涨")

    assert missing(index, "Did Ann buy bicycles?") == ()
    assert missing(index, "Why did Xylophone and the QUOKKA buy bicycles") == ("Xylophone", "QUOKKA")
    assert missing(index, "ERR_CONN_42 kubern") == ("ERR_CONN_42", "kubern")
    assert missing(index, 'who said "a bicycle Bought"') == ("a bicycle Bought", "said")
    assert missing(index, "docker-compose.prod.yml") == ("docker-compose.prod.yml",)
    assert missing(index, "金银价格") == ()
    assert missing(index, "金银手表店") == ("银手表店",)


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


def test_of_common_words_alone_what_holds_everything_is_found(
    notes: Notes, index: SearchIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyword, "MANY_ROWS", 10)
    monkeypatch.setattr(keyword, "SCORED", 5)
    words = ["redis", "timeout", "kestrel", "quokka", "deploy", "rollback"]
    # More than the pool has places.
    for n in range(300):
        notes.add(f"memory/{n}.md", " ".join(words[: n % 6] + words[n % 6 + 1 :]))
    notes.add("memory/all.md", "The weather was fine. " * 60 + " ".join(words))

    assert paths(index, " ".join(reversed(words)))[0] == "memory/all.md"


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


@pytest.mark.parametrize(
    ("question", "diaries", "first"),
    [
        # One word of three names the page; of six, a page that is named may be what is meant.
        ("sandbox fjord quokkas", 1, "memory/a0.md"),
        ("sandbox fjord quokkas rollout ledger marmalade", 1, "memory/rollout.md"),
        ("sandbox fjord quokkas", 7, "memory/a0.md"),
        # Half of it is enough where more hold everything than a list has.
        ("sandbox rollout fjord quokkas", 6, "memory/a0.md"),
        ("sandbox rollout fjord quokkas", 7, "memory/rollout.md"),
    ],
)
def test_a_page_that_is_named_by_little_of_a_short_question_is_behind_the_few_that_hold_all_of_it(
    notes: Notes, index: SearchIndex, question: str, diaries: int, first: str
) -> None:
    notes.add("memory/sandbox.md", "# Sandbox\n\nThe sandbox.\n")
    notes.add("memory/rollout.md", "# Sandbox rollout\n\nThe rollout of the sandbox.\n")
    for number in range(diaries):
        # Not as a line: that would come first.
        words = f"{'We met again. ' * (40 + number)}{' '.join(question.split()[::-1])}"
        notes.add(f"memory/a{number}.md", f"# Diary\n\n{words}.\n")
    for number, word in enumerate(["sandbox", "fjord", "quokkas", "rollout", "ledger", "marmalade"] * 4):
        notes.add(f"memory/other-{number}.md", f"Of {word} nothing, today as yesterday.")

    assert paths(index, question)[0] == first


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
