"""Define frozen values at no cost at import time.

`@value` is `@dataclass(frozen=True, slots=True, kw_only=True)` without generated code: dataclass compiles six
methods for every class, half a millisecond each, and a one-shot search defines some sixty classes before it
has done anything (25 of its 90 ms). Here all classes share the same methods. The price is paid by the
instance, about 2 µs more to make: a class of which thousands are made stays a dataclass.

`dataclasses.fields`, `replace` and `asdict` work as usual.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field,))
def value(cls: type[T]) -> type[T]:
    """Make a class a frozen value: keyword arguments only, equal by its fields, hashable, with slots."""
    return equip(dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(cls))


def equip(cls: type[T]) -> type[T]:
    """Give a class, whose fields dataclass has gathered, the methods that all values share."""
    made: Any = cls
    made.__init__ = _init
    made.__setattr__ = _refuse
    made.__delattr__ = _refuse
    # A `__repr__` of the class or its base stays: it may hide secrets.
    if cls.__repr__ is object.__repr__:
        made.__repr__ = _repr
    if cls.__eq__ is object.__eq__:
        made.__eq__ = _eq
        made.__hash__ = _hash
    return cls


def _init(self: Any, **arguments: Any) -> None:
    for name, field in type(self).__dataclass_fields__.items():
        if name in arguments:
            value = arguments.pop(name)
        elif field.default is not dataclasses.MISSING:
            value = field.default
        elif field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        else:
            raise TypeError(f"{type(self).__name__}() needs the argument {name!r}")
        object.__setattr__(self, name, value)
    if arguments:
        raise TypeError(f"{type(self).__name__}() has no argument {next(iter(arguments))!r}")


def _refuse(self: Any, name: str, *_: object) -> None:
    raise dataclasses.FrozenInstanceError(f"{type(self).__name__}.{name} cannot be changed")


def _values(self: Any) -> tuple[Any, ...]:
    return tuple(getattr(self, name) for name in type(self).__dataclass_fields__)


def _repr(self: Any) -> str:
    fields = type(self).__dataclass_fields__
    shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in fields if fields[name].repr)
    return f"{type(self).__name__}({shown})"


def _eq(self: Any, other: object) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    return _values(self) == _values(other)


def _hash(self: Any) -> int:
    return hash(_values(self))
