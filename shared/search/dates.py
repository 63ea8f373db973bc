"""Days in questions, options and paths.

A day is a `datetime.date`; times of files are read in UTC, so that two machines give the same answer.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

from shared.errors import ConfigError
from shared.values import value

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")

#: Days in the units of an age.
_DAYS = {"d": 1, "w": 7, "m": 30, "y": 365}


@lru_cache(maxsize=1)
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Patterns of 2023-05-08, of 8 May 2023 and of May 8th; compiled at the first question with a digit."""
    month = (
        "(jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
        "|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
    )
    return (
        re.compile(r"(?<![\d-])(\d{4})-(\d{2})-(\d{2})(?![\d-])"),
        re.compile(rf"\b(\d{{1,2}})(?:st|nd|rd|th)?(?: of)? {month}\b\.?,?(?: (\d{{4}})\b)?", re.I),
        re.compile(rf"\b{month}\b\.? (\d{{1,2}})(?:st|nd|rd|th)?\b,?(?: (\d{{4}})\b)?", re.I),
    )


@value
class Day:
    """A day somebody named; `year` is 0 when they left it out."""

    year: int
    month: int
    day: int

    @property
    def iso(self) -> str:
        """`2026-02-10`, or `02-10` without a year."""
        tail = f"{self.month:02d}-{self.day:02d}"
        return f"{self.year:04d}-{tail}" if self.year else tail


def days_in(text: str) -> tuple[Day, ...]:
    """The days named in a question, in order of kind: 2023-05-08, 8 May 2023, May 8th."""
    found: dict[Day, None] = {}
    iso, day_month, month_day = _patterns()
    for year, month, day in iso.findall(text):
        _add(found, int(year), int(month), int(day))
    for day, month, year in day_month.findall(text):
        _add(found, int(year or 0), _MONTHS.index(month[:3].lower()) + 1, int(day))
    for month, day, year in month_day.findall(text):
        _add(found, int(year or 0), _MONTHS.index(month[:3].lower()) + 1, int(day))
    return tuple(found)


def _add(found: dict[Day, None], year: int, month: int, day: int) -> None:
    # 29 February is a day when the year is not known.
    if _valid(year or 2000, month, day) is not None:
        found[Day(year=year, month=month, day=day)] = None


def day_of_path(path: str) -> date | None:
    """The day in the name of a file (`memory/2026-02-10-rollout.md`); None when there is none."""
    match = re.search(r"(?<!\d)(\d{4})-(\d{2})-(\d{2})(?!\d)", path.rpartition("/")[2])
    return _valid(*map(int, match.groups())) if match else None


def day_of_time(seconds: float) -> date:
    """The day (UTC) of a time in seconds since the epoch."""
    return datetime.fromtimestamp(seconds, UTC).date()


def parse_bound(text: str, today: date, *, option: str) -> date:
    """A `since` or `until`: `2026-02-10`, or an age such as `30d`, `2w`, `6m`, `1y`. Raises ConfigError."""
    text = text.strip()
    age = re.fullmatch(r"(\d{1,5})\s*([dwmy])", text, re.I)
    try:
        if age:
            return today - timedelta(days=int(age[1]) * _DAYS[age[2].lower()])
        return date.fromisoformat(text)
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            f"{option} is no date: {text[:40]!r}", hint=f"{option} 2026-02-10, or an age: {option} 30d"
        ) from error


def _valid(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None
