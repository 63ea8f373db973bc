"""The description of the API: valid, and the same as what is served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import validate
from starlette.routing import Route

from producers.http.app import Api
from producers.http.openapi import describe
from producers.memory_tools import MemoryTools
from shared.config.faces import Serve
from shared.config.load import Options, load
from shared.search import parameters


@pytest.fixture
def api(tmp_path: Path) -> Api:
    (tmp_path / "c.json5").write_text(json.dumps({"agents": {"defaults": {"workspace": str(tmp_path)}}}))
    settings = load(Options(config=tmp_path / "c.json5", home=tmp_path)).settings
    return Api(MemoryTools(settings, ("main",), long_lived=True), Serve(), default_agent="main")


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

    names = {one.name for one in (*parameters.SEARCH, *parameters.CALLER)}
    assert {one["name"] for one in search["get"]["parameters"]} == names
    body = search["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert set(body["properties"]) == names
    assert body["required"] == ["query"]
