"""Arguments as clients send them: one reading is taken, all else is an error that names the parameter."""

import pytest

from memline.producers.api.arguments import check, input_schema
from memline.producers.api.calls import Calls
from memline.shared.errors import BadRequest


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({"maxResults": "3"}, {"max_results": 3}),
        ({"maxResults": 3.0, "minScore": " 0.2"}, {"max_results": 3, "min_score": 0.2}),
        ({"maxResults": [4], "source": ["memory"]}, {"max_results": 4, "source": "memory"}),
        ({"tag": '["boat", "sea"]'}, {"tag": ["boat", "sea"]}),
        ({"tag": "boat"}, {"tag": ["boat"]}),
        ({"path": '["memory/**"]', "exclude": "[a-c]*.md"}, {"path": "memory/**", "exclude": "[a-c]*.md"}),
        ({"tag": [], "path": "", "since": None, "source": ""}, {}),
        ({"source": "Memory", "corpus": "memory"}, {"source": "memory"}),
        ({"path": "a\ud83d.md"}, {"path": "a\ufffd.md"}),
    ],
)
def test_what_has_one_reading_is_taken(given, read):
    assert check(Calls.search, {"query": "dinghy", **given}) == {"query": "dinghy", **read}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"maxResults": 0}, "maxResults: 0 is not allowed, but: a whole number >= 1"),
        ({"maxResults": True}, "maxResults: true"),
        ({"maxResults": [1, 2]}, "maxResults: "),
        ({"path": '["a.md", "b.md"]'}, "path: "),
        ({"minScore": "nan"}, "minScore: "),
        ({"source": "evil"}, 'source: "evil" is not allowed, but: all, memory, sessions'),
        ({"query": 7}, "query: 7 is not allowed, but: a text"),
        ({"query": ""}, "query is missing"),
        ({"source": "all", "corpus": "memory"}, "source is given twice, and differs"),
        ({"tag": ["a", {}]}, "tag: "),
        ({"tag": ["a"] * 21}, "a list of length <= 20"),
        ({"agent": "work"}, "there is no parameter 'agent'"),
    ],
)
def test_all_else_is_refused_and_named(given, said):
    with pytest.raises(BadRequest) as caught:
        check(Calls.search, {"query": "dinghy", **given})

    assert said in caught.value.message and caught.value.hint


def test_the_schema_has_limits_and_no_null():
    schema = input_schema(Calls.search)

    assert (schema["required"], schema["additionalProperties"]) == (["query"], False)
    assert {"minimum": 1, "maximum": 200, "type": "integer"}.items() <= schema["properties"][
        "maxResults"
    ].items()
    assert "null" not in str(schema) and all(each["description"] for each in schema["properties"].values())
