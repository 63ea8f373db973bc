"""Check the arguments of a call against the table, and write its JSON Schema.

`answers.json` next to this module has the JSON Schema of every answer: additive only, and tests hold real
ones against it. That of a call over HTTP or MCP is what these answer; a command prints some of them as a
list.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from memline.producers.calls.rows import Call, Parameter
from memline.shared.config.check import describe, nearest
from memline.shared.errors import BadRequest
from memline.shared.patterns import late
from memline.shared.words import counted

Schema = dict[str, Any]

_NOUNS = {
    "boolean": "true or false",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "array": "a list of {minItems} to {maxItems} texts",
}
_LIMITS = {"minimum": " from {:g}", "maximum": " to {:g}", "maxLength": " of at most {} characters"}
#: What JSON may escape: a text that was cut in the middle of an emoji ends in one.
_HALVES = late("[\ud800-\udfff]")

_FLAGS = {"true": True, "1": True, "false": False, "0": False}


@cache
def answers() -> dict[str, Schema]:
    """Return the JSON Schema of the answer to each call, of the overview of all agents and of errors."""
    named: dict[str, Schema] = json.loads((Path(__file__).parent / "answers.json").read_text("utf-8"))
    return {name: _whole(schema, named) for name, schema in named.items()}


def _whole(part: Any, named: Mapping[str, Schema]) -> Any:
    """Put the schema of a name in the place of its `$ref`, at any depth."""
    if isinstance(part, dict):
        name = part.get("$ref")
        return _whole(named[name], named) if name else {key: _whole(part[key], named) for key in part}
    return [_whole(each, named) for each in part] if isinstance(part, list) else part


def allowed(schema: Schema) -> str:
    """Say in words what a schema allows."""
    if "enum" in schema:
        return ", ".join(schema["enum"])
    limits = (words.format(schema[name]) for name, words in _LIMITS.items() if name in schema)
    return _NOUNS[schema["type"]].format_map(schema) + "".join(limits)


def _found(raw: object, schema: Schema) -> str:
    """Describe a value that does not fit, by its size where that is what is wrong."""
    if schema["type"] == "array" and isinstance(raw, list):
        return counted(len(raw), "text") if raw else "an empty list"
    if isinstance(raw, str) and len(raw) > schema.get("maxLength", math.inf):
        return f"a text of {len(raw):,} characters"
    return describe(raw)


def read(parameters: Iterable[Parameter], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Check the arguments of a call and return them by the name of their parameter; null is left out.

    A text for a list is its only item. Raises BadRequest for an unknown name, a missing or doubled parameter,
    and a value that is not allowed.
    """
    by_name = {name: each for each in parameters for name in (each.name, *each.aliases)}
    values: dict[str, Any] = {}
    for name, raw in arguments.items():
        parameter = by_name.get(name)
        if parameter is None:
            near = nearest(name, by_name)
            names = ", ".join(dict.fromkeys(each.name for each in by_name.values())) or "none"
            raise BadRequest(
                f"there is no parameter {name[:80]!r}",
                hint=f"write {near} instead" if near else f"give no others than: {names}",
            )
        if raw is None:
            continue
        if parameter.kind == "array" and isinstance(raw, str):
            raw = [raw]
        if not _fits(parameter.schema, raw):
            at, member, schema = _mismatch(name, raw, parameter.schema)
            near = nearest(member, schema.get("enum", ())) if isinstance(member, str) else ""
            raise BadRequest(
                f"{at}: found {_found(member, schema)}, allowed: {allowed(schema)}",
                hint=f"write {near} instead" if near else f"correct {name}. {parameter.description}",
            )
        checked = int(raw) if parameter.kind == "integer" else raw
        if values.setdefault(parameter.name, checked) != checked:
            names = " and ".join((parameter.name, *parameter.aliases))
            raise BadRequest(
                f"{names} are the same parameter and differ", hint=f"give {parameter.name} alone"
            )
    for parameter in by_name.values():
        if parameter.is_required and parameter.name not in values:
            hint = f"give {parameter.name}. {parameter.description}"
            raise BadRequest(f"{parameter.name} is missing", hint=hint)
    return values


def by_key(call: Call, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return checked arguments by the names of their parameters in Python."""
    return {each.key: values[each.name] for each in call.parameters if each.name in values}


def _fits(schema: Schema, raw: object) -> bool:
    kind = schema["type"]
    if kind == "boolean":
        return isinstance(raw, bool)
    if kind == "string":
        is_text = isinstance(raw, str) and len(raw) <= schema.get("maxLength", math.inf)
        return is_text and raw in schema.get("enum", [raw])
    if kind == "array":
        if not isinstance(raw, list) or not schema["minItems"] <= len(raw) <= schema["maxItems"]:
            return False
        return all(_fits(schema["items"], each) for each in raw)
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        return False
    # Whole numbers may be too large for a float, and then cannot be asked whether they are finite.
    if isinstance(raw, float) and not (raw.is_integer() if kind == "integer" else math.isfinite(raw)):
        return False
    return bool(schema.get("minimum", raw) <= raw <= schema.get("maximum", raw))


def _mismatch(name: str, raw: object, schema: Schema) -> tuple[str, object, Schema]:
    """Return what does not fit, with its name and schema: of a list its first wrong member, if it has one."""
    members = raw if schema["type"] == "array" and isinstance(raw, list) else []
    wrong = (each for each in enumerate(members) if not _fits(schema["items"], each[1]))
    return next(((f"{name}[{at}]", member, schema["items"]) for at, member in wrong), (name, raw, schema))


def whole(raw: Any) -> Any:
    """Put U+FFFD in the place of half a character in texts: neither index nor log can hold one."""
    if isinstance(raw, list):
        return [whole(each) for each in raw]
    return _HALVES.sub("\ufffd", raw) if isinstance(raw, str) else raw


def parse_texts(parameters: Iterable[Parameter], texts: Mapping[str, str]) -> dict[str, Any]:
    """Turn texts, as in the query of a URL, into arguments; `read` refuses what cannot be turned."""
    types = {name: each.kind for each in parameters for name in (each.name, *each.aliases)}
    return {name: _from_text(types.get(name), text) for name, text in texts.items()}


def _from_text(kind: str | None, text: str) -> object:
    with suppress(ValueError, KeyError):
        if kind == "integer":
            return int(text)
        if kind == "number":
            return float(text)
        if kind == "boolean":
            return _FLAGS[text.lower()]
    return text


def input_schema(parameters: Iterable[Parameter]) -> Schema:
    """Write the JSON Schema of a call with these parameters."""
    listed = tuple(parameters)
    return {
        "type": "object",
        "properties": {each.name: each.schema for each in listed},
        "required": [each.name for each in listed if each.is_required],
        "additionalProperties": False,
    }
