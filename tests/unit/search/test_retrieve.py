from collections.abc import Callable

import pytest

from memline.shared.clock import ManualClock
from memline.shared.config.schema import Hybrid, Mmr, Query, TemporalDecay
from memline.shared.errors import ConfigError, ProviderLater
from memline.shared.finding import WARNING, Finding
from memline.shared.search.request import SearchRequest
from memline.shared.search.results import Answer
from memline.shared.search.search_index import SearchIndex
from memline.shared.search.service import ModelSwitched, QueryVector, retrieve
from tests.unit.search.conftest import Notes

#: 2026-03-12 12:00 UTC.
NOON = 1_773_316_800.0


def ask(index: SearchIndex, question: str, settings: Query | None = None, **options: object) -> Answer:
    return retrieve(index, SearchRequest(query=question, **options), settings or Query())  # type: ignore[arg-type]


def test_a_hit_cites_its_file_and_lines(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/a.md", "# Redis\n\nThe timeout is 5 s.")

    (hit,) = ask(index, "redis timeout").hits

    assert hit.citation == "memory/a.md#L1-L3"
    assert 0.3 < hit.score < 1
    assert (hit.text_score, hit.vector_score) == (1.0, 0.0)
    assert hit.snippet == "# Redis\n\nThe timeout is 5 s."


BOAT = {
    "memory/2026-03-03.md": "The boat was painted.",
    "memory/2026-03-11.md": "We sold the old boat, with its trailer and its anchor.",
    "notes/boat.md": "# Boat\n\nBoat, boat and boat again.",
}


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("boat yesterday", "memory/2026-03-11.md"),
        ("boat last week", "memory/2026-03-03.md"),
        ("the boat on 3 March", "memory/2026-03-03.md"),
        ("boat in March 2025", "notes/boat.md"),
    ],
)
def test_a_question_that_names_a_day_lifts_its_notes_and_leaves_none_out(
    notes: Notes, index: SearchIndex, question: str, first: str
) -> None:
    for path, text in BOAT.items():
        notes.add(path, text)

    answer = ask(index, question, today="2026-03-12")

    assert answer.hits[0].path == first
    assert {hit.path for hit in answer.hits} == {*BOAT}


@pytest.mark.parametrize("question", ["Feb 11", "11 February 2026", "11.2.2026"])
def test_a_day_finds_the_note_that_has_its_date_in_its_text(
    notes: Notes, index: SearchIndex, question: str
) -> None:
    notes.add("memory/apples.md", "Bought 11 apples.")
    notes.add("memory/backup.md", "Restore tested 2026-02-11, all well.")
    for day in range(1, 9):
        notes.add(f"daily/2026-03-0{day}.md", "Lunch.")

    answer = ask(index, question, today="2026-03-12")

    assert answer.hits[0].path == "memory/backup.md"
    assert answer.missing == ()


def test_a_question_of_a_day_alone_is_answered_by_its_notes(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/2026-03-11.md", "Nothing special.")
    notes.add("memory/2026-02-11.md", "Nothing special either.")

    def found(question: str, **options: object) -> list[str]:
        return [hit.path for hit in ask(index, question, today="2026-03-12", **options).hits]

    assert found("yesterday") == found("what did I do yesterday") == ["memory/2026-03-11.md"]
    assert found("what happened yesterday")[0] == "memory/2026-03-11.md"
    assert found("yesterday", exclude="memory/**") == []
    assert ask(index, "yesterday", today="2026-03-12").hits[0].score > 0.5
    notes.add("0.md", "What I said yesterday does not hold.")
    assert found("yesterday") == found("what did I do yesterday") == ["memory/2026-03-11.md"]


@pytest.mark.parametrize("question", ["2026-03-11", "11.03.2026", "what was there on 2026-03-11"])
def test_the_figures_of_a_day_find_its_notes_and_no_other_day(
    notes: Notes, index: SearchIndex, question: str
) -> None:
    notes.add("memory/20260311.md", "Nothing special.")
    notes.add("memory/2026-03-12.md", "# 2026-03-12\n\nNothing on 12.03.2026.")

    assert ask(index, "12.03.2026", today="2026-03-12").hits[0].path == "memory/2026-03-12.md"
    assert [hit.path for hit in ask(index, question, today="2026-03-12").hits] == ["memory/20260311.md"]


def test_a_question_that_names_a_tag_puts_its_notes_first(notes: Notes, index: SearchIndex) -> None:
    notes.add("boat.md", "# Boat\n\nThe boat, its engine, its boat shed.")
    notes.add("a.md", "Oil the engine.", tags="boat/dinghy")
    notes.add("b.md", "The motor.", tags="boat\nsail")
    notes.add("c.md", "An engine.", tags="boathouse")

    def found(question: str) -> list[str]:
        return [hit.path for hit in ask(index, question).hits]

    assert found("#boat engine")[:2] == ["a.md", "b.md"]
    assert sorted(found("#Boat engine")) == ["a.md", "b.md", "boat.md", "c.md"]
    assert found("tag:boat #sail")[:2] == ["b.md", "a.md"]
    assert found("#sail")[0] == "b.md"
    assert found("boat engine")[0] == "boat.md"
    assert found("#none engine") == found("none engine")


def test_an_answer_of_a_day_that_no_note_has_says_so_first(notes: Notes, index: SearchIndex) -> None:
    notes.add("git.md", "The last commit was made.")

    answer = ask(index, "what did I do last Tuesday", today="2026-03-12")

    assert answer.notice.startswith("no note is of 2026-03-10")
    assert answer.hits == ()
    assert ask(index, "commit", today="2026-03-12").notice == ""


def test_notes_of_a_month_come_in_the_order_of_their_days(notes: Notes, index: SearchIndex) -> None:
    notes.add("2025-12-20.md", "Snow.")
    notes.add("2025-12-03.md", "Rain.")
    notes.add("2026-01-05.md", "It happened in December, they say.")

    found = ask(index, "what happened in december", today="2026-03-12").hits

    assert [hit.path for hit in found][:2] == ["2025-12-03.md", "2025-12-20.md"]


@pytest.mark.parametrize("question", ["boiler access (Greta 2026-03-05)", "Greta 2026-03-05 boiler"])
def test_a_day_never_brings_a_note_without_the_other_words_first(
    notes: Notes, index: SearchIndex, question: str
) -> None:
    notes.add("MEMORY.md", "## Boiler access (Greta 2026-03-05)\n\nThe key hangs behind the meter.")
    for number in range(30):
        notes.add(f"{number}.md", f"Rope and lantern {number}.")
    notes.add("2026-03-05.md", "# 2026-03-05\n\nWalked a mile, fed a gull.")

    assert ask(index, question, today="2026-03-12").hits[0].path == "MEMORY.md"


def test_where_every_word_is_missing_one_near_miss_follows(notes: Notes, index: SearchIndex) -> None:
    for number in range(4):
        notes.add(f"{number}.md", f"The Rancilio Silvia number {number}.")

    answer = ask(index, "Rancillio")

    assert answer.missing == ("Rancillio",)
    assert answer.notice == "nothing that was searched holds: Rancillio; searched instead: rancilio"
    assert len(answer.hits) == 1


def test_a_citation_names_the_lines_that_are_shown(notes: Notes, index: SearchIndex) -> None:
    lines = [f"| row {number} | plain words of a table |" for number in range(60)]
    lines[20] = "| kestrel | the row that answers |"
    notes.add("a.md", "\n".join(lines))

    (hit,) = ask(index, "kestrel").hits

    first, last = map(int, hit.citation.partition("#L")[2].split("-L"))
    assert (hit.start_line, hit.end_line) == (1, 44)
    assert 1 < first <= 21 <= last < 44
    assert hit.snippet == "\n".join(lines[first - 1 : last])


def test_explain_has_terms_sum_cosine_late_and_rank(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/kestrel.md", "Kestrels nest in the old barn.")
    notes.embed()

    request = SearchRequest(query="kestrel barn xyz", explain=True)
    explanation = retrieve(index, request, Query(), embed_query=notes.vector).hits[0].to_json()["explain"]

    assert explanation.keys() == {"terms", "sum", "cosine", "late", "rank"}
    assert explanation["terms"] == ["kestrel", "barn"]
    assert explanation["sum"] > 0
    assert 0 < explanation["cosine"] < 1
    assert (explanation["late"], explanation["rank"]) == (None, 1)


def test_a_single_line_is_cited_with_one_number(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/a.md", "Redis.")

    assert ask(index, "redis").hits[0].citation == "memory/a.md#L1"


def test_json_has_every_key_of_the_contract(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/a.md", "Redis.")

    plain = ask(index, "redis").to_json()
    score = plain["results"][0]["score"]

    assert 0.3 < score < 1
    assert plain == {
        "results": [
            {
                "path": "memory/a.md",
                "startLine": 1,
                "endLine": 1,
                "score": score,
                "vectorScore": 0.0,
                "textScore": 1.0,
                "snippet": "Redis.",
                "source": "memory",
                "citation": "memory/a.md#L1",
                "heading": "",
                "alsoIn": [],
                "matched": ["Redis"],
            }
        ],
        "totalResults": 1,
        # Who answers says of which folder.
        "workspace": "",
        "backend": "builtin",
        "provider": "none",
        "model": "",
        "mode": "keyword",
        "fallback": None,
        "stale": False,
        "behind": {"files": 0, "vectors": 0},
        "warning": "",
        "action": "",
        "notice": "",
        "findings": [],
        "missing": [],
    }


def test_without_a_provider_there_is_no_warning(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/a.md", "Redis.")

    answer = ask(index, "redis")

    assert (answer.mode, answer.findings) == ("keyword", ())


@pytest.mark.parametrize("question", ["kestrels nest barn", "do kestrels nest in the barn?"])
def test_a_note_whose_vector_is_still_to_come_is_in_its_place(
    question: str, notes: Notes, index: SearchIndex
) -> None:
    for number in range(12):
        notes.add(f"memory/{number}.md", f"Kestrels hunt above field {number}, and nest far away.")
    notes.embed()
    notes.give_tokens(*(f"memory/{number}.md" for number in range(12)))
    notes.add("memory/new.md", "Kestrels nest in the old barn.")

    request = SearchRequest(query=question, explain=True)
    best, *_ = retrieve(index, request, Query(), embed_query=notes.vector_with_tokens).hits

    assert best.path == "memory/new.md"
    assert best.explanation is not None
    assert (best.explanation["cosine"], best.explanation["late"]) == (None, None)


def failing(text: str) -> QueryVector:
    raise ProviderLater("openai answered 429", hint="wait a minute, then search again")


def test_when_the_question_cannot_be_embedded_keyword_hits_are_returned_with_the_trouble(
    notes: Notes, index: SearchIndex
) -> None:
    notes.add("memory/a.md", "Redis.")
    notes.embed()

    answer = retrieve(index, SearchRequest(query="redis"), Query(), embed_query=failing)

    assert [hit.path for hit in answer.hits] == ["memory/a.md"]
    assert answer.mode == "keyword"
    assert answer.findings == (
        Finding(
            code="question_not_embedded",
            level=WARNING,
            what="only keywords were searched: the question could not be embedded: openai answered 429",
            action="wait a minute, then search again",
        ),
    )


def test_a_vector_of_other_dimensions_is_not_compared(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/a.md", "Redis.")
    notes.embed()

    def embed_query(text: str) -> QueryVector:
        return QueryVector(embedding=bytes(12), identity_id=notes.vector("x").identity_id)

    answer = retrieve(index, SearchRequest(query="redis"), Query(), embed_query=embed_query)

    assert answer.mode == "keyword"
    (finding,) = answer.findings
    assert finding.code == "question_not_embedded"
    assert "3 dimensions, the index 32" in finding.what


def test_a_model_that_is_switched_meanwhile_is_not_mixed_up(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/a.md", "Redis.")
    notes.embed()

    def switch(text: str) -> QueryVector:
        vector = notes.vector(text)
        notes.embedder = type(notes.embedder)(dims=32, model="other")
        notes.embed()
        return vector

    with pytest.raises(ModelSwitched):
        retrieve(index, SearchRequest(query="redis"), Query(), embed_query=switch)


def test_min_score_cuts_hits_by_meaning_and_never_a_word(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/a.md", "Kestrels nest in the old barn.")
    notes.add("memory/b.md", "The invoice is due.")
    notes.embed()

    strict = retrieve(
        index, SearchRequest(query="invoice xylophone", min_score=1.0), Query(), embed_query=notes.vector
    )
    lax = retrieve(
        index, SearchRequest(query="invoice xylophone", min_score=-1.0), Query(), embed_query=notes.vector
    )

    assert [hit.path for hit in strict.hits] == ["memory/b.md"]
    assert {hit.path for hit in lax.hits} == {"memory/a.md", "memory/b.md"}


@pytest.mark.parametrize("fusion", ["weighted", "rrf"])
@pytest.mark.parametrize("mmr", [False, True])
def test_fewer_hits_are_a_prefix_of_more(
    notes: Notes, opened: Callable[..., SearchIndex], fusion: str, mmr: bool
) -> None:
    for n in range(80):
        notes.add(f"memory/{n}.md", f"kestrel {'barn ' * (n % 5)} field {n % 7} note {n % 3}")
    notes.embed()
    index = opened(long_lived=True)
    settings = Query(hybrid=Hybrid(fusion=fusion, mmr=Mmr(enabled=mmr)))

    def citations(wanted: int) -> list[str]:
        request = SearchRequest(query="kestrel barn", max_results=wanted)
        return [hit.citation for hit in retrieve(index, request, settings, embed_query=notes.vector).hits]

    most = citations(70)

    assert len(most) == 70
    for wanted in (1, 2, 6, 10, 33):
        assert citations(wanted) == most[:wanted]


def test_equal_hits_come_in_the_order_of_path_and_line(notes: Notes, index: SearchIndex) -> None:
    for path, mark in (("memory/c.md", "."), ("memory/a.md", "!"), ("memory/b.md", "?")):
        notes.add(path, f"The same words{mark}")

    paths = [hit.path for hit in ask(index, "same words").hits]

    assert paths == ["memory/a.md", "memory/b.md", "memory/c.md"]


def test_without_hybrid_only_vectors_answer(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/a.md", "Redis.")
    notes.embed()
    settings = Query(hybrid=Hybrid(enabled=False))

    by_meaning = retrieve(index, SearchRequest(query="redis"), settings, embed_query=notes.vector)
    by_words = ask(index, "redis", settings)

    assert (by_meaning.mode, by_meaning.hits[0].text_score) == ("vector", 0.0)
    assert by_words.mode == "keyword"


def test_recency_puts_the_newer_of_two_equal_notes_first(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/2025-03-12.md", "The standup moved to nine.")
    notes.add("memory/2026-03-10.md", "The standup moved to nine!")
    notes.add("MEMORY.md", "The standup moved to nine …")
    settings = Query(hybrid=Hybrid(temporal_decay=TemporalDecay(enabled=True)))

    answer = retrieve(index, SearchRequest(query="standup moved"), settings, clock=ManualClock(NOON))

    assert [hit.path for hit in answer.hits] == ["MEMORY.md", "memory/2026-03-10.md", "memory/2025-03-12.md"]


def test_filters_limit_the_answer(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/2026-02-10.md", "The standup moved.")
    notes.add("memory/2026-03-10.md", "The standup moved.")
    clock = ManualClock(NOON)

    recent = retrieve(index, SearchRequest(query="standup", since="7d"), Query(), clock=clock)
    older = retrieve(index, SearchRequest(query="standup", until="2026-02-28"), Query(), clock=clock)

    assert [hit.path for hit in recent.hits] == ["memory/2026-03-10.md"]
    assert [hit.path for hit in older.hits] == ["memory/2026-02-10.md"]
    with pytest.raises(ConfigError):
        ask(index, "standup", since="soon")


def test_a_word_of_a_name_that_the_filters_leave_out_is_missing(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/deploy.md", "# Deploy")
    notes.add("memory/day.md", "A budget.")

    assert ask(index, "deploy budget", path="day.md").missing == ("deploy",)
    assert ask(index, "deploy budget", path="deploy.md").missing == ("budget",)


def test_a_file_that_is_named_comes_first(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/deploy-notes.md", "Steps for the rollout.")
    notes.add("memory/x.md", "deploy notes deploy notes deploy notes")

    # It alone has the name as an id.
    notes.add("memory/log.md", "Wrote deploy-notes.md today.")
    notes.embed()

    for question in ("memory/deploy-notes.md", "deploy-notes.md", "open deploy-notes.md please"):
        assert ask(index, question).hits[0].path == "memory/deploy-notes.md"
        found = retrieve(index, SearchRequest(query=question), Query(), embed_query=notes.vector)
        assert (found.mode, found.hits[0].path) == ("hybrid", "memory/deploy-notes.md")


def test_an_empty_list_says_why(notes: Notes, index: SearchIndex) -> None:
    empty = ask(index, "redis")
    notes.add("memory/a.md", "Redis.")
    notes.embed()

    assert empty.notice == "the index has no notes"
    assert ask(index, "   \x00 ").notice == "the question is empty"
    assert ask(index, "?!").notice == "the question has no word to look for"
    assert ask(index, "xylophone").notice == "nothing in the notes matches"
    assert "no file is within the filters" in ask(index, "redis", source="sessions").notice
    weak = retrieve(index, SearchRequest(query="quokka", min_score=1.0), Query(), embed_query=notes.vector)
    assert "weaker than minScore 1" in weak.notice


def test_missing_words_are_named_and_said(notes: Notes, index: SearchIndex) -> None:
    notes.add("memory/a.md", "The redis timeout is five seconds.")

    part = ask(index, "why does Redis need the Xylophone").to_json()
    none = ask(index, "Xylophone").to_json()
    filtered = ask(index, "redis", source="sessions").to_json()

    assert part["missing"] == ["need", "Xylophone"]
    assert part["notice"] == "nothing that was searched holds: need, Xylophone"
    assert (none["missing"], none["results"]) == (["Xylophone"], [])
    assert filtered["missing"] == ["redis"]
    assert ask(index, "redis timeout").to_json()["missing"] == []
    meant = ask(index, "redsi timeouts").to_json()
    assert meant["notice"] == "nothing that was searched holds: redsi; searched instead: redis"


def test_in_hybrid_an_id_comes_first_and_one_means_the_same(notes: Notes, index: SearchIndex) -> None:
    for n in range(20):
        notes.add(f"memory/often-{n}.md", f"deploy deploy deploy {n}")
    notes.add("memory/id.md", f"{'word ' * 150} the deploy of b3b9895a was rolled back {'word ' * 150}")
    notes.embed()

    answer = retrieve(index, SearchRequest(query="deploy deploy b3b9895a"), Query(), embed_query=notes.vector)

    assert answer.mode == "hybrid"
    assert answer.hits[0].path == "memory/id.md"
    assert answer.hits[0].text_score == 1.0
    assert answer.hits[0].score < 1.0
    assert all(hit.text_score < 1 for hit in answer.hits[1:])


def test_equal_texts_stand_once_with_where_else_they_stand(notes: Notes, index: SearchIndex) -> None:
    for name in ("c", "a", "d/b"):
        notes.add(f"memory/{name}.md", "The standup moved to nine.")
    notes.add("memory/other.md", "The standup moved to nine, they say.")

    hits = ask(index, "standup moved").hits
    filtered = ask(index, "standup moved", path="memory/d/*").to_json()["results"]

    assert [(hit.path, hit.also_in) for hit in hits] == [
        ("memory/a.md", ("memory/c.md", "memory/d/b.md")),
        ("memory/other.md", ()),
    ]
    assert [(hit["path"], hit["alsoIn"]) for hit in filtered] == [("memory/d/b.md", [])]


def test_scores_can_be_told_apart(notes: Notes, index: SearchIndex) -> None:
    for number in range(30):
        filler = " ".join(f"word{each}" for each in range(number))
        notes.add(
            f"memory/{number:02}.md", f"kestrel {filler} {'barn' * (number % 2)} {'nest' * (number % 3 == 0)}"
        )

    scores = [hit.score for hit in ask(index, "kestrel barn nest", max_results=30).hits]

    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == len(scores) > 20
    assert sum(f"{score:.3f}" == "1.000" for score in scores) <= 1


def test_the_title_of_the_page_stands_with_the_hit_and_front_matter_stays_out(
    notes: Notes, index: SearchIndex
) -> None:
    notes.add("memory/a.md", "---\ntitle: Birds\ntags: [kestrel]\n---\n\nThe barn is old.")
    notes.add("memory/b.md", "---\ntags: x\n---\nIntro about a shed.\n\n# Owls\n\nThey hoot.")

    barn, tag, shed = (ask(index, question).hits[0] for question in ("barn", "kestrel", "shed"))

    assert (barn.heading, barn.snippet) == ("Birds", "The barn is old.")
    assert tag.snippet.startswith("---\ntitle: Birds")
    assert shed.heading == "Owls"
    assert shed.snippet.startswith("Intro about a shed.")
