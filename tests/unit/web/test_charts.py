"""Charts as pictures: lines with gaps, axes, bars, and the values in words."""

import json

import pytest

from memline.producers.web.charts import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Chart, draw, spark
from memline.producers.web.charts_page import gauge, rate
from memline.producers.web.rendering import number
from memline.shared import sampling
from memline.shared.figures.points import Point


def drawn(*values: float | None, least: float = 0.0) -> Chart:
    return draw("Backlog", {"": values}, number, begin_s=1_000_000_000, step_s=15, least=least)


def points(run: str) -> list[tuple[float, float]]:
    return [tuple(map(float, place.split(","))) for place in run.split()]  # type: ignore[misc]


def test_a_line_is_broken_where_nothing_was_seen() -> None:
    (line,) = drawn(0.0, 10.0, None, 5.0).lines

    assert len(line.runs) == 2 and line.last == "5"
    first, second = map(points, line.runs)
    assert first == [
        (LEFT, HEIGHT - BOTTOM),
        (pytest.approx(LEFT + (WIDTH - LEFT - RIGHT) / 3, abs=0.1), TOP),
    ]
    # A single point is a short line.
    assert len(second) == 2 and second[0][1] == second[1][1]


def test_a_chart_ends_with_its_last_point_and_not_with_the_largest() -> None:
    chart = drawn(251.0, 251.0, 0.0)

    assert chart.lines[0].last == "0"
    assert points(chart.lines[0].runs[0])[-1] == (WIDTH - RIGHT, HEIGHT - BOTTOM)
    assert chart.words == "Backlog: now 0, at most 251"


@pytest.mark.parametrize(
    ("top", "marks"),
    [(251.0, ["0", "200", "400"]), (0.0, ["0", "0.5", "1"]), (1_000_000.0, ["0", "500,000", "1,000,000"])],
)
def test_the_axis_ends_at_a_round_number(top: float, marks: list[str]) -> None:
    assert [words for _, words in drawn(top, 0.0).rows] == marks


def test_small_values_do_not_look_like_large_ones() -> None:
    assert drawn(0.4, least=10.0).rows[-1][1] == "10"
    assert drawn(0.4, least=10.0).top == "0.4"


def test_the_axis_of_time_has_hours_and_days() -> None:
    hour = draw("x", {"": [0.0] * 240}, number, begin_s=1_000_000_000, step_s=15)
    month = draw("x", {"": [0.0] * 240}, number, begin_s=1_000_000_000, step_s=10_800)

    assert [words for _, words in hour.columns] == ["02:00", "02:15", "02:30", "02:45"]
    assert [words for _, words in month.columns][:2] == ["10 Sep", "15 Sep"]
    assert all(LEFT <= x <= WIDTH - RIGHT for chart in (hour, month) for x, _ in chart.columns)


def test_the_values_under_the_pointer_are_words_with_their_times() -> None:
    assert json.loads(drawn(1.5, None).data) == {
        "begin": 1_000_000_000,
        "step": 15,
        "series": {"": ["1.5", None]},
    }


def test_bars_stand_on_each_other_below_their_limit() -> None:
    series = {"gemini": [1.0, 0.0], "openai": [2.0, 4.0]}
    chart = draw("Money", series, number, begin_s=0, step_s=86_400, limit=8.0, is_stacked=True)

    low, high, other = chart.bars
    assert (low.line, high.line, other.line) == (0, 1, 1)
    assert high.y + high.height == pytest.approx(low.y, abs=0.2)
    assert chart.limit is not None and chart.limit == (TOP, "8")
    assert chart.top == "4" and [line.last for line in chart.lines] == ["0", "4"]


def test_nothing_at_all_is_an_empty_picture() -> None:
    assert drawn(None, None).lines[0].runs == ()
    assert drawn(None).words == "Backlog: now –, at most 0"
    assert draw("x", {}, number, begin_s=0, step_s=15).lines == ()


def test_a_small_line_is_as_high_as_its_largest_value() -> None:
    assert spark([0.0, 3.0]) == ("0.0,47.0 240.0,1.0",)
    assert spark([]) == ()


@pytest.mark.parametrize(
    ("agent", "values"), [("busy-1", [0.0, 0.0]), ("idle", [None, 0.0]), ("", [0.0, 0.0])]
)
def test_an_agent_that_a_point_leaves_out_has_a_gap_there_and_no_zero(
    agent: str, values: list[float | None]
) -> None:
    names = [f"busy-{number}" for number in range(sampling.MOST_AGENTS)]
    last = {f"{sampling.BACKLOG}\t{name}": 2.0 for name in names}
    points = [Point(seconds=15, last=last), Point(seconds=15, last=dict(list(last.items())[1:2]))]

    assert rate(sampling.JOB_TEXTS, 1)(points, f"{agent}\tjob" if agent else "")[""] == values
    assert rate(sampling.SEARCHES, 60)(points, agent)[""] == values
    if agent != "busy-1":
        backlog = gauge(sampling.BACKLOG, of_agent=True)(points, agent)[""]
        assert backlog == (values if agent else [None, None])
