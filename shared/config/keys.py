"""What the schema says, in the words of the file: JSON names, dotted paths, and blocks made from values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field
from typing import Any, TypeVar

from shared.config.block import Block

B = TypeVar("B", bound=Block)


def json_name(attribute: str) -> str:
    """The key of the file for an attribute: `max_results` is `maxResults`, `lambda_` is `lambda`."""
    first, *rest = attribute.rstrip("_").split("_")
    return first + "".join(word.capitalize() for word in rest)


_MEMBERS: dict[type[Block], dict[str, Field[Any]]] = {}


def members(block: type[Block]) -> dict[str, Field[Any]]:
    """The fields of a block by JSON name, in the order of the schema."""
    known = _MEMBERS.get(block)
    if known is None:
        known = _MEMBERS[block] = {
            json_name(name): field for name, field in block.__dataclass_fields__.items()
        }
    return known


def block_of(field: Field[Any]) -> type[Block] | None:
    """The block that the field holds; None when it is a leaf."""
    made_by: Any = field.default_factory
    return made_by if isinstance(made_by, type) and issubclass(made_by, Block) else None


def leaves(block: type[Block], prefix: str = "") -> Iterator[tuple[str, Field[Any]]]:
    """Every leaf below a block, as (dotted path, field), in the order of the schema."""
    for name, field in members(block).items():
        inner = block_of(field)
        if inner is None:
            yield prefix + name, field
        else:
            yield from leaves(inner, f"{prefix}{name}.")


def default_of(field: Field[Any]) -> Any:
    """The default of a leaf."""
    return field.default if field.default_factory is MISSING else field.default_factory()


def build(block: type[B], values: Mapping[str, Any], prefix: str = "") -> B:
    """A block with the values at their dotted paths, and defaults for the rest."""
    given: dict[str, Any] = {}
    for name, field in members(block).items():
        path = prefix + name
        inner = block_of(field)
        if inner is not None:
            given[field.name] = build(inner, values, f"{path}.")
        elif path in values:
            given[field.name] = values[path]
    return block(**given)
