"""The description of the HTTP API in OpenAPI 3.1, made from the tables that check calls and answers."""

from __future__ import annotations

from typing import Any

from producers import contract, tool_texts
from shared.search import parameters
from shared.search.parameters import Parameter

Schema = dict[str, Any]

_SUMMARIES = {
    "/search": ("Search memory", tool_texts.SEARCH),
    "/get": ("Read lines of a note", tool_texts.GET),
    "/status": ("State of memory", tool_texts.STATUS),
    "/context": ("What a session starts with", "The logs of today and yesterday; in private MEMORY.md too."),
    "/append": ("Remember something", tool_texts.APPEND),
}

_TAKES: dict[str, tuple[Parameter, ...]] = {
    "/search": parameters.SEARCH,
    "/get": parameters.GET,
    "/status": parameters.STATUS,
    "/context": parameters.CONTEXT,
    "/append": parameters.APPEND,
}

_GIVES = {"/search": "Search", "/get": "Get", "/status": "Status", "/context": "Context", "/append": "Append"}

_METHODS = {
    "/search": ("get", "post"),
    "/get": ("get", "post"),
    "/status": ("get",),
    "/context": ("get",),
    "/append": ("post",),
}

_FAILURES = {
    "400": "A parameter is unknown, missing or not allowed.",
    "401": "A token is needed, or it is not known.",
    "403": "The chat, the token or the path may not.",
    "404": "There is no such agent.",
    "408": "The request came too slowly.",
    "413": "The request is too large.",
    "415": "The body is not JSON.",
    "421": "The Host is not known.",
    "429": "Too many requests; see Retry-After.",
    "503": "The server is busy, or took too long.",
}


def describe(version: str) -> Schema:
    """The whole description."""
    paths: Schema = {
        path: {method: _operation(path, method) for method in methods} for path, methods in _METHODS.items()
    }
    paths["/overview"] = {"get": _overview()}
    paths["/metrics"] = {"get": _metrics()}
    paths["/"] = {"get": _plain("A page for people", "page", ("200",), kind="text/html")}
    paths["/health"] = {"get": _plain("Whether the server is there", "health", ("200",))}
    paths["/ready"] = {"get": _plain("Whether questions can be answered", "ready", ("200", "503"))}
    paths["/openapi.json"] = {"get": _plain("This description", "openapi", ("200",))}
    paths["/mcp"] = {"post": _mcp()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Memline",
            "version": version,
            "description": "Memory search for agents. Every error is {error, hint}.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Search": contract.SEARCH,
                "Get": contract.GET,
                "Status": contract.STATUS,
                "Context": contract.CONTEXT,
                "Append": contract.APPEND,
                "Overview": contract.OVERVIEW,
                "Error": contract.ERROR,
            },
        },
        # On loopback without a token configured there is none to send.
        "security": [{"token": []}, {}],
    }


def _operation(path: str, method: str) -> Schema:
    summary, text = _SUMMARIES[path]
    takes = (*_TAKES[path], *parameters.CALLER)
    operation: Schema = {
        "operationId": f"{method}{_GIVES[path]}",
        "summary": summary,
        "description": text,
        "responses": {
            "200": {
                "description": "The answer.",
                "content": {"application/json": {"schema": _ref(_GIVES[path])}},
            },
            **_failures(),
        },
    }
    if method == "get":
        operation["parameters"] = [
            {
                "name": name,
                "in": "query",
                "required": one.required and name == one.name,
                "schema": one.schema(),
            }
            for one in takes
            for name in (one.name,)
        ]
    else:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": parameters.input_schema(takes)}},
        }
    return operation


def _overview() -> Schema:
    answer = {"application/json": {"schema": _ref("Overview")}}
    return {
        "operationId": "overview",
        "summary": "State of all agents that the token opens, and of the queues",
        "responses": {"200": {"description": "The answer.", "content": answer}, **_failures()},
    }


def _metrics() -> Schema:
    text = {"text/plain": {"schema": {"type": "string"}}}
    return {
        "operationId": "metrics",
        "summary": "Queues, backlog, workers and providers for Prometheus",
        "responses": {"200": {"description": "Its text format.", "content": text}, **_failures()},
    }


def _plain(summary: str, name: str, statuses: tuple[str, ...], *, kind: str = "application/json") -> Schema:
    any_object = {kind: {"schema": {"type": "object" if kind == "application/json" else "string"}}}
    responses: Schema = {"200": {"description": "Yes.", "content": any_object}}
    if "503" in statuses:
        responses["503"] = _failure("An index cannot be read.")
    return {"operationId": name, "summary": summary, "security": [], "responses": responses}


def _mcp() -> Schema:
    message = {"application/json": {"schema": {"type": "object"}}}
    return {
        "operationId": "mcp",
        "summary": "Model Context Protocol, streamable HTTP",
        "requestBody": {"required": True, "content": message},
        "responses": {
            "200": {"description": "An answer of the protocol.", "content": message},
            **_failures(),
            # In the shape of the protocol.
            "400": {"description": "No message of the protocol."},
        },
    }


def _failures() -> Schema:
    return {status: _failure(text) for status, text in _FAILURES.items()}


def _failure(description: str) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": _ref("Error")}}}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}
