"""Blocks of the configuration: fields with their limits, named as in the file, and shown without secrets.

Every command imports this, so all blocks share the methods of `shared.values`, and each has a docstring
(without one, dataclasses builds it from the signature): 6 ms of CPU instead of 10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field
from typing import Any, ClassVar, NamedTuple, TypedDict, TypeVar, Unpack, dataclass_transform

from memline.shared.values import equip

#: What to do about keys that a block does not declare: refuse them, warn of them, warn of those that look
#: like a declared one, or ignore them because OpenClaw has keys of its own there.
REFUSE, WARN, WARN_IF_NEAR, IGNORE = "refuse", "warn", "warn-if-near", "ignore"


#: Minutes; in the file a number of minutes, or a text with a unit: `90s`, `5m`, `1h`.
Duration = float

#: Bytes; in the file a number of them, or a text with a unit: `512kb`, `2mb`.
Bytes = int


class Setting(NamedTuple):
    """A value and where it comes from: `<file>: <path>`, a variable, an option, or `default`."""

    value: Any
    origin: str


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class Block:
    """Make every subclass a frozen value, as `@value` does, that hides secrets in its `repr`."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    #: The fields by JSON name, in the order of the schema.
    members: ClassVar[Mapping[str, Field[Any]]] = {}

    #: What becomes of a key that is not declared.
    unknown: ClassVar[str] = REFUSE
    #: Keys of OpenClaw that would change nothing here, by dotted path, and the reason.
    without_effect: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls) -> None:
        equip(dataclass(init=False, repr=False, eq=False)(cls))
        cls.members = {json_name(name): field for name, field in cls.__dataclass_fields__.items()}

    def __repr__(self) -> str:
        shown = (
            f"{name}={masked(getattr(self, name), field.metadata)!r}"
            for name, field in self.__dataclass_fields__.items()
            if field.repr
        )
        return f"{type(self).__name__}({', '.join(shown)})"


B = TypeVar("B", bound=Block)


class Limits(TypedDict, total=False):
    """The metadata of a field."""

    choices: tuple[str, ...]
    low: float
    high: float
    clamp: bool  # Moves a number to the nearest limit.
    pattern: str  # A regular expression for the whole text; `allowed` says it in words.
    allowed: str
    normal: Callable[[str], str]  # Brings a text into its normal form before it is checked.
    required: bool
    secret: bool  # Never shown; a `url` is shown without its password. Both may hold `${NAME}`.
    url: bool
    of: type[Block]  # The value is such a block, for a tuple an array of them; a text is its `shorthand`.
    shorthand: str
    advice: Mapping[str, str]  # Hints for wrong values that are often written.
    doc: str


def key(default: Any = None, *, factory: Callable[[], Any] | None = None, **limits: Unpack[Limits]) -> Any:
    """Declare a field with its default and its limits."""
    if factory is not None:
        return field(default_factory=factory, metadata=limits)
    return field(default=default, metadata=limits)


def json_name(attribute: str) -> str:
    """Turn an attribute into the key of the file: `max_results` is `maxResults`, `lambda_` is `lambda`."""
    first, *rest = attribute.rstrip("_").split("_")
    return first + "".join(word.capitalize() for word in rest)


def block_of(field: Field[Any]) -> type[Block] | None:
    """Return the block that the field holds; None for a leaf."""
    made_by: Any = field.default_factory
    return made_by if isinstance(made_by, type) and issubclass(made_by, Block) else None


def leaves(block: type[Block], prefix: str = "") -> Iterator[tuple[str, Field[Any]]]:
    """Yield every leaf below a block, as (dotted path, field), in the order of the schema."""
    for name, member in block.members.items():
        if inner := block_of(member):
            yield from leaves(inner, f"{prefix}{name}.")
        else:
            yield prefix + name, member


def default_of(field: Field[Any]) -> Any:
    """Return the default of a leaf."""
    return field.default if field.default_factory is MISSING else field.default_factory()


def values(settings: Mapping[str, Setting]) -> dict[str, Any]:
    """Drop the origins."""
    return {path: setting.value for path, setting in settings.items()}


def build(block: type[B], values: Mapping[str, Any], prefix: str = "") -> B:
    """Make a block from the values at their dotted paths, and defaults for the rest."""
    arguments: dict[str, Any] = {}
    for name, member in block.members.items():
        if inner := block_of(member):
            arguments[member.name] = build(inner, values, f"{prefix}{name}.")
        elif prefix + name in values:
            arguments[member.name] = values[prefix + name]
    return block(**arguments)


def masked(value: Any, limits: Mapping[str, Any]) -> Any:
    """Hide what may not be shown: secrets become `(set)` or `(not set)`, headers keep their names only."""
    if limits.get("secret"):
        if isinstance(value, Mapping):
            return dict.fromkeys(value, "(set)")
        return "(set)" if value else "(not set)"
    if limits.get("url") and isinstance(value, str):
        return mask_url(value)
    return value


def mask_url(url: str) -> str:
    """Hide what may be secret in a URL: user, password, and the values of its query."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        scheme, rest = "", url
    # The last "@" ends the password even when it holds a "/" that is not escaped.
    rest = f"***@{rest.rpartition('@')[2]}" if "@" in rest else rest
    address, question, query = rest.partition("?")
    hidden = "&".join(f"{pair.partition('=')[0]}=***" for pair in query.split("&")) if question else ""
    return f"{scheme}{mark}{address}{question}{hidden}"
