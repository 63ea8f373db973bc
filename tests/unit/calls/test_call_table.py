"""The table of calls: every face is made of it."""

import inspect
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from memline.producers.actions.perform import function_of
from memline.producers.agents.tools import MemoryTools
from memline.producers.calls.arguments import answers, input_schema, parse_texts, read
from memline.producers.calls.memory_calls import CALLER, MEMORY_CALLS
from memline.producers.calls.rows import PYTHON, Call
from memline.producers.calls.table import CALLS
from memline.shared.errors import BadRequest
from memline.shared.search.request import SearchOptions

SEARCH, GET, APPEND, CONTEXT = (CALLS[name].takes_json for name in ("search", "get", "append", "context"))


@pytest.mark.parametrize("call", [call for call in CALLS.values() if call.http], ids=lambda call: call.name)
def test_each_call_over_http_has_what_does_it_(call: Call) -> None:
    assert callable(function_of(call)) if call.run else callable(getattr(MemoryTools, call.name))


@pytest.mark.parametrize("call", MEMORY_CALLS, ids=lambda call: call.name)
def test_each_call_has_the_type_of_its_answer(call: Call) -> None:
    Draft202012Validator.check_schema(answers()[call.answer])


@pytest.mark.parametrize("call", CALLS.values(), ids=lambda call: call.name)
def test_each_call_and_each_of_its_parameters_has_words(call: Call) -> None:
    assert call.title.endswith(".") and call.title[0].isupper()
    assert all(each.words.endswith(".") for each in call.parameters)
    assert len({each.name for each in call.parameters}) == len(call.parameters)


@pytest.mark.parametrize("call", [call for call in CALLS.values() if call.run], ids=lambda call: call.name)
def test_the_function_of_a_call_takes_its_parameters(call: Call) -> None:
    inspect.signature(function_of(call)).bind(None, **{each.key: None for each in call.takes_json})


def test_only_append_of_the_tools_writes() -> None:
    tools = [call for call in MEMORY_CALLS if call.tool]
    assert [call.name for call in tools if call.audit] == ["append"]
    assert [call.name for call in tools] == ["search", "get", "status", "append"]


def test_the_options_of_a_search_are_those_of_the_table() -> None:
    """Words and limits are those of the table, types those of the code."""
    said = {
        each.key: each for each in CALLS["search"].parameters if PYTHON in each.faces and each.name != "query"
    }
    kinds = {"integer": "int | None", "number": "float | None", "string": "str", "boolean": "bool"}
    kinds["array"] = "str | Collection[str]"

    assert SearchOptions.__annotations__ == {name: kinds[each.kind] for name, each in said.items()}


def refusal(parameters: Any, arguments: dict[str, Any]) -> str:
    with pytest.raises(BadRequest) as caught:
        read(parameters, arguments)
    return f"{caught.value.message} | {caught.value.hint}"


def test_arguments_are_returned_by_the_name_of_their_parameter() -> None:
    found = read(GET, {"relPath": "MEMORY.md", "from": 3.0, "lines": None})

    assert found == {"path": "MEMORY.md", "from": 3}
    assert isinstance(found["from"], int)


def test_both_names_of_a_parameter_may_be_given_when_they_say_the_same() -> None:
    assert read(GET, {"relPath": "a.md", "path": "a.md"}) == {"path": "a.md"}
    assert "are the same parameter and differ" in refusal(GET, {"path": "b.md", "relPath": "a.md"})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "query is missing"),
        ({"query": None}, "query is missing"),
        ({"query": "q", "maxresults": 3}, "there is no parameter 'maxresults' | write maxResults instead"),
        ({"query": "q", "max_results": 3}, "write maxResults instead"),
        ({"query": "q", "sources": ["memory"]}, "write source instead"),
        ({"query": "q", "xyzzy": 3}, "give no others than: query, maxResults, minScore, source"),
        ({"query": ["q"]}, "query: found an array, allowed: text"),
        ({"query": 7}, "query: found the number 7, allowed: text"),
        ({"query": "q", "maxResults": "5"}, 'maxResults: found "5", allowed: a whole number from 1 to 200'),
        ({"query": "q", "maxResults": 0}, "from 1 to 200"),
        ({"query": "q", "maxResults": 1e9}, "from 1 to 200"),
        ({"query": "q", "maxResults": True}, "found true"),
        ({"query": "q", "maxResults": 2.5}, "a whole number"),
        ({"query": "q", "minScore": float("nan")}, "minScore: found"),
        ({"query": "q", "minScore": -0.1}, "a number from 0 to 1"),
        ({"query": "q", "corpus": "wiki"}, 'corpus: found "wiki", allowed: memory, sessions, all'),
        ({"query": "q", "corpus": "sesions"}, "memory, sessions, all | write sessions instead"),
        ({"query": "q", "tag": ["boat", 7]}, "tag[1]: found the number 7, allowed: text"),
        ({"query": "q", "corpus": {"a": 1}}, "found an object"),
        ({"query": "q", "maxResults": 10**400}, "found a huge number"),
        ({"query": "q", "minScore": 10**400}, "found a huge number"),
        ({"query": "q", "maxResults": float("inf")}, "allowed: a whole number from 1 to 200"),
        (
            {"query": "q", "path": "*a" * 600},
            "path: found a text of 1,200 characters, allowed: text of at most 500 characters",
        ),
        ({"query": "q", "tag": []}, "tag: found an empty list, allowed: a list of 1 to 20 texts"),
        ({"query": "q", "tag": ["a"] * 21}, "tag: found 21 texts, allowed: a list of 1 to 20 texts"),
    ],
)
def test_a_wrong_call_is_refused_with_a_hint(given: dict[str, Any], said: str) -> None:
    assert said in refusal(SEARCH, given)


def test_in_a_url_numbers_and_flags_are_texts() -> None:
    texts = {"query": "7", "maxResults": "5", "minScore": "0.5"}
    assert read(SEARCH, parse_texts(SEARCH, texts)) == {"query": "7", "maxResults": 5, "minScore": 0.5}
    assert read(CONTEXT, parse_texts(CONTEXT, {"private": "true"})) == {"private": True}
    assert "allowed: true or false" in refusal(CONTEXT, parse_texts(CONTEXT, {"private": "maybe"}))
    assert read(GET, parse_texts(GET, {"paths": "a.md"})) == {"paths": ["a.md"]}
    wrong = parse_texts(SEARCH, {"query": "q", "maxResults": "five", "unknown": "x"})
    assert "a whole number" in refusal(SEARCH, wrong)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("parameters", [SEARCH, GET, APPEND, CONTEXT, CALLER])
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_argument_is_read_or_refused(parameters: Any, data: Any) -> None:
    names = [name for one in parameters for name in (one.name, *one.aliases)]
    given = data.draw(st.dictionaries(st.sampled_from(names) | st.text(max_size=9), json_values, max_size=4))

    try:
        texts = {name: text for name, text in given.items() if isinstance(text, str)}
        found = read(parameters, {**given, **parse_texts(parameters, texts)})
    except BadRequest as error:
        assert error.message and error.hint
    else:
        assert found.keys() <= {one.name for one in parameters}


def test_the_schema_that_a_model_reads_is_strict() -> None:
    schema = input_schema(SEARCH)

    assert schema["additionalProperties"] is False
    assert schema["required"] == ["query"]
    assert schema["properties"]["maxResults"]["maximum"] == 200
    assert schema["properties"]["path"]["maxLength"] == 500
    assert schema["properties"]["source"]["enum"] == ["memory", "sessions", "all"]
    assert all(one["description"].endswith(".") for one in schema["properties"].values())
