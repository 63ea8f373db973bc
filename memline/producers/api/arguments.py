"""Check the arguments of a call against the signature of its function, and describe them in JSON Schema.

A parameter is annotated with its type and a `msgspec.Meta` of its limits and its description. In JSON its
name is in camel case. The first argument of a call says who asks; no client gives it.
"""

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import cache, partial
from inspect import Parameter, signature
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from memline.shared.config.check import bare, plain
from memline.shared.errors import BadRequest

Schema = dict[str, Any]

#: Names in JSON that are not the camel case of the parameter.
_NAMES = {"first": "from", "ids": "id"}

#: Other names of parameters: those of OpenClaw's tools, and what is typed for a question.
_ALIASES = {"relPath": "path", "corpus": "source", "q": "query"}

#: Parameters of functions that no client gives.
_INNER = {"self", "caller", "asker"}

#: Half of a character that is written as two: a text that was cut in the middle of an emoji ends in one.
_HALVES = re.compile("[\ud800-\udfff]")


def json_name(name: str) -> str:
    """Return the name in JSON of a parameter."""
    first, *rest = name.split("_")
    return _NAMES.get(name, first + "".join(word.capitalize() for word in rest))


@cache
def _struct(call: Callable[..., Any]) -> type[msgspec.Struct]:
    """Make a struct of the parameters of a call."""
    hints = get_type_hints(call.func if isinstance(call, partial) else call, include_extras=True)
    parameters = [each for each in signature(call).parameters.values() if each.name not in _INNER]
    fields: list[Any] = [
        (each.name, hints[each.name], *([each.default] if each.default is not Parameter.empty else ()))
        for each in parameters
    ]
    return msgspec.defstruct("Arguments", fields, kw_only=True, rename=json_name)


@cache
def _fields(call: Callable[..., Any]) -> dict[str, Any]:
    """Return the fields of the parameters of a call by their names in JSON."""
    return {each.encode_name: each for each in msgspec.structs.fields(_struct(call))}


@cache
def input_schema(call: Callable[..., Any]) -> Schema:
    """Return the JSON Schema of the arguments of a call."""
    made = msgspec.json.schema(_struct(call))["$defs"]["Arguments"]
    return {
        "type": "object",
        "properties": {name: _without_null(each) for name, each in made["properties"].items()},
        "required": made["required"],
        "additionalProperties": False,
    }


def _without_null(schema: Schema) -> Schema:
    """Return the schema of a parameter without null, which stands for an argument that is left out."""
    choice: Schema = next((each for each in schema.get("anyOf", ()) if each.get("type") != "null"), schema)
    kind = {"type": "string"} if "enum" in choice else {}
    return kind | {name: each for name, each in choice.items() if name != "default"}


def check(call: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by the names of its parameters in Python.

    A value of another type is converted where it has one reading: `"3"` is a number, `"[\\"boat\\"]"` and
    `"boat"` are lists. An empty text or list, and null, is an argument that is left out. Raises BadRequest
    for an unknown name, a missing argument, and a value that is not allowed.
    """
    fields = _fields(call)
    schemas, values = input_schema(call)["properties"], dict[str, Any]()
    for key, raw in arguments.items():
        name = _ALIASES.get(key, key)
        if name not in fields:
            near = get_close_matches(name.lower(), fields, n=1)
            hint = f"write {near[0]} instead" if near else f"leave it out; there are: {', '.join(fields)}"
            raise BadRequest(f"there is no parameter {key[:80]!r}", hint=hint)
        value = _read(raw, fields[name].type)
        if value in (None, "", []):
            continue
        try:
            value = msgspec.convert(value, fields[name].type, strict=False)
        except msgspec.ValidationError as error:
            text = json.dumps(raw, ensure_ascii=False, default=str)[:80]
            words = plain(str(error).replace(" | null", "")).removeprefix("expected ")
            allowed = ", ".join(schemas[name].get("enum", ())) or words
            hint = f"correct {name}. {schemas[name].get('description', '')}"
            raise BadRequest(f"{name}: {text} is not allowed, but: {allowed}", hint=hint) from error
        if values.setdefault(name, value) != value:
            raise BadRequest(f"{name} is given twice, and differs", hint=f"give {name} alone")
    for name, field in fields.items():
        if field.required and name not in values:
            hint = f"give {name}. {schemas[name].get('description', '')}"
            raise BadRequest(f"{name} is missing", hint=hint)
    return {fields[name].name: value for name, value in values.items()}


def whole(value: Any) -> Any:
    """Return a JSON value with U+FFFD for each half of a character, which no index or log can keep."""
    if isinstance(value, str):
        return _HALVES.sub("\ufffd", value)
    if isinstance(value, list):
        return [whole(each) for each in value]
    if isinstance(value, dict):
        return {whole(name): whole(each) for name, each in value.items()}
    return value


def _read(raw: Any, hint: Any) -> Any:
    """Return a value as the type of its parameter needs it, where that has one reading."""
    kind = get_origin(bare(hint)) or bare(hint)
    if isinstance(raw, str):
        raw = whole(raw) if kind in (str, list, tuple) else whole(raw).strip()
        # A glob may begin with a bracket, too.
        if raw.lstrip().startswith("[" if kind in (list, tuple) else '["'):
            with suppress(ValueError):
                raw = json.loads(raw)
    if kind in (list, tuple):
        raw = raw if isinstance(raw, list) else [raw]
        return [whole(each) for each in raw if each not in (None, "")]
    if isinstance(raw, list) and len(raw) == 1 and not isinstance(raw[0], list):
        return _read(raw[0], hint)
    if kind is Literal and isinstance(raw, str):
        return {each.lower(): each for each in get_args(bare(hint))}.get(raw.lower(), raw)
    return raw
