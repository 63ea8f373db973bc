"""Read days from questions, options and paths.

A day is a `datetime.date`; times of files are read in UTC, so that two machines give the same answer.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

from memline.shared.errors import ConfigError

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")

#: Days in the units of an age.
_DAYS = {"d": 1, "w": 7, "m": 30, "y": 365}


@lru_cache(maxsize=1)
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Compile the patterns of 2023-05-08, 8 May 2023 and May 8th, at the first question with a digit."""
    month = (
        "(jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
        "|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
    )
    return (
        re.compile(r"(?<![\d-])(\d{4})-(\d{2})-(\d{2})(?![\d-])"),
        re.compile(rf"\b(\d{{1,2}})(?:st|nd|rd|th)?(?: of)? {month}\b\.?,?(?: (\d{{4}})\b)?", re.I),
        re.compile(rf"\b{month}\b\.? (\d{{1,2}})(?:st|nd|rd|th)?\b,?(?: (\d{{4}})\b)?", re.I),
    )


def days_in(text: str) -> tuple[str, ...]:
    """List the days named in a question, in order of kind: 2023-05-08, 8 May 2023, May 8th.

    Each is written `2026-02-10`, or `02-10` when the question leaves the year out.
    """
    days: dict[str, None] = {}
    if not any(map(str.isdigit, text)):
        # Most questions; the patterns take 5 ms to compile.
        return ()
    iso, day_month, month_day = _patterns()
    named = iso.findall(text)
    named += ((year, month, day) for day, month, year in day_month.findall(text))
    named += ((year, month, day) for month, day, year in month_day.findall(text))
    for year, month, day in named:
        number = int(month) if month.isdigit() else _MONTHS.index(month[:3].lower()) + 1
        # 29 February is a day when the year is not known.
        if valid := _valid(int(year or 0) or 2000, number, int(day)):
            days[valid.isoformat() if int(year or 0) else f"{valid:%m-%d}"] = None
    return tuple(days)


def day_of_path(path: str) -> date | None:
    """Read the day in the name of a file; None when there is none.

    `2026-02-10-rollout.md`, Logseq's `2026_02_10.md` and the compact `20260210.md` are of the same day.
    """
    match = re.search(r"(?<!\d)(\d{4})([-_]?)(\d{2})\2(\d{2})(?!\d)", path.rpartition("/")[2])
    if match is None or (not match[2] and not match[1].startswith(("19", "20"))):
        return None
    return _valid(int(match[1]), int(match[3]), int(match[4]))


def day_of_time(seconds: float) -> date:
    """Return the day (UTC) of a time in seconds since the epoch."""
    return datetime.fromtimestamp(seconds, UTC).date()


def parse_bound(text: str, today: date, *, option: str) -> date:
    """Read a `since` or `until`: `2026-02-10`, or an age such as `30d`, `2w`, `6m`. Raises ConfigError."""
    text = text.strip()
    age = re.fullmatch(r"(\d{1,5})\s*([dwmy])", text, re.I)
    try:
        if age:
            return today - timedelta(days=int(age[1]) * _DAYS[age[2].lower()])
        return date.fromisoformat(text)
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            f"{option} is not a valid date: {text[:40]!r}",
            hint=f"{option} 2026-02-10, or an age: {option} 30d",
        ) from error


def _valid(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None
