"""Write records as JSON, under the names that JSON uses, and read tables of this package.

And take what others wrote, in whatever form, for what it should be: one of another kind is empty.
"""

from pathlib import Path
from typing import Any

import msgspec

#: The names of fields in JSON: an answer of six hits asks 90 times.
_json_names = {"agent": "agentId"}


def to_json(
    record: msgspec.Struct, *more: str, without: tuple[str, ...] = (), **named: Any
) -> dict[str, Any]:
    """Return the fields by their names in JSON: `also_in` as `alsoIn`, `agent` as `agentId`.

    `more`: properties that stand with them; `without`: fields that do not; `named`: what else stands there,
    by its name in JSON. Tuples become lists, paths texts, records objects (by a `to_json` of theirs, if any).
    """
    shown = [name for name in (*record.__struct_fields__, *more) if name not in without]
    return {_json_name(name): _in_json(getattr(record, name)) for name in shown} | named


def _json_name(name: str) -> str:
    if (known := _json_names.get(name)) is None:
        first, *rest = name.split("_")
        known = _json_names[name] = first + "".join(map(str.capitalize, rest))
    return known


def _in_json(content: Any) -> Any:
    if hasattr(content, "to_json"):
        return content.to_json()
    if isinstance(content, msgspec.Struct):
        return to_json(content)
    if isinstance(content, tuple):
        return [_in_json(each) for each in content]
    return str(content) if hasattr(content, "__fspath__") else content


def read_table(module_file: str, name: str) -> dict[str, Any]:
    """Return what the file `name` beside a module (its `__file__`) says."""
    import tomllib  # 4 modules, which few commands need

    return tomllib.loads(Path(module_file).with_name(name).read_text("utf-8"))


def as_dict(content: object) -> dict[str, Any]:
    """Return what should be an object; an empty one when it is something else."""
    return content if isinstance(content, dict) else {}


def as_list(content: object) -> list[Any]:
    """Return what should be a list; an empty one when it is something else."""
    return content if isinstance(content, list) else []


def as_text(content: object) -> str:
    """Return what should be text; an empty one when it is something else."""
    return content if isinstance(content, str) else ""


def as_count(content: object) -> int:
    """Return what should be a whole number, also one in text; 0 when it is something else."""
    try:
        return msgspec.convert(content, int, strict=False)
    except msgspec.ValidationError:
        return 0
