from __future__ import annotations

from collections.abc import Mapping
from dataclasses import FrozenInstanceError, asdict, field, fields, replace

import pytest

from memline.shared.values import value


@value
class Point:
    """A place."""

    x: int
    y: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)
    secret: str = field(default="", repr=False)


class Quiet:
    """A base that says nothing of what it holds."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Quiet()"


@value
class Key(Quiet):
    """A secret."""

    text: str


def test_a_value_has_its_fields_and_their_defaults() -> None:
    point = Point(x=1)

    assert (point.x, point.y, point.tags) == (1, 0, {})
    assert Point(x=1).tags is not point.tags


def test_a_value_cannot_be_changed() -> None:
    point = Point(x=1)

    with pytest.raises(FrozenInstanceError, match="x cannot be changed"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del point.x
    assert not hasattr(point, "__dict__")


@pytest.mark.parametrize(
    ("given", "message"), [({}, "needs the argument 'x'"), ({"x": 1, "z": 2}, "no argument 'z'")]
)
def test_missing_and_unknown_arguments_are_named(given: dict[str, int], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Point(**given)  # type: ignore[arg-type]


def test_values_are_equal_by_their_fields() -> None:
    assert Point(x=1) == Point(x=1)
    assert Point(x=1) != Point(x=2)
    assert Key(text="a") != Point(x=1)
    assert {Key(text="a"), Key(text="a")} == {Key(text="a")}


def test_the_tools_of_dataclasses_work() -> None:
    point = Point(x=1, y=2)

    assert replace(point, y=3) == Point(x=1, y=3)
    assert asdict(point) == {"x": 1, "y": 2, "tags": {}, "secret": ""}
    assert [each.name for each in fields(Point)] == ["x", "y", "tags", "secret"]


def test_what_is_to_be_hidden_is_not_shown() -> None:
    assert repr(Point(x=1, secret="s3cret")) == "Point(x=1, y=0, tags={})"
    assert repr(Key(text="s3cret")) == "Quiet()"
