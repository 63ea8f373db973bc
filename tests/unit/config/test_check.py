from typing import Any

import pytest

from memline.shared.config.check import Warnings, check_block
from memline.shared.config.schema import WITHOUT_EFFECT, ExtraPath, MemorySearch
from memline.shared.errors import ConfigError


def checked(raw: object) -> tuple[dict[str, Any], Warnings]:
    warnings = Warnings()
    return check_block(MemorySearch, raw, at="f: memorySearch", warnings=warnings), warnings


def only_problem(raw: object) -> tuple[str, str]:
    with pytest.raises(ConfigError) as caught:
        checked(raw)
    return caught.value.message, caught.value.hint


@pytest.mark.parametrize(
    ("raw", "key", "suggestion"),
    [
        ({"query": {"maxResult": 3}}, "memorySearch.query.maxResult", "maxResults"),
        ({"query": {"max_results": 3}}, "memorySearch.query.max_results", "maxResults"),
        ({"Provider": "openai"}, "memorySearch.Provider", "provider"),
        ({"remote": {"batch": {"enable": True}}}, "memorySearch.remote.batch.enable", "enabled"),
    ],
)
def test_an_unknown_key_names_the_nearest_known_one(raw: object, key: str, suggestion: str) -> None:
    message, hint = only_problem(raw)

    assert message == f"f: {key}: unknown key"
    assert hint == f"write {suggestion} instead"


def test_an_unknown_key_that_resembles_nothing_is_to_be_removed() -> None:
    assert only_problem({"zzzzqqq": 1})[1] == "remove zzzzqqq"


@pytest.mark.parametrize("key", sorted(WITHOUT_EFFECT))
def test_a_key_of_the_original_without_effect_is_named(key: str) -> None:
    raw: object = "x"
    for name in reversed(key.split(".")):
        raw = {name: raw}

    message, hint = only_problem(raw)

    assert WITHOUT_EFFECT[key] in message
    assert hint == f"remove {key}"


def test_a_foreign_key_that_is_switched_off_is_accepted() -> None:
    assert checked({"multimodal": {"enabled": False}}) == ({}, [])


@pytest.mark.parametrize(
    ("raw", "found", "allowed"),
    [
        ({"enabled": 1}, "the number 1", "true or false"),
        ({"enabled": None}, "null", "true or false"),
        ({"chunking": {"tokens": True}}, "true", "a whole number from 1"),
        ({"chunking": {"tokens": 0}}, "the number 0", "a whole number from 1"),
        ({"chunking": {"tokens": 1.5}}, "the number 1.5", "a whole number"),
        ({"chunking": {"tokens": 10**30}}, "a huge number", "a whole number"),
        ({"chunking": {"overlap": -1}}, "the number -1", "a whole number from 0"),
        ({"chunking": {"tokens": "400"}}, '"400"', "a whole number"),
        ({"chunking": 5}, "the number 5", "an object"),
        ({"sync": {"watchDebounceMs": float("inf")}}, "the number inf", "a whole number"),
        ({"query": {"minScore": float("nan")}}, "the number nan", "a number from 0 to 1"),
        ({"query": {"hybrid": {"mmr": {"lambda": 2}}}}, "the number 2", "a number from 0 to 1"),
        ({"query": {"hybrid": {"fusion": "sum"}}}, '"sum"', "weighted, rrf"),
        ({"provider": "cohere"}, '"cohere"', "auto, openai"),
        ({"provider": ["openai"]}, "an array", "auto, openai"),
        ({"sources": "memory"}, '"memory"', "an array of memory, sessions"),
        ({"sources": ["notes"]}, '"notes"', "memory, sessions"),
        ({"extraPaths": "x"}, "a text", "an array"),
        ({"extraPaths": [7]}, "the number 7", "an object"),
        ({"extraPaths": [{"path": 7}]}, "the number 7", "text"),
        ({"remote": {"headers": {"a": 1}}}, "an object", "an object of names and texts"),
        ({"remote": {"headers": {"a": "b\r\nc: d"}}}, "an object", "an object of names and texts"),
        ({"model": "a\0b"}, "", "text"),
        (7, "the number 7", "an object"),
    ],
)
def test_a_value_that_does_not_fit_says_what_was_found_and_what_is_allowed(
    raw: object, found: str, allowed: str
) -> None:
    message, hint = only_problem(raw)

    assert f"found {found}" in message
    assert f"allowed: {allowed}" in message
    assert hint


@pytest.mark.parametrize(
    ("raw", "at", "hint"),
    [
        ({"transcripts": ["gemini", "codx"]}, 'transcripts[1]: found "codx", allowed: openclaw', "codex"),
        ({"transcripts": ["claude_code"]}, 'transcripts[0]: found "claude_code"', "claude-code"),
        (
            {"sources": ["memory", "session"]},
            'sources[1]: found "session", allowed: memory, sess',
            "sessions",
        ),
        ({"provider": "opnai"}, 'provider: found "opnai"', "openai"),
    ],
)
def test_a_wrong_word_is_named_with_the_allowed_one_that_resembles_it_most(
    raw: object, at: str, hint: str
) -> None:
    message, found_hint = only_problem(raw)

    assert at in message
    assert found_hint == f"write {hint} instead"


def test_a_secret_of_the_wrong_kind_is_not_quoted() -> None:
    assert "hush" not in only_problem({"remote": {"apiKey": "hush\0"}})[0]


def test_a_provider_with_openais_protocol_gets_a_hint() -> None:
    assert "remote.baseUrl" in only_problem({"provider": "lmstudio"})[1]


def test_numbers_of_the_other_kind_are_taken_when_nothing_is_lost() -> None:
    found, warnings = checked({"chunking": {"tokens": 300.0}, "query": {"minScore": 1}})

    assert (found, warnings) == ({"chunking.tokens": 300, "query.minScore": 1.0}, [])


def test_search_weights_and_scores_outside_of_their_limits_are_moved_with_a_warning() -> None:
    found, warnings = checked(
        {"query": {"minScore": 7, "hybrid": {"candidateMultiplier": 50, "vectorWeight": -1}}}
    )

    assert found == {
        "query.minScore": 1.0,
        "query.hybrid.candidateMultiplier": 20,
        "query.hybrid.vectorWeight": 0.0,
    }
    assert len(warnings) == 3


def test_extra_paths_are_texts_or_objects() -> None:
    found, _ = checked({"extraPaths": [" a ", "", " ", {"path": "b", "pattern": "*.txt"}, {"path": "c"}]})

    assert found["extraPaths"] == (
        ExtraPath(path="a"),
        ExtraPath(path="b", pattern="*.txt"),
        ExtraPath(path="c", pattern="**/*.{md,markdown,mdown,mkd,mdx,qmd}"),
    )
