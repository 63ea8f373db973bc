from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any, ClassVar

import pytest

from memline.shared import values
from memline.shared.values import field, to_json, value

ROOT = Path(__file__).parents[2]


@value
class Point:
    """A place."""

    x: int
    y: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)
    secret: str = field(default="", repr=False)


@value
class Place(Point):
    """A place with a name."""

    LABEL: ClassVar[str] = "{} {}"

    name: str

    def label(self) -> str:
        """Write it with the name before it."""
        return self.LABEL.format(self.name, self.x)


@value
class Line:
    """Several places."""

    points: tuple[Point, ...]
    seen: int = field(default=0, compare=False)


@value(frozen=False)
class Count:
    """How far something is."""

    done: int = 0


class Quiet:
    """A base that says nothing of what it holds."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Quiet()"


@value
class Key(Quiet):
    """A secret."""

    text: str


@value
class Moved:
    agent: str
    path: Path
    left_out: tuple[str, ...]
    inner: Point
    last: int

    @property
    def end_line(self) -> int:
        return 7


def test_a_class_that_is_no_value_has_the_fields_of_its_base_whichever_is_asked_first() -> None:
    @value
    class Base:
        """With one field."""

        name: str = "none"

    class Plain(Base):
        """What adds nothing."""

        other: int = 3

    assert Plain() == Plain(name="none")
    assert (
        [each.name for each in values.fields(Plain)]
        == [each.name for each in values.fields(Base)]
        == ["name"]
    )
    assert Base(name="a") == Base(name="a") != Base(name="b")


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


@pytest.mark.parametrize("tools", [values, dataclasses])
def test_a_value_is_copied_with_changes_and_made_plain_also_by_dataclasses(tools: Any) -> None:
    point = Point(x=1, y=2)
    line = Line(points=(point, Point(x=3)))

    assert tools.replace(point, y=3) == Point(x=1, y=3)
    assert tools.asdict(line) == {
        "points": ({"x": 1, "y": 2, "tags": {}, "secret": ""}, {"x": 3, "y": 0, "tags": {}, "secret": ""}),
        "seen": 0,
    }
    assert tools.astuple(point) == (1, 2, {}, "")
    assert [each.name for each in tools.fields(Point)] == ["x", "y", "tags", "secret"]


def test_the_fields_for_dataclasses_are_made_once_for_each_class() -> None:
    """msgspec asks for them at each value that it encodes."""

    @value
    class Base:
        x: int

    @value
    class Further(Base):
        y: int

    first = dataclasses.fields(Base(x=1))  # type: ignore[arg-type]

    assert all(a is b for a, b in zip(first, dataclasses.fields(Base), strict=True))  # type: ignore[arg-type]
    assert [each.name for each in dataclasses.fields(Further)] == ["x", "y"]  # type: ignore[arg-type]


def test_a_value_inherits_the_fields_of_its_base() -> None:
    place = Place(x=1, name="here")

    assert (place.x, place.y, place.name) == (1, 0, "here")
    assert place.label() == "here 1"
    assert place != Point(x=1)


def test_what_is_not_compared_makes_no_difference() -> None:
    assert Line(points=(), seen=1) == Line(points=(), seen=2)
    assert hash(Line(points=(), seen=1)) == hash(Line(points=(), seen=2))


def test_the_state_of_something_under_way_can_be_changed() -> None:
    count = Count()
    count.done += 1

    assert count == Count(done=1)
    with pytest.raises(TypeError, match="unhashable"):
        hash(count)
    with pytest.raises(AttributeError):
        count.other = 1  # type: ignore[attr-defined]


def test_what_is_to_be_hidden_is_not_shown() -> None:
    assert repr(Point(x=1, secret="s3cret")) == "Point(x=1, y=0, tags={})"
    assert repr(Key(text="s3cret")) == "Quiet()"


def test_fields_have_the_names_of_json() -> None:
    moved = Moved(agent="main", path=Path("/a"), left_out=("b",), inner=Point(x=1, secret="s"), last=3)

    assert to_json(moved, "end_line", without=("last", "inner"), total=1) == {
        "agentId": "main",
        "path": "/a",
        "leftOut": ["b"],
        "endLine": 7,
        "total": 1,
    }
