"""What an answer holds, and in which order."""

import pytest

from memline.shared.config.schema import Hybrid, Mmr, Query
from memline.shared.errors import BadRequest, ProviderLater
from tests.support.clock import ManualClock
from tests.unit.search.conftest import ask, paths

TODAY = "2026-03-12"
#: 2026-03-12 12:00 UTC.
NOON = 1_773_316_800.0

#: Notes, and questions with the paths that come first; an ellipsis stands for others.
FIRST = {
    "the notes of a day come first, and no other is left out": (
        {
            "memory/2026-03-03.md": "The boat was painted.",
            "memory/2026-03-11.md": "We sold the old boat, with its trailer and its anchor.",
            "notes/boat.md": "# Boat\n\nBoat, boat and boat again.",
        },
        {
            "boat yesterday": ("memory/2026-03-11.md", ...),
            "boat last week": ("memory/2026-03-03.md", ...),
            "the boat on 3 March": ("memory/2026-03-03.md", ...),
            "boat in March 2025": ("notes/boat.md", ...),
        },
    ),
    "a day is found in a text": (
        {"apples.md": "Bought 11 apples.", "backup.md": "Restore tested 2026-02-11, all well."}
        | {f"daily/2026-03-0{day}.md": "Lunch." for day in range(1, 9)},
        dict.fromkeys(("Feb 11", "11 February 2026", "11.2.2026"), ("backup.md", ...)),
    ),
    "a day alone is answered by its notes": (
        {
            "memory/2026-03-11.md": "Nothing special.",
            "memory/2026-02-11.md": "Nothing special either.",
            "0.md": "What I said yesterday does not hold.",
        },
        dict.fromkeys(("yesterday", "what did I do yesterday", "11.03.2026"), ("memory/2026-03-11.md",)),
    ),
    "a day brings no note without the other words first": (
        {"MEMORY.md": "## Boiler access (Greta 2026-03-05)\n\nThe key hangs behind the meter."}
        | {f"{number}.md": f"Rope and lantern {number}." for number in range(30)}
        | {"2026-03-05.md": "# 2026-03-05\n\nWalked a mile, fed a gull."},
        dict.fromkeys(("boiler access (Greta 2026-03-05)", "Greta 2026-03-05 boiler"), ("MEMORY.md", ...)),
    ),
    "a section is found by its heading": (
        {
            "MEMORY.md": "# Memory\n\n"
            + "## Topic\n\nWords on bread.\n\n" * 9
            + "### 3. Backup **rotation**:\n\nKeep seven."
        }
        | {
            f"{number}.md": f"The backup is done, and rotation of crops is next: {number}."
            for number in range(4)
        },
        dict.fromkeys(("backup rotation", "Backup rotation?"), ("MEMORY.md", ...)),
    ),
    "a comment in code is no heading": (
        {"MEMORY.md": "# Notes\n\n" + "Words on bread and butter.\n\n" * 9 + "```sh\n# install redis\n```\n"}
        | {"redis.md": "How to install redis: install it with apt, and redis runs."},
        {"install redis": ("redis.md", ...)},
    ),
    "a heading is found however it looks": (
        {
            "MEMORY.md": "# Memory\n\n"
            + "## Topic\n\nWords on bread.\n\n" * 9
            + "## Straße für Møller\n\nLeft."
        }
        | {
            f"{number}.md": f"The strasse is long, and fur moller it is far: {number}." for number in range(4)
        },
        {"strasse fur moller": ("MEMORY.md", ...)},
    ),
    "a file that is named comes first": (
        {
            "memory/deploy-notes.md": "Steps for the rollout.",
            "x.md": "deploy notes deploy notes deploy notes",
            "memory/log.md": "Wrote deploy-notes.md today.",
        },
        dict.fromkeys(
            ("memory/deploy-notes.md", "deploy-notes.md", "open deploy-notes.md please"),
            ("memory/deploy-notes.md", ...),
        ),
    ),
}


@pytest.mark.parametrize("case", FIRST)
def test_these_come_first(notes, index, case):
    texts, questions = FIRST[case]
    for path, text in texts.items():
        notes.add(path, text)

    for question, (*first, last) in questions.items():
        found = paths(index, question, day=TODAY)
        assert found[: len(first)] == first
        assert last is ... or found == [*first, last]


def test_a_question_that_names_a_tag_puts_its_notes_first(notes, index):
    notes.add("boat.md", "# Boat\n\nThe boat, its engine, its boat shed.")
    notes.add("a.md", "Oil the engine.", tags="boat/dinghy")
    notes.add("b.md", "The motor.", tags="boat\nsail")
    notes.add("c.md", "An engine.", tags="boathouse")

    assert paths(index, "#boat engine")[:2] == ["a.md", "b.md"]
    assert sorted(paths(index, "#Boat engine")) == ["a.md", "b.md", "boat.md", "c.md"]
    assert paths(index, "tag:boat #sail")[:2] == ["b.md", "a.md"]
    assert paths(index, "boat engine")[0] == "boat.md"
    assert paths(index, "#none engine") == paths(index, "none engine")
    notes.add("memory/2026-03-10.md", "Bought rope.", tags="sail")
    assert paths(index, "what happened last Tuesday #sail", day="2026-03-14")[0] == "memory/2026-03-10.md"


def test_json_has_every_key_of_the_contract(notes, index):
    notes.add("memory/a.md", "# Redis\n\nThe timeout is 5 s.")

    plain = ask(index, "redis timeout").to_json()
    score = plain["results"][0]["score"]

    assert 0.3 < score < 1
    assert plain == {
        "results": [
            {
                "path": "memory/a.md",
                "startLine": 1,
                "endLine": 3,
                "score": score,
                "vectorScore": 0.0,
                "textScore": 1.0,
                "snippet": "# Redis\n\nThe timeout is 5 s.",
                "source": "memory",
                "citation": "memory/a.md#L1-L3",
                "heading": "Redis",
                "alsoIn": [],
                "matched": ["Redis", "timeout"],
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


def test_explain_has_terms_sum_cosine_late_and_rank(notes, index):
    notes.add("memory/kestrel.md", "Kestrels nest in the old barn.")
    notes.embed()

    (hit,) = ask(index, "kestrel barn xyz", explain=True, embedder=notes.vector).hits
    explanation = hit.to_json()["explain"]

    assert explanation.keys() == {"terms", "sum", "cosine", "late", "rank"}
    assert explanation["terms"] == ["kestrel", "barn"]
    assert explanation["sum"] > 0 and 0 < explanation["cosine"] < 1
    assert (explanation["late"], explanation["rank"]) == (None, 1)


@pytest.mark.parametrize("question", ["kestrels nest barn", "do kestrels nest in the barn?"])
def test_a_note_whose_vector_is_still_to_come_is_in_its_place(question, notes, index):
    for number in range(12):
        notes.add(f"memory/{number}.md", f"Kestrels hunt above field {number}, and nest far away.")
    notes.embed(has_tokens=True)
    notes.add("memory/new.md", "Kestrels nest in the old barn.")

    best, *_ = ask(index, question, explain=True, embedder=notes.vector_with_tokens).hits

    assert best.path == "memory/new.md"
    assert (best.explanation["cosine"], best.explanation["late"]) == (None, None)


def failing(connection, active):
    def embed(text):
        raise ProviderLater("openai answered 429", hint="wait a minute, then search again")

    return embed


def short(connection, active):
    return lambda text: bytes(12)


@pytest.mark.parametrize(
    ("embedder", "reason"),
    [(failing, "openai answered 429"), (short, "the question has 3 dimensions, the index 32")],
)
def test_without_a_vector_of_the_question_keyword_hits_come_with_a_finding(notes, index, embedder, reason):
    notes.add("memory/a.md", "Redis.")
    assert ask(index, "redis").findings == ()
    notes.embed()

    answer = ask(index, "redis", embedder=embedder)

    assert ([hit.path for hit in answer.hits], answer.mode) == (["memory/a.md"], "keyword")
    (finding,) = answer.findings
    assert finding.code == "question_not_embedded" and reason in finding.what


@pytest.mark.parametrize("fusion", ["weighted", "rrf"])
@pytest.mark.parametrize("mmr", [False, True])
def test_fewer_hits_are_a_prefix_of_more(notes, opened, fusion, mmr):
    for n in range(80):
        notes.add(f"memory/{n}.md", f"kestrel {'barn ' * (n % 5)} field {n % 7} note {n % 3}")
    notes.embed()
    index, settings = opened(long_lived=True), Query(hybrid=Hybrid(fusion=fusion, mmr=Mmr(enabled=mmr)))

    def citations(wanted):
        answer = ask(index, "kestrel barn", max_results=wanted, settings=settings, embedder=notes.vector)
        return [hit.citation for hit in answer.hits]

    most = citations(70)

    assert len(most) == 70
    for wanted in (1, 2, 6, 10, 33):
        assert citations(wanted) == most[:wanted]


def test_without_hybrid_only_vectors_answer(notes, index):
    notes.add("memory/a.md", "Redis.")
    notes.embed()
    settings = Query(hybrid=Hybrid(enabled=False))

    by_meaning = ask(index, "redis", settings=settings, embedder=notes.vector)

    assert (by_meaning.mode, by_meaning.hits[0].text_score) == ("vector", 0.0)
    assert ask(index, "redis", settings=settings).mode == "keyword"


def test_filters_limit_the_answer_and_what_is_missing(notes, index):
    notes.add("memory/2026-02-10.md", "The standup moved.")
    notes.add("memory/2026-03-10.md", "The standup moved.")
    notes.add("deploy.md", "# Deploy")
    clock = ManualClock(NOON)

    assert paths(index, "standup", since="7d", clock=clock) == ["memory/2026-03-10.md"]
    assert paths(index, "standup", until="2026-02-28", clock=clock) == ["memory/2026-02-10.md"]
    dated = ask(index, "what happened on 2026-02-10", path="memory/2026-03*", day="2026-03-14")
    assert dated.notice == "no note within the filters is of 2026-02-10"
    assert ask(index, "deploy standup", path="memory/**").missing == ("deploy",)
    assert ask(index, "deploy standup", path="deploy.md").missing == ("standup",)
    with pytest.raises(BadRequest):
        ask(index, "standup", since="soon")


def test_an_empty_list_says_why(notes, index):
    empty = ask(index, "redis")
    notes.add("memory/a.md", "Redis.")
    notes.embed()

    assert empty.notice == "the index has no notes"
    assert ask(index, "redis xylophone").notice == "nothing that was searched contains: xylophone"
    assert ask(index, "   \x00 ").notice == "the question is empty"
    assert ask(index, "?!").notice == ask(index, "xylophone").notice == "nothing in the notes matches"
    assert "no file is within the filters" in ask(index, "redis", source="sessions").notice
    tagged = ask(index, "redis", tag=("#boat", "sea"), source="memory")
    assert tagged.notice == "no note has the tag #boat or sea"
    assert "has the tag" not in ask(index, "redis", tag="#boat", private=False).notice
    assert "weaker than minScore 1" in ask(index, "quokka", min_score=1.0, embedder=notes.vector).notice


@pytest.mark.parametrize(
    ("question", "citations", "notice"),
    [
        ("what did I do last Tuesday", [], "no note is of 2026-03-10"),
        ("redis on 2026-03-12", ["ports.md#L1"], "no note is of 2026-03-12"),
        (
            "redis yesterday, xylophone",
            ["ports.md#L1"],
            "no note is of 2026-03-13; nothing that was searched contains: xylophone",
        ),
        # Where no other word is found, the day is all that is left.
        (
            "the first week of december",
            ["memory/2025-12-12.md#L1"],
            "nothing that was searched contains: first, week",
        ),
    ],
)
def test_a_day_that_no_note_has_is_named(notes, index, question, citations, notice):
    notes.add("ports.md", "Redis listens on port 6379.")
    notes.add("memory/2025-12-12.md", "Released the parser.")

    answer = ask(index, question, day="2026-03-14")

    assert [hit.citation for hit in answer.hits] == citations
    assert answer.notice == notice


def test_equal_texts_stand_once_with_where_else_they_stand(notes, index):
    for name in ("c", "a", "d/b"):
        notes.add(f"memory/{name}.md", "The standup moved to nine.")
    notes.add("memory/other.md", "The standup moved to nine, they say.")

    def found(**options):
        return [(hit.path, hit.also_in) for hit in ask(index, "standup moved", **options).hits]

    assert found() == [("memory/a.md", ("memory/c.md", "memory/d/b.md")), ("memory/other.md", ())]
    assert found(path="memory/d/*") == [("memory/d/b.md", ())]


def test_the_title_of_the_page_stands_with_the_hit_and_front_matter_stays_out(notes, index):
    notes.add("memory/a.md", "---\ntitle: Birds\ntags: [kestrel]\n---\n\nThe barn is old.")
    notes.add("memory/b.md", "---\ntags: x\n---\nIntro about a shed.\n\n# Owls\n\nThey hoot.")

    barn, tag, shed = (ask(index, question).hits[0] for question in ("barn", "kestrel", "shed"))

    assert (barn.heading, barn.snippet) == ("Birds", "The barn is old.")
    assert tag.snippet.startswith("---\ntitle: Birds")
    assert (shed.heading, shed.snippet[:5]) == ("Owls", "Intro")
