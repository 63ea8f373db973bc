"""The points of the charts: a ring of an hour and one of a day, and lines through them."""

from memline.producers.web.snapshot import HEIGHT, WIDTH, Point, Ring, draw
from memline.shared.values import replace


def point(backlog: float) -> Point:
    return Point(backlog=backlog, rate=0.0, oldest_s=0.0, limited=0.0)


def test_a_ring_keeps_the_largest_values_of_a_period_and_forgets_the_oldest() -> None:
    ring = Ring(every_s=10, count=3)
    for at, backlog in ((1000, 5), (1004, 9), (1009, 7), (1010, 4), (1030, 1)):
        ring.add(at, point(backlog))

    assert ring.values(1012, "backlog") == [None, 9, 4]
    assert ring.values(1035, "backlog") == [4, None, 1]
    assert ring.values(2000, "backlog") == [None, None, None]


def test_the_429s_of_a_period_are_added_up() -> None:
    ring = Ring(every_s=10, count=1)

    for limited in (2, 3):
        ring.add(1000, replace(point(0), limited=limited))

    assert ring.values(1000, "limited") == [5]


def test_a_clock_that_is_set_back_does_no_harm() -> None:
    ring = Ring(every_s=10, count=3)

    ring.add(1000, point(1))
    ring.add(900, point(2))

    assert ring.values(905, "backlog") == [None, None, 2]


def test_a_line_is_broken_where_nothing_was_seen() -> None:
    chart = draw([0.0, 10.0, None, 5.0])

    assert len(chart.lines) == 2 and chart.top == 10.0 and chart.last == 5.0
    assert chart.lines[0].split()[1].endswith(",1.0")
    xs = [float(place.split(",")[0]) for line in chart.lines for place in line.split()]
    assert min(xs) == 0 and max(xs) <= WIDTH + WIDTH / 3


def test_small_values_do_not_look_like_large_ones() -> None:
    assert draw([0.4], 10.0).lines[0].endswith("45.2")
    assert draw([0.4]).lines[0].endswith(",1.0")
    assert draw([0.4], 10.0).top == 0.4


def test_nothing_and_zero_are_drawn_at_the_bottom() -> None:
    assert draw([None, None]).lines == ()
    assert draw([0.0, 0.0]).lines[0] == f"0.0,{HEIGHT - 1}.0 {WIDTH}.0,{HEIGHT - 1}.0"
