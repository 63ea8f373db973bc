"""Blocks of the configuration: fields with their limits, named as in the file, and shown without secrets.

A block is a value (`shared.values`) whose class is derived from `Block`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from memline.shared.values import MISSING, Field, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar, TypeVar

#: What to do about keys that a block does not declare: refuse them, warn of them, or, where OpenClaw has keys
#: of its own, warn of those that look like a declared one.
REFUSE, WARN, WARN_IF_NEAR = "refuse", "warn", "warn-if-near"

#: Minutes; in the file a number of minutes, or a text with a unit: `90s`, `5m`, `1h`.
Duration = float

#: Bytes; in the file a number of them, or a text with a unit: `512kb`, `2mb`.
Bytes = int

#: A day as a text, in the file `2026-02-28`.
Day = str


class Block:
    """What all blocks have; each is a `@value` too, and hides secrets in its `repr`."""

    __slots__ = ()

    #: The fields by JSON name, in the order of the schema.
    members: ClassVar[Mapping[str, Field[Any]]] = {}
    #: What becomes of a key that is not declared.
    unknown: ClassVar[str] = REFUSE
    #: Keys that are read elsewhere, and keys of OpenClaw that look like a declared one.
    beside: ClassVar[tuple[str, ...]] = ()
    #: Keys of OpenClaw that would change nothing here, by dotted path, and the reason.
    without_effect: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls) -> None:
        known: Mapping[str, Field[Any]] = getattr(cls, "__fields__", {})
        cls.members = {json_name(name): field for name, field in known.items()}

    def __repr__(self) -> str:
        shown = (
            f"{field.name}={masked(getattr(self, field.name), field.metadata)!r}"
            for field in self.members.values()
            if field.repr
        )
        return f"{type(self).__name__}({', '.join(shown)})"


if TYPE_CHECKING:
    B = TypeVar("B", bound=Block)


def key(
    default: Any = None,
    *,
    factory: Callable[[], Any] | None = None,
    choices: tuple[str, ...] | None = None,
    low: float | None = None,
    high: float | None = None,
    clamp: bool | None = None,  # Moves a number to the nearest limit.
    pattern: str | None = None,  # A regular expression for the whole text; `allowed` says it in words.
    allowed: str | None = None,
    normal: Callable[[str], str] | None = None,  # Brings a text into its normal form before it is checked.
    required: bool | None = None,
    secret: bool | None = None,  # Never shown. It may hold `${NAME}`, and so may a `url`,
    url: bool | None = None,  # which is shown without its password.
    of: type[Block] | None = None,  # The value is such a block, for a tuple an array of them;
    shorthand: str | None = None,  # a text is this key of it.
    advice: Mapping[str, str] | None = None,  # Hints for wrong values that are often written.
    doc: str | None = None,
) -> Any:
    """Declare a field with its default and its limits."""
    limits = {name: given for name, given in locals().items() if given is not None}
    limits.pop("default", None)
    limits.pop("factory", None)
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
