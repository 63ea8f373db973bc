"""What every block of the configuration is made of: fields with their limits, and how they may be shown.

Every command imports this, so all blocks share one `Block` instead of generating four methods each, and each
has a docstring (without one, dataclasses builds it from the signature): 6 ms of CPU instead of 10.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, field
from typing import Any, ClassVar


def key(
    default: Any = None,
    *,
    factory: Callable[[], Any] | None = None,
    choices: tuple[str, ...] = (),
    low: float | None = None,
    high: float | None = None,
    clamp: bool = False,
    secret: bool = False,
    url: bool = False,
    doc: str = "",
) -> Any:
    """A field with its limits: allowed words, lowest and highest number, and how it is shown.

    A number outside of its limits is an error, or with `clamp` is moved to the nearest limit. A `secret` is
    never shown; a `url` is shown without its password.
    """
    limits = {
        "choices": choices,
        "low": low,
        "high": high,
        "clamp": clamp,
        "secret": secret,
        "url": url,
        "doc": doc,
    }
    if factory is not None:
        return field(default_factory=factory, metadata=limits)
    return field(default=default, metadata=limits)


class Block:
    """What all values below share: comparing by field, and a `repr` that shows no secret."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __repr__(self) -> str:
        shown = (
            f"{name}={masked(getattr(self, name), field.metadata)!r}"
            for name, field in self.__dataclass_fields__.items()
            if field.repr
        )
        return f"{type(self).__name__}({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__dataclass_fields__)

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in self.__dataclass_fields__))


def masked(value: Any, limits: Mapping[str, Any]) -> Any:
    """The value as it may be shown: secrets as `(set)` or `(not set)`, header names without their values."""
    if limits.get("secret"):
        if isinstance(value, Mapping):
            return dict.fromkeys(value, "(set)")
        return "(set)" if value else "(not set)"
    if limits.get("url") and isinstance(value, str):
        return mask_url(value)
    return value


def mask_url(url: str) -> str:
    """The URL without what may be secret in it: user, password, and the values of its query."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        scheme, rest = "", url
    # The last "@" ends the password even when somebody left a "/" in it unescaped.
    rest = f"***@{rest.rpartition('@')[2]}" if "@" in rest else rest
    address, question, query = rest.partition("?")
    hidden = "&".join(f"{pair.partition('=')[0]}=***" for pair in query.split("&")) if question else ""
    return f"{scheme}{mark}{address}{question}{hidden}"
