"""The description of the API: valid, and the same as what is served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import validate
from starlette.routing import Route

from memline.producers.agents.calls import CALLER, CALLS
from memline.producers.agents.tools import MemoryTools
from memline.producers.http.app import Api
from memline.producers.http.openapi import describe
from memline.shared.config.load import Options, load
from memline.shared.config.schema import Serve


@pytest.fixture
def api(tmp_path: Path) -> Api:
    (tmp_path / "c.json5").write_text(json.dumps({"agents": {"defaults": {"workspace": str(tmp_path)}}}))
    settings = load(Options(config=tmp_path / "c.json5", home=tmp_path)).settings
    return Api(MemoryTools(settings, ("main",)), Serve(), default_agent="main")


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

    names = {each.name for each in (*CALLS["search"].parameters, *CALLER)}
    assert {each["name"] for each in search["get"]["parameters"]} == names
    body = search["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert set(body["properties"]) == names
    assert body["required"] == ["query"]
