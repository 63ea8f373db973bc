"""Describe the HTTP API in OpenAPI 3.1, from the tables that check calls and answers."""

from __future__ import annotations

from collections.abc import Iterable

from memline.producers.calls.arguments import Schema, answers, input_schema
from memline.producers.calls.memory_calls import AGENT_ID, CALLER
from memline.producers.calls.rows import Call, Parameter
from memline.producers.calls.table import CALLS

_FAILURES = {
    "400": "A parameter is unknown, missing or not allowed.",
    "401": "A token is needed, or it is not known.",
    "403": "The chat, the token or the path may not.",
    "404": "There is no such agent or job.",
    "408": "The request arrived too slowly.",
    "413": "The request is too large.",
    "415": "The body is not JSON.",
    "421": "The Host is not known.",
    "429": "Too many requests; see Retry-After.",
    "431": "The head of the request is too large.",
    "503": "The server is busy, or took too long.",
}

#: Names of operations that are not made of the call's own.
_IDS = {"jobs ls": "listJobs", "reindex": "askReindex"}


def describe(version: str, base_path: str = "") -> Schema:
    """Write the whole description, of a server below this path."""
    paths: Schema = {}
    for call in CALLS.values():
        for method in call.methods:
            paths.setdefault(call.path, {})[method.lower()] = _operation(call, method.lower())
    overview = "State of all agents that the token opens, and of the queues"
    metrics = "Queues, backlog, workers and providers for Prometheus"
    text = {"type": "string"}
    mcp = _responses("mcp", "Model Context Protocol, streamable HTTP", _content({"type": "object"}))
    # In the shape of the protocol.
    mcp["responses"]["400"] = {"description": "Not a valid message of the protocol."}
    mcp["requestBody"] = {"required": True, "content": _content({"type": "object"})}
    paths |= {
        "/overview": {"get": _responses("overview", overview, _content(_ref("Overview")))},
        "/metrics": {"get": _responses("metrics", metrics, _content(text, "text/plain"))},
        "/": {"get": _open("page", "Leads to the dashboard", _content(text, "text/html"))},
        "/ui": {"get": _open("dashboard", "Leads to the dashboard", _content(text, "text/html"))},
        "/health": {"get": _open("health", "Whether the server is there")},
        "/ready": {"get": _open("ready", "Whether questions can be answered", failures=["503"])},
        "/openapi.json": {"get": _open("openapi", "This description")},
        "/mcp": {"post": mcp},
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Memline",
            "version": version,
            "description": "Memory search for agents. Every error is {error, hint}.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": base_path or "/"}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {name.capitalize(): answers()[name] for name in sorted(_shown())},
        },
        # On loopback without a token configured there is none to send.
        "security": [{"token": []}, {}],
    }


def _shown() -> set[str]:
    """Return the names of the answers over HTTP; the others are those of the command line."""
    return {call.answer for call in CALLS.values() if call.http} | {"overview", "error"}


def _in_query(parameters: Iterable[Parameter]) -> list[Schema]:
    return [
        {"name": each.name, "in": "query", "required": each.is_required, "schema": each.schema}
        for each in parameters
    ]


def _operation(call: Call, method: str) -> Schema:
    verb, group = call.name.split()[-1], call.name.split()[0].removesuffix("s").capitalize()
    operation_id = _IDS.get(
        call.name, f"{verb}{group}" if call.run else f"{method}{call.answer.capitalize()}"
    )
    operation = _responses(operation_id, call.title, _content(_ref(call.answer.capitalize())))
    operation["description"] = " ".join((call.tool or call.text or call.title).split())
    in_path = [each for each in call.takes_json if f"{{{each.name}}}" in call.path]
    takes = [each for each in call.takes_json if each not in in_path]
    takes += [AGENT_ID] if call.run else CALLER
    parameters = [
        {"name": each.name, "in": "path", "required": True, "schema": each.schema} for each in in_path
    ]
    if method == "get":
        parameters += _in_query(takes)
    else:
        body = input_schema(takes)
        body["properties"] = {
            each.name: each.schema if each.is_required else _or_null(each.schema) for each in takes
        }
        operation["requestBody"] = {"required": not call.run, "content": _content(body)}
    if parameters:
        operation["parameters"] = parameters
    if call.audit and in_path:
        what = "Its state does not allow that; it is unchanged."
        operation["responses"]["409"] = {"description": what, "content": _content(_ref("Error"))}
    return operation


def _or_null(schema: Schema) -> Schema:
    """Let a parameter be null as well: some clients send all, and null is left out."""
    either = {**schema, "type": [schema["type"], "null"]}
    return {**either, "enum": [*schema["enum"], None]} if "enum" in schema else either


def _open(
    operation_id: str, summary: str, content: Schema | None = None, failures: Iterable[str] = ()
) -> Schema:
    """Describe an operation that needs no token."""
    content = content or _content({"type": "object"})
    return {**_responses(operation_id, summary, content, failures), "security": []}


def _responses(
    operation_id: str, summary: str, content: Schema, failures: Iterable[str] = _FAILURES
) -> Schema:
    """Describe an operation by its answer, with these failures."""
    responses: Schema = {"200": {"description": "The answer.", "content": content}}
    for status in failures:
        responses[status] = {"description": _FAILURES[status], "content": _content(_ref("Error"))}
    return {"operationId": operation_id, "summary": summary, "responses": responses}


def _content(schema: Schema, media_type: str = "application/json") -> Schema:
    return {media_type: {"schema": schema}}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}
