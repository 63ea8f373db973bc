"""The description of the API: valid, and the same as what is served."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate
from starlette.routing import Route

from memline.producers.agents.tools import MemoryTools
from memline.producers.calls.arguments import read
from memline.producers.calls.memory_calls import CALLER, SEARCH
from memline.producers.http.app import Api
from memline.producers.http.openapi import describe
from memline.producers.web.dashboard import Dashboard
from memline.shared.config.installation import Serve
from memline.shared.config.load import Options, load
from memline.shared.errors import ConfigError
from memline.shared.search.request import SearchRequest, day_bounds


@pytest.fixture
def api(tmp_path: Path) -> Api:
    (tmp_path / "c.json5").write_text(json.dumps({"agents": {"defaults": {"workspace": str(tmp_path)}}}))
    settings = load(Options(config=tmp_path / "c.json5", home=tmp_path)).settings
    return Api(MemoryTools(settings, ("main",)), Serve(), dashboard=Dashboard, default_agent="main")


def test_it_is_valid_openapi() -> None:
    validate(describe("1.2.3"))


def test_it_describes_every_route_and_no_other(api: Api) -> None:
    served = {
        (route.path, method.lower())
        for route in api.routes
        if isinstance(route, Route)
        for method in (route.methods or ()) - {"HEAD"}
    }
    described = {(path, method) for path, methods in describe("1")["paths"].items() for method in methods}

    assert described == served


def test_every_parameter_is_described_for_both_methods() -> None:
    search: dict[str, Any] = describe("1")["paths"]["/search"]

    names = {each.name for each in (*SEARCH.takes_json, *CALLER)}
    assert {each["name"] for each in search["get"]["parameters"]} == names
    body = search["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert set(body["properties"]) == names
    assert body["required"] == ["query"]


def test_null_is_allowed_where_it_is_taken(api: Api) -> None:
    body = describe("1")["paths"]["/search"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    checker = Draft202012Validator(body)

    given = {"query": "x", **dict.fromkeys(set(body["properties"]) - {"query"})}

    checker.validate(given)
    assert read((*SEARCH.takes_json, *CALLER), given) == {"query": "x"}
    assert not checker.is_valid({"query": None})
    assert not checker.is_valid({"query": "x", "source": "wiki"})


@pytest.mark.parametrize(
    ("text", "is_bound"),
    [
        *(
            (text, True)
            for text in ("2026-02-10", "30d", "2w", "6 m", "1Y", "yesterday", "last week", "März 2026")
        ),
        *((text, False) for text in ("someday", "30", "d", "123456d", "2026-02-10T", "x" * 61)),
    ],
)
def test_days_that_are_read_are_taken(text: str, is_bound: bool) -> None:
    for each in SEARCH.takes_json:
        if each.name in ("since", "until"):
            # Words of six languages are no pattern: what the schema takes may still be refused.
            assert Draft202012Validator(each.schema).is_valid(text) is (len(text) <= 60)
    request = SearchRequest(query="x", since=text)
    if is_bound:
        day_bounds(request, 1_770_000_000)
    else:
        with pytest.raises(ConfigError):
            day_bounds(request, 1_770_000_000)
