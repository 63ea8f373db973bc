"""Read days from questions, options and paths.

A day is a `datetime.date`, in the time zone of this process. Words for days are English. Weeks are Monday to
Sunday, "last Tuesday" is the latest before today, and a day or month without a year the latest that has
begun.
"""

import re
from datetime import date, datetime, timedelta

import msgspec

from memline.shared.errors import BadRequest
from memline.shared.note_names import without_ending

_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
#: By their first three letters.
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]

#: Days in the units of an age, and in words.
_DAYS = {"d": 1, "w": 7, "m": 30, "y": 365} | {"day": 1, "week": 7, "month": 30, "year": 365}

_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)(?![^\W_])\.?"
)
_NUMBER = r"(?<![\w.-])(?:\d{1,4}|an?|" + "|".join(_NUMBERS) + ")"
_UNIT = r"(?:day|week|month|year)s?\b"
_DAY, _YEAR = r"(?<![\w.-])\d{1,2}(?:st|nd|rd|th)?", r"(?:19|20)\d\d(?![\w-])"
_BEFORE_MONTH = "in|during|since|until|till|from|early|late|mid|of"
_FILLER = rf"\b(?:{_BEFORE_MONTH}|the|on|by|before|after)"

#: Days back from today.
_WORDS = {"today": 0, "tonight": 0, "yesterday": 1, "last night": 1, "day before yesterday": 2}

#: Not compiled until it is needed: 2 ms of a command.
_SAID = (
    r"(?P<iso>(?<![\w-])\d{4}-\d\d-\d\d(?![\w-]))"
    r"|(?P<dotted>(?<![\w.])\d{1,2}\.\d{1,2}\.\d{4}(?![\w.]))"
    rf"|\b(?P<word>{'|'.join(_WORDS)})\b|(?P<ago>{_NUMBER}) (?P<ago_unit>{_UNIT}) ago\b"
    rf"|\b(?P<which>this|last|past|previous) (?P<unit>{_UNIT})"
    rf"|\b(?:last|past|previous) (?:(?P<past>{_NUMBER}) (?P<past_unit>{_UNIT})"
    rf"|(?P<last_day>{'|'.join(_WEEKDAYS)})\b)"
    rf"|(?P<on>\bon )?(?P<day>{_DAY} (?:of )?{_MONTH}(?:,? (?:of )?{_YEAR})?"
    rf"|\b{_MONTH} {_DAY}(?!\w)(?:,? {_YEAR})?)"
    rf"|\b(?P<month>{_MONTH},? (?:of )?{_YEAR})|\b(?:{_BEFORE_MONTH}) (?P<in>{_MONTH})(?! \d)"
)

#: In every text with a day is one of these.
_HINT = re.compile(r"\d|day|night|week|month|year|" + "|".join(_MONTHS), re.IGNORECASE)

#: The day in the name of a file, the year first; and below folders of its year and month.
_DAY_OF_NAME = re.compile(r"(?<!\d)(\d{4})([-_.]?)(\d{2})\2(\d{2})(?!\d)")
_DAY_BELOW = re.compile(r"(?:^|/)(\d{4})/(?:\1-)?(\d{2})(?:-[^/\d]*)?/(\d{2})\.\w+$")


class Days(msgspec.Struct, frozen=True, kw_only=True):
    """Some days in a row that a text names, and where it does."""

    first: date
    last: date
    #: Place of the words in the text.
    begin: int = 0
    end: int = 0
    #: Whether they are counted from today: "yesterday", and not "14 March".
    is_relative: bool = False
    has_year: bool = True

    def __str__(self) -> str:
        return f"{self.first} to {self.last}" if self.first != self.last else str(self.first)


def days_in(text: str, today: date) -> tuple[Days, ...]:
    """List the days that a text names, in its order."""
    named = []
    for match in re.finditer(_SAID, text, re.IGNORECASE) if _HINT.search(text) else ():
        try:
            days = _days(match, today)
        except (ValueError, OverflowError):
            # 31 February, 9999 years ago.
            continue
        if days is not None:
            begin = match.start() + len(match["on"] or "")
            named.append(msgspec.structs.replace(days, begin=begin, end=match.end()))
    return tuple(named)


def _days(match: re.Match[str], today: date) -> Days | None:
    said = {name: text.lower() for name, text in match.groupdict().items() if text}
    if exact := said.get("iso"):
        return _one(date.fromisoformat(exact))
    if dotted := said.get("dotted"):
        return _one(date(*map(int, reversed(dotted.split(".")))))
    if word := said.get("word"):
        return _span(today, "day", _WORDS[word])
    if "ago" in said:
        return _span(today, said["ago_unit"].rstrip("s"), _number(said["ago"]))
    if "past" in said:
        first = today - timedelta(days=_number(said["past"]) * _DAYS[said["past_unit"].rstrip("s")])
        return Days(first=first, last=today, is_relative=True)
    if weekday := said.get("last_day"):
        return _span(today, "day", (today.weekday() - _WEEKDAYS.index(weekday)) % 7 or 7)
    if unit := said.get("unit", "").rstrip("s"):
        return _span(today, unit, 0 if said["which"] == "this" else 1) if unit != "day" else None
    group = next(each for each in ("day", "month", "in") if each in said)
    name = next(re.compile(rf"\b{_MONTH}", re.IGNORECASE).finditer(match.string, *match.span(group)))
    month, year = _MONTHS.index(name[0][:3].lower()) + 1, re.search(_YEAR, said[group])
    if group == "in":
        return msgspec.structs.replace(_whole(today.year - (month > today.month), month), has_year=False)
    day = re.search(r"(?<!\d)(\d{1,2})(?!\d)(st|nd|rd|th)?", said[group])
    if year:
        return _one(date(int(year[0]), month, int(day[1]))) if day else _whole(int(year[0]), month)
    # Else it may be the verb, as in "we may march on".
    is_verb = name[0] in ("may", "march", "mar") and re.match(r"\s+\w", match.string[name.end() :])
    is_sure = day is not None and (day[2] or "on" in said or not is_verb)
    return _latest(today, month, int(day[1])) if day and is_sure else None


def _one(day: date) -> Days:
    return Days(first=day, last=day)


def _latest(today: date, month: int, day: int) -> Days | None:
    # Eight years: 29 February about 2100.
    known = (_valid(today.year - back, month, day) for back in range(9))
    latest = next((each for each in known if each and each <= today), None)
    return Days(first=latest, last=latest, has_year=False) if latest else None


def _number(text: str) -> int:
    return int(text) if text.isdigit() else _NUMBERS.index(text) + 1 if text in _NUMBERS else 1


def _span(today: date, unit: str, back: int) -> Days:
    """Return the day, week, month or year so many before the present one."""
    if unit in ("day", "week"):
        first = today - timedelta(days=back * _DAYS[unit] + (today.weekday() if unit == "week" else 0))
        return Days(first=first, last=first + timedelta(days=_DAYS[unit] - 1), is_relative=True)
    year, month = divmod(today.year * 12 + today.month - 1 - back * (12 if unit == "year" else 1), 12)
    days = _whole(year, 1, 12) if unit == "year" else _whole(year, month + 1)
    return msgspec.structs.replace(days, is_relative=True)


def _whole(year: int, first: int, count: int = 1) -> Days:
    behind = date(year + (first + count > 12), (first + count - 1) % 12 + 1, 1)
    return Days(first=date(year, first, 1), last=behind - timedelta(days=1))


def parse_bound(text: str, today: date, *, is_end: bool = False) -> date:
    """Read a `since` or `until`: a day, an age such as `30d`, `2w`, `6m`, or what `days_in` reads.

    Of several days it is the first, with `is_end` the last. Raises BadRequest.
    """
    text = text.strip()
    age = re.fullmatch(r"(\d{1,5})\s*([dwmy])", text, re.IGNORECASE)
    part = re.fullmatch(r"(\d{4})(?:-(\d{2}))?", text)
    try:
        if age:
            return today - timedelta(days=int(age[1]) * _DAYS[age[2].lower()])
        if part:
            days = _whole(int(part[1]), int(part[2] or 1), 1 if part[2] else 12)
        else:
            (days,) = days_in(text, today)
            around = f"{text[: days.begin]} {text[days.end :]}".strip()
            if not re.fullmatch(rf"(?:{_FILLER}\s*)*", around, re.IGNORECASE):
                raise ValueError(around)
    except (ValueError, OverflowError) as error:
        hint = "give a date such as 2026-02-10, an age: 30d, or words: 'last week'"
        raise BadRequest(f"not a valid date: {text[:40]!r}", hint=hint) from error
    return days.last if is_end else days.first


def start_with_fillers(text: str, begin: int) -> int:
    """Return where the words that belong to a day at `begin` begin: "since the" of "since the 3rd of May"."""
    match = re.search(rf"(?:{_FILLER}\s+)+$", text[:begin], re.IGNORECASE)
    return match.start() if match else begin


def day_named(text: str) -> date | None:
    """Return the first day that a text names with its year; None for one that is counted from today."""
    named = (days for days in days_in(text, date.max) if days.has_year and not days.is_relative)
    return next((days.first for days in named if days.first == days.last), None)


def day_of_path(path: str) -> date | None:
    """Read the day in the name of a file, or of its folders; None when there is none.

    `2026-02-10-rollout.md`, `2026_02_10.md`, `20260210.md`, `2026/02/10.md`, and what `days_in` reads.
    """
    name = path.rpartition("/")[2]
    match = _DAY_OF_NAME.search(name)
    if match and (match[2] or match[1].startswith(("19", "20"))):
        return _valid(int(match[1]), int(match[3]), int(match[4]))
    if match := _DAY_BELOW.search(path):
        return _valid(*map(int, match.groups()))
    return day_named(without_ending(name))


def day_of_time(seconds: float) -> date:
    """Return the day, here, of a time in seconds since the epoch."""
    return datetime.fromtimestamp(seconds).date()


def _valid(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None
