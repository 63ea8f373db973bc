from datetime import date

import pytest

from memline.shared.errors import ConfigError
from memline.shared.search.dates import day_of_path, days_in, parse_bound

TODAY = date(2026, 2, 28)


def test_days_are_found_in_the_ways_people_write_them() -> None:
    text = "between 2023-05-08, 3 June 2024 and Sept 9th"

    assert days_in(text) == ("2023-05-08", "2024-06-03", "09-09")


@pytest.mark.parametrize("text", ["market 5", "31 February 2024", "2023-13-01", "version 2023-05-081"])
def test_text_that_only_looks_like_a_day_is_not_one(text: str) -> None:
    assert days_in(text) == ()


@pytest.mark.parametrize(
    ("path", "day"),
    [
        ("memory/2026-02-10.md", date(2026, 2, 10)),
        ("memory/work/2026-02-10-rollout.md", date(2026, 2, 10)),
        ("memory/2026-02-10/notes.md", None),
        ("memory/2026-02-31.md", None),
        ("MEMORY.md", None),
    ],
)
def test_the_day_of_a_note_is_in_its_file_name(path: str, day: date | None) -> None:
    assert day_of_path(path) == day


def test_a_bound_is_a_date_or_an_age() -> None:
    assert parse_bound("2026-02-10", TODAY, option="--since") == date(2026, 2, 10)
    assert parse_bound("30d", TODAY, option="--since") == date(2026, 1, 29)
    assert parse_bound("2w", TODAY, option="--since") == date(2026, 2, 14)


@pytest.mark.parametrize("text", ["yesterday", "2026-02-31", "99999y", "d"])
def test_a_bound_that_is_neither_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match="--since is not a valid date") as caught:
        parse_bound(text, TODAY, option="--since")

    assert "--since 30d" in caught.value.hint
