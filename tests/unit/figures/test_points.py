"""The points of a home: three spans, one writer at a time, gaps, and the last point as it is."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from memline.shared.figures import points
from memline.shared.figures.points import COLUMNS, EVERY_S, SPANS, TURN_S, Point, Turn
from memline.shared.index.accounts import AccountFile

#: A moment at which a period of every span begins.
NOON = 1_000_080_000.0
HOUR, DAY, MONTH = SPANS.values()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[AccountFile]:
    with closing(AccountFile(tmp_path / "accounts.sqlite")) as file:
        yield file


def put(file: AccountFile, at: float, backlog: float, **sums: float) -> None:
    assert points.take_turn(file, "me", at) is not None
    points.write(file, Point(seconds=EVERY_S, last={"backlog": backlog}, sums=sums), {}, at)


def backlogs(file: AccountFile, span: points.Span, now: float) -> list[float | None]:
    return [point and point.largest("backlog") for point in points.read(file, span, now)]


def test_points_outlive_their_writer_and_a_gap_stays_one(file: AccountFile) -> None:
    put(file, NOON, 5)
    put(file, NOON + 15, 7)
    put(file, NOON + 60, 2)
    file.close()

    with closing(AccountFile(file.path)) as other:
        assert backlogs(other, HOUR, NOON + 60)[-6:] == [None, 5, 7, None, None, 2]
        assert len(backlogs(other, HOUR, NOON + 60)) == COLUMNS


def test_a_longer_period_has_the_most_of_its_gauges_the_last_of_them_and_all_of_its_sums(
    file: AccountFile,
) -> None:
    for place, backlog in enumerate((251, 9, 0)):
        put(file, NOON + 15 * place, backlog, searches=2)

    for span in (DAY, MONTH):
        last = points.read(file, span, NOON + 30)[-1]
        assert last is not None
        assert (last.largest("backlog"), last.last["backlog"], last.sums["searches"]) == (251, 0, 6)
        assert last.seconds == 45


def test_the_table_is_bounded(file: AccountFile) -> None:
    with file.writing() as connection:
        rows = [(15, int(NOON) // 15 - back, "{}") for back in range(10, 1_000)]
        connection.executemany("INSERT INTO points VALUES (?, ?, ?)", rows)

    put(file, NOON, 1)

    with file.reading() as connection:
        assert connection is not None
        ((count,),) = connection.execute("SELECT count(*) FROM points WHERE every_s = 15")
    assert count <= HOUR.count


def test_a_clock_that_is_set_back_does_no_harm(file: AccountFile) -> None:
    put(file, NOON + 86_400, 9)
    put(file, NOON, 3)

    assert backlogs(file, HOUR, NOON)[-2:] == [None, 3]
    assert backlogs(file, HOUR, NOON + 86_400)[-1] is None


def test_one_process_writes_at_a_time_and_another_goes_on_when_it_is_gone(file: AccountFile) -> None:
    assert points.take_turn(file, "one", NOON) is not None
    assert points.take_turn(file, "other", NOON + 15) is None
    # Keeping it, until no sign came for TURN_S.
    assert points.take_turn(file, "one", NOON + 30) is not None
    assert points.take_turn(file, "other", NOON + 30 + TURN_S - 1) is None
    assert points.take_turn(file, "other", NOON + 30 + TURN_S) is not None
    # Known to be dead: at once. And one that ends well says so.
    assert points.take_turn(file, "one", NOON + 90, is_alive=lambda _: False) is not None
    points.end_turn(file, "one")
    assert points.take_turn(file, "third", NOON + 91) is not None


def test_sums_go_on_over_a_change_of_the_writer(file: AccountFile) -> None:
    points.take_turn(file, "one", NOON)
    points.write(file, Point(), {"searches": 100.0}, NOON)

    turn = points.take_turn(file, "other", NOON + 20, is_alive=lambda _: False)

    assert turn is not None
    since = points.since(turn, {"searches": 104.0, "vectors": 3.0}, NOON + 20)
    assert (since.seconds, since.sums) == (20, {"searches": 4.0, "vectors": 3.0})


@pytest.mark.parametrize(
    "turn", [Turn(at=0.0, totals={}), Turn(at=NOON - TURN_S - 1, totals={"searches": 1.0})]
)
def test_after_a_time_without_a_writer_no_rate_is_made_up(turn: Turn) -> None:
    assert points.since(turn, {"searches": 50.0}, NOON) == Point()


def test_a_total_that_fell_was_begun_anew() -> None:
    since = points.since(Turn(at=NOON - 15, totals={"vectors": 90.0}), {"vectors": 5.0}, NOON)

    assert since.sums == {"vectors": 5.0}
