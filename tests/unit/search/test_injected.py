from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shared.search.injected import injected
from shared.search.results import Answer, Hit


def answer(*snippets: str) -> dict[str, Any]:
    hits = tuple(
        Hit(
            path=f"memory/{number}.md",
            start_line=5,
            end_line=7,
            score=1.0,
            vector_score=0.0,
            text_score=1.0,
            snippet=snippet,
            source="memory",
        )
        for number, snippet in enumerate(snippets)
    )
    return Answer(hits=hits).to_json()


def test_a_citation_is_a_field_and_the_last_line_of_the_snippet() -> None:
    (hit,) = injected(answer("  words \n"), citations=True, max_chars=0)["results"]

    assert hit["citation"] == "memory/0.md#L5-L7"
    assert hit["snippet"] == "words\n\nSource: memory/0.md#L5-L7"


def test_without_citations_there_is_neither() -> None:
    (hit,) = injected(answer("words"), citations=False, max_chars=0)["results"]

    assert "citation" not in hit
    assert hit["snippet"] == "words"


def test_snippets_are_whole_while_the_budget_lasts_then_one_is_cut_and_the_rest_goes() -> None:
    made = injected(answer("a" * 40, "b" * 40, "c" * 40), citations=False, max_chars=60)

    assert [hit["snippet"] for hit in made["results"]] == ["a" * 40, "b" * 19 + "…"]
    assert (made["totalResults"], made["truncated"]) == (2, True)


def test_a_snippet_that_is_cut_keeps_its_citation_when_there_is_room() -> None:
    (hit,) = injected(answer("a" * 500), citations=True, max_chars=100)["results"]

    assert hit["snippet"].endswith("…\n\nSource: memory/0.md#L5-L7")
    assert len(hit["snippet"]) == 100


def test_an_answer_within_the_budget_says_that_nothing_was_cut() -> None:
    made = injected(answer("a" * 40), citations=False, max_chars=40)

    assert (made["totalResults"], made["truncated"]) == (1, False)


@given(st.lists(st.text(max_size=60), max_size=5), st.booleans(), st.integers(1, 300))
def test_the_budget_holds_whatever_the_snippets_are(
    snippets: list[str], citations: bool, max_chars: int
) -> None:
    made = injected(answer(*snippets), citations=citations, max_chars=max_chars)

    assert sum(len(hit["snippet"]) for hit in made["results"]) <= max_chars
    assert made["totalResults"] == len(made["results"])
