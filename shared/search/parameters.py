"""The parameters of what agents call, one table for every face: their names, types, limits and meanings.

The same table checks a call, is the schema that a model reads, and the description of the HTTP API.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from shared.errors import BadRequest
from shared.values import value

#: Hits an agent may ask for; candidates beyond these are not looked at either.
MAX_RESULTS = 200

#: A longer glob names no file, and takes time to read.
MAX_GLOB_CHARS = 500

_TYPES = {"text": "string", "whole": "integer", "number": "number", "flag": "boolean"}


@value
class Parameter:
    """One parameter of a call."""

    name: str
    #: text, whole, number or flag.
    kind: str
    doc: str
    required: bool = False
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    #: Characters of a text at most; None: as many as fit into a request.
    max_chars: int | None = None
    #: Other names of the same.
    aliases: tuple[str, ...] = ()

    def schema(self) -> dict[str, Any]:
        """The parameter as JSON Schema."""
        made: dict[str, Any] = {"type": _TYPES[self.kind], "description": self.doc}
        if self.choices:
            made["enum"] = list(self.choices)
        if self.low is not None:
            made["minimum"] = self.low
        if self.high is not None:
            made["maximum"] = self.high
        if self.max_chars is not None:
            made["maxLength"] = self.max_chars
        return made

    @property
    def allowed(self) -> str:
        """What may be given, in words."""
        if self.choices:
            return ", ".join(self.choices)
        if self.kind == "flag":
            return "true or false"
        if self.kind == "text":
            return "text" if self.max_chars is None else f"text of at most {self.max_chars} characters"
        what = "a whole number" if self.kind == "whole" else "a number"
        low = "" if self.low is None else f" from {self.low:g}"
        high = "" if self.high is None else f" to {self.high:g}"
        return f"{what}{low}{high}"


SEARCH = (
    Parameter(
        name="query",
        kind="text",
        required=True,
        doc="What to find: a question in natural language, or exact words, ids, file names, dates.",
    ),
    Parameter(
        name="maxResults",
        kind="whole",
        low=1,
        high=MAX_RESULTS,
        doc="Hits at most. Default: 6, as configured.",
    ),
    Parameter(
        name="minScore",
        kind="number",
        low=0,
        high=1,
        doc="Similarity below which a hit without any word of the query is left out. Default: 0.35.",
    ),
    Parameter(
        name="source",
        kind="text",
        choices=("memory", "sessions", "all"),
        aliases=("corpus",),
        doc="Where to look: memory (notes), sessions (past conversations), or all, the default.",
    ),
    Parameter(
        name="path",
        kind="text",
        max_chars=MAX_GLOB_CHARS,
        doc="Only files that match this glob, such as memory/2026-02-*.md.",
    ),
    Parameter(
        name="since", kind="text", doc="Only notes from this day on: 2026-02-10, or an age such as 30d."
    ),
    Parameter(name="until", kind="text", doc="Only notes up to this day."),
)

GET = (
    Parameter(
        name="path",
        kind="text",
        required=True,
        aliases=("relPath",),
        doc="Path of a hit of memory_search, such as memory/2026-02-10.md; path#L5-L7 names lines as well.",
    ),
    Parameter(name="from", kind="whole", low=0, doc="First line, 1-based. Default: 1."),
    Parameter(name="lines", kind="whole", low=1, doc="How many lines. Default: 120."),
)

STATUS: tuple[Parameter, ...] = ()

APPEND = (
    Parameter(
        name="text",
        kind="text",
        required=True,
        doc="What to remember, in a sentence or a few lines that are understood without this conversation.",
    ),
    Parameter(
        name="target",
        kind="text",
        choices=("daily", "longTerm"),
        doc="daily: today's log, memory/YYYY-MM-DD.md (default). longTerm: MEMORY.md, for lasting facts.",
    ),
    Parameter(
        name="heading", kind="text", doc="Heading to put the entry under; made when it is not the last."
    ),
)

CONTEXT = (
    Parameter(
        name="private",
        kind="flag",
        doc="Whether the session is the owner's own: then MEMORY.md is part of it. Default: false.",
    ),
)

#: What every HTTP call takes beside its own.
CALLER = (
    Parameter(
        name="agent", kind="text", doc="The agent whose memory is meant. Default: the one of the token."
    ),
    Parameter(
        name="sessionKey",
        kind="text",
        doc="Key of the session that asks, agent:<id>:<rest>; it decides about citations and access.",
    ),
)


def read(
    parameters: Iterable[Parameter], given: Mapping[str, Any], *, is_text: bool = False
) -> dict[str, Any]:
    """The values given, by the name of their parameter; those left out or null are absent.

    `is_text`: all values are texts, as in the query of a URL. Raises BadRequest for an unknown name, a
    missing or doubled parameter, and a value that is not allowed.
    """
    known = {name: one for one in parameters for name in (one.name, *one.aliases)}
    found: dict[str, Any] = {}
    for name, raw in given.items():
        if name not in known:
            raise _unknown(name, known)
        if raw is None:
            continue
        parameter = known[name]
        checked = _checked(parameter, name, raw, is_text)
        if found.get(parameter.name, checked) != checked:
            names = " and ".join((parameter.name, *parameter.aliases))
            raise BadRequest(
                f"{names} are the same parameter and differ", hint=f"give {parameter.name} alone"
            )
        found[parameter.name] = checked
    for parameter in known.values():
        if parameter.required and parameter.name not in found:
            raise BadRequest(f"{parameter.name} is missing", hint=f"{parameter.name}: {parameter.doc}")
    return found


def input_schema(parameters: Iterable[Parameter]) -> dict[str, Any]:
    """The JSON Schema of a call with these parameters; aliases work but are not shown."""
    listed = tuple(parameters)
    return {
        "type": "object",
        "properties": {one.name: one.schema() for one in listed},
        "required": [one.name for one in listed if one.required],
        "additionalProperties": False,
    }


def _unknown(name: str, known: Mapping[str, Parameter]) -> BadRequest:
    from shared.config.check import nearest

    near = nearest(name[:80], known)
    names = ", ".join(dict.fromkeys(one.name for one in known.values())) or "none"
    return BadRequest(
        f"there is no parameter {name[:80]!r}",
        hint=f"did you mean {near}?" if near else f"the parameters are: {names}",
    )


def _checked(parameter: Parameter, name: str, raw: object, is_text: bool) -> object:
    found = _from_text(parameter, raw) if is_text and isinstance(raw, str) else raw
    if _fits(parameter, found):
        return int(found) if parameter.kind == "whole" and isinstance(found, float) else found
    from shared.config.check import describe

    raise BadRequest(
        f"{name}: found {describe(raw)}, allowed: {parameter.allowed}", hint=f"{name}: {parameter.doc}"
    )


def _from_text(parameter: Parameter, raw: str) -> object:
    try:
        if parameter.kind == "whole":
            return int(raw)
        if parameter.kind == "number":
            return float(raw)
    except ValueError:
        return raw
    if parameter.kind == "flag":
        return {"true": True, "1": True, "false": False, "0": False}.get(raw.lower(), raw)
    return raw


def _fits(parameter: Parameter, found: object) -> bool:
    if parameter.kind == "flag":
        return isinstance(found, bool)
    if parameter.kind == "text":
        if not isinstance(found, str) or len(found) > (parameter.max_chars or len(found)):
            return False
        return not parameter.choices or found in parameter.choices
    if isinstance(found, bool) or not isinstance(found, int | float):
        return False
    # Whole numbers may be too large for a float, and then cannot be asked whether they are finite.
    if isinstance(found, float) and not (
        math.isfinite(found) if parameter.kind == "number" else found.is_integer()
    ):
        return False
    low, high = parameter.low, parameter.high
    return (low is None or found >= low) and (high is None or found <= high)
