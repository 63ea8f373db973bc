"""Read days from questions, options and paths.

A day is a `datetime.date`, in the time zone of this process. What people type for days in six languages is
in `words.txt`, a section a language; the grammar of all of them is here. Weeks are Monday to Sunday, "last
Tuesday" is the latest before today, and a day or month without a year the latest that has begun.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import cache
from unicodedata import normalize

from memline.shared.errors import ConfigError
from memline.shared.note_names import without_ending
from memline.shared.patterns import late
from memline.shared.values import replace, value
from memline.shared.words import stop_words, word_lists

LANGUAGES = ("en",)

#: Days in the units of an age, and in those of the table.
_DAYS = {"d": 1, "w": 7, "m": 30, "y": 365} | {"day": 1, "week": 7, "month": 30, "year": 365}

#: Words of the longest entry of the table.
_MOST_WORDS = 4

#: Keys of which every day but one in figures has a word.
_TELLING = ("back-0", "back-1", "back-2", "day", "week", "month", "year", "weekdays", "months")

_TOKEN = late(
    r"(?P<iso>(?<![\w-])\d{4}-\d{2}-\d{2}(?![\w-]))|(?P<dotted>(?<![\w.])\d{1,2}\.\d{1,2}\.\d{4}(?![\w.]))"
    r"|(?P<number>(?<![\w.-])\d{1,4})(?:st|nd|rd|th|er|º|ª)?(?![\w-])|[^\W\d_]+"
)
#: What may stand between the words of a day ("l'an", "avant-hier", "14. März"); before figures a comma, too.
_GAP = late(r"[\s'’-]{1,3}|\.\s")

#: The day in the name of a file, the year first; below folders of its year and month; a year that is near.
_DAY_OF_NAME = late(r"(?<!\d)(\d{4})([-_.]?)(\d{2})\2(\d{2})(?!\d)")
_DAY_BELOW = late(r"(?:^|/)(\d{4})/(?:\1-)?(\d{2})(?:-[^/\d]*)?/(\d{2})\.\w+$")
_YEAR = late(r"(?<!\d)(?:19|20)\d\d(?!\d)")
#: In words the day is 10, 10th or 10.; without words 10.2.2026.
_NUMBER_OF_DAY = late(r"(\d{1,2})(?:st|nd|rd|th|er|º|ª)?")
_DOTTED = late(r"(?:[^\W\d_]+,?\s)?(\d{1,2})\.(\d{1,2})\.(\d{4})(?!\w)")

#: Key -> words joined by a blank -> value: the number of a month, of a day of the week (Monday is 0), or 0.
_Table = Mapping[str, Mapping[str, int]]


@value
class Days:
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


def days_in(text: str, today: date, *, bare: bool = False) -> tuple[Days, ...]:
    """List the days that a text names, in its order, in whatever language.

    `bare`: a month or a day of the week alone counts, too; in a sentence it does not.
    """
    plain = text.lower()
    if not text.isascii():
        # Without accents, as long as the text.
        plain = "".join(c if c in "çÇ" else normalize("NFD", c)[0] for c in text).lower()
        if len(plain) != len(text):
            return ()
    if plain.replace(" ", "").isalpha() and not any(
        _table(language)["telling"].keys() & {*plain.split()} for language in LANGUAGES
    ):
        # The first look, without the pattern: to compile that takes .2 ms.
        return ()
    tokens = list(_TOKEN.finditer(plain))
    words = [token[0] for token in tokens]
    tables = [table for table in map(_table, LANGUAGES) if not table["telling"].keys().isdisjoint(words)]
    if not tables and not any(token["iso"] or token["dotted"] for token in tokens):
        return ()
    # "hier" is yesterday in French and "here" in German.
    stop = stop_words(words)
    runs: list[list[re.Match[str]]] = []
    for token in tokens:
        gap = plain[runs[-1][-1].end() : token.start()] if runs else ""
        if runs and (_GAP.fullmatch(gap) or (token["number"] and gap.strip() == ",")):
            runs[-1].append(token)
        else:
            runs.append([token])
    found: list[Days] = []
    for run in runs:
        readers = [_Reader(text, run, table, today, stop, bare=bare) for table in tables]
        at = 0
        while at < len(run):
            # The longest: `14 mai` is French and German, and in one of them more may follow.
            read = [_in_figures(run, at), *(reader.read(at) for reader in readers)]
            end, days = max(filter(None, read), key=lambda each: each[0], default=(at + 1, None))
            if days is not None:
                found.append(replace(days, begin=run[at].start(), end=run[end - 1].end()))
            at = end
    return tuple(found)


def parse_bound(text: str, today: date, *, option: str, is_end: bool = False) -> date:
    """Read a `since` or `until`: a day, an age such as `30d`, `2w`, `6m`, or what `days_in` reads.

    Of several days it is the first, with `is_end` the last. Raises ConfigError.
    """
    text = text.strip()
    age = re.fullmatch(r"(\d{1,5})\s*([dwmy])", text, re.I)
    part = re.fullmatch(r"(\d{4})(?:-(\d{2}))?", text)
    try:
        if age:
            return today - timedelta(days=int(age[1]) * _DAYS[age[2].lower()])
        if part:
            days = _months(int(part[1]), int(part[2] or 1), 1 if part[2] else 12)
        else:
            (days,) = days_in(text, today, bare=True)
            around = re.findall(r"\w+", text[: days.begin] + " " + text[days.end :])
            if not _fillers().issuperset(word.lower() for word in around):
                raise ValueError
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            f"{option} is not a valid date: {text[:40]!r}",
            hint=f"give a day: {option} 2026-02-10, an age: {option} 30d, or words: {option} 'last week'",
        ) from error
    return days.last if is_end else days.first


def start_with_fillers(text: str, begin: int) -> int:
    """Return where the words that belong to a day at `begin` begin: "la" of "la semaine dernière"."""
    for word in reversed([*re.finditer(r"\w+", text[:begin])]):
        if text[word.end() : begin].strip(" '’") or word[0].lower() not in _fillers():
            break
        begin = word.start()
    return begin


def day_of_path(path: str) -> date | None:
    """Read the day in the name of a file; None when there is none.

    `2026-02-10-rollout.md`, Logseq's `2026_02_10.md` and the compact `20260210.md` are of the same day.
    So are `2026/02/10.md` and what begins with it in words, `Tuesday, February 10th 2026.md`.
    """
    name = path.rpartition("/")[2]
    match = _DAY_OF_NAME.search(name)
    if match and (match[2] or match[1].startswith(("19", "20"))):
        return _valid(int(match[1]), int(match[3]), int(match[4]))
    if not _YEAR.search(path):
        return None
    if match := _DAY_BELOW.search(path):
        return _valid(*map(int, match.groups()))
    found = _day_in_words(without_ending(name))
    return found[0] if found else None


def day_named(name: str) -> date | None:
    """Return the day that a name is, in words or figures; None where it is anything else."""
    found = _day_in_words(name)
    return found[0] if found and not found[1] else None


def _day_in_words(name: str) -> tuple[date, Sequence[str]] | None:
    """Return the day that a name begins with, `10 de febrero de 2026`, `10.2.2026`; the words behind."""
    if not _YEAR.search(name):
        return None
    plain = "".join(c if c in "çÇ" else normalize("NFD", c)[0] for c in name).lower()
    if match := _DOTTED.match(plain):
        day = _valid(*map(int, reversed(match.groups())))
        return (day, re.findall(r"\w+", plain[match.end() :])) if day else None
    words = [word for word in re.findall(r"[^\W_]+", plain) if word not in ("de", "of")]
    weekdays, months = _calendar()
    if words[0].isalpha() and any(day.startswith(words[0]) for day in weekdays if len(words[0]) > 1):
        del words[0]
    if len(words) < 3 or not _YEAR.fullmatch(words[2]):
        return None
    first, second = words[:2]
    named, counted = (second, first) if first[:1].isdigit() else (first, second)
    number = _NUMBER_OF_DAY.fullmatch(counted)
    day = _valid(int(words[2]), months[named], int(number[1])) if number and named in months else None
    return (day, words[3:]) if day else None


@cache
def _calendar() -> tuple[Sequence[str], Mapping[str, int]]:
    """Return the days of the week, and the months with their numbers, in all languages."""
    tables = [*map(_table, LANGUAGES)]
    months = {word: number for table in tables for word, number in table["months"].items()}
    return [day for table in tables for day in table["weekdays"]], months


def day_of_time(seconds: float) -> date:
    """Return the day, here, of a time in seconds since the epoch."""
    return datetime.fromtimestamp(seconds).date()


#: The token behind some days, and these.
_Read = tuple[int, Days] | None


class _Reader:
    """Reads the days that begin at a token of a run, in one language."""

    def __init__(
        self,
        text: str,
        run: Sequence[re.Match[str]],
        table: _Table,
        today: date,
        stop: frozenset[str],
        *,
        bare: bool,
    ) -> None:
        self._text, self._run, self._table, self._today, self._bare = text, run, table, today, bare
        self._stop = stop

    def read(self, at: int) -> _Read:
        """Return the days that begin at a token; None when none do."""
        try:
            return self._of_today(at) or self._of_calendar(at)
        except (ValueError, OverflowError):
            # 31 February, 9999 years ago.
            return None

    def _of_today(self, at: int) -> _Read:
        """Read what is counted from today: "yesterday", "last week", "three days ago"."""
        today, take = self._today, self._take
        for back in range(3):
            if (hit := take(f"back-{back}", at)) and self._run[at][0] not in self._stop:
                return hit[0], _span(today, "day", back)
        if (hit := take("this", at)) and (of := self._unit(hit[0])) and of[1] != "day":
            return of[0], _span(today, of[1], 0)
        if hit := take("last", at):
            if inner := self._last(hit[0]):
                return inner
            if (count := self._count(hit[0])) and (of := self._unit(count[0])) and count[1] > 1:
                first = today - timedelta(days=count[1] * _DAYS[of[1]])
                return of[0], Days(first=first, last=today, is_relative=True)
        if (inner := self._last(at)) and (hit := take("gone", inner[0])):
            return hit[0], inner[1]
        before = take("before", at)
        if (count := self._count(before[0] if before else at)) and (of := self._unit(count[0])):
            behind = take("ago", of[0])
            if before or behind:
                return behind[0] if behind else of[0], _span(today, of[1], count[1])
        return None

    def _last(self, at: int) -> _Read:
        """Read what may be the last one: a week, a month, a year, a day of the week, a month by its name."""
        today = self._today
        if (of := self._unit(at)) and of[1] != "day":
            return of[0], _span(today, of[1], 1)
        if hit := self._take("weekdays", at):
            return hit[0], _span(today, "day", (today.weekday() - hit[1]) % 7 or 7)
        if (hit := self._take("months", at)) and self._is_sure(at, hit[0], at):
            year = today.year if hit[1] < today.month else today.year - 1
            return hit[0], replace(_months(year, hit[1]), is_relative=True)
        return None

    def _of_calendar(self, at: int) -> _Read:
        """Read a day or month by its name: "14 March", "March 14th, 2026", "March 2026", "in March"."""
        if day := self._day(at):
            of = self._take("of", day[0])
            if month := self._take("months", of[0] if of else day[0]):
                year = self._year(month[0])
                if year or self._is_sure(month[0] - 1, month[0], at):
                    return year[0] if year else month[0], self._date(day[1], month[1], year)
            return None
        # What has a day before it was none: 31 February 2024.
        if (month := self._take("months", at)) and not (at and self._day(at - 1)):
            if year := self._year(month[0]):
                return year[0], _months(year[1], month[1])
            if day := self._day(month[0]):
                year = self._year(day[0])
                is_ordinal = not self._run[month[0]][0].isdigit()
                if year or is_ordinal or self._is_sure(at, day[0], at):
                    return year[0] if year else day[0], self._date(day[1], month[1], year)
                return None
            return self._month_alone(month) if self._bare else None
        if self._bare and self._take("weekdays", at):
            return self._last(at)
        within = self._take("in", at)
        month = within and self._take("months", within[0])
        if not month or self._day(month[0]):
            return None
        year = self._year(month[0])
        return (year[0], _months(year[1], month[1])) if year else self._month_alone(month)

    def _month_alone(self, month: tuple[int, int]) -> _Read:
        year = self._today.year - (month[1] > self._today.month)
        return month[0], replace(_months(year, month[1]), has_year=False)

    def _is_sure(self, month: int, end: int, begin: int) -> bool:
        """Tell whether the month is one, and not the English verb `may` or `march`.

        `begin` and `end` are of the tokens that name the day.
        """
        if self._run[month][0] not in self._table["doubtful"]:
            return True
        is_written_large = self._text[self._run[month].start()].isupper()
        return is_written_large or end == len(self._run) or bool(begin and self._take("on", begin - 1))

    def _date(self, day: int, month: int, year: tuple[int, int] | None) -> Days:
        if year:
            exact = date(year[1], month, day)
            return Days(first=exact, last=exact)
        # Eight years: 29 February about 2100.
        known = (_valid(self._today.year - back, month, day) for back in range(9))
        latest = next((each for each in known if each and each <= self._today), None)
        if latest is None:
            raise ValueError(day)
        return Days(first=latest, last=latest, has_year=False)

    def _take(self, key: str, at: int) -> tuple[int, int] | None:
        """Return the token behind an entry of the table that begins at a token, and its value."""
        entries = self._table.get(key, {})
        words = [token[0] for token in self._run[at : at + _MOST_WORDS]]
        for count in range(len(words), 0, -1):
            if (found := entries.get(" ".join(words[:count]))) is not None:
                return at + count, found
        return None

    def _unit(self, at: int) -> tuple[int, str] | None:
        taken = ((self._take(unit, at), unit) for unit in ("day", "week", "month", "year"))
        return next(((hit[0], unit) for hit, unit in taken if hit), None)

    def _figures(self, at: int) -> int | None:
        number = self._run[at]["number"] if at < len(self._run) else None
        return int(number) if number else None

    def _count(self, at: int) -> tuple[int, int] | None:
        number = self._figures(at)
        return self._take("numbers", at) if number is None else (at + 1, number)

    def _day(self, at: int) -> tuple[int, int] | None:
        number = self._figures(at)
        return (at + 1, number) if number and number <= 31 else None

    def _year(self, at: int) -> tuple[int, int] | None:
        of = self._take("of", at)
        at = of[0] if of else at
        number = self._figures(at)
        return (at + 1, number) if number and 1900 <= number <= 2099 and self._run[at][0].isdigit() else None


@cache
def _table(language: str) -> _Table:
    table: dict[str, dict[str, int]] = {}
    for line in word_lists()[f"days.{language}"].replace("\n ", " ").strip().splitlines():
        key, _, entries = line.partition(": ")
        # Months and numbers count from 1, days of the week from 0.
        groups = enumerate(entries.split("|"), key != "weekdays")
        table[key] = {word.strip(): number for number, group in groups for word in group.split(",")}
    # First words alone: one look at the words of a question says that it names no day.
    table["telling"] = {word.split()[0]: 0 for key in _TELLING for word in table.get(key, ())}
    return {"doubtful": {}} | table


@cache
def _fillers() -> frozenset[str]:
    """Return what may stand around a bound: "la semaine dernière", "since March"."""
    words = ["the", "der", "die", "das", "den", "le", "la", "il", "lo", "el", "o", "a", "am", "na"]
    for table in map(_table, LANGUAGES):
        words += [word for key in ("in", "on", "of") for word in table.get(key, ())]
    return frozenset(words)


def _in_figures(run: Sequence[re.Match[str]], at: int) -> _Read:
    """Read 2026-03-14 or 14.3.2026."""
    if run[at]["iso"]:
        numbers = [int(part) for part in run[at][0].split("-")]
    elif run[at]["dotted"]:
        numbers = [int(part) for part in reversed(run[at][0].split("."))]
    else:
        return None
    day = _valid(*numbers)
    return (at + 1, Days(first=day, last=day)) if day else None


def _span(today: date, unit: str, back: int) -> Days:
    """Return the day, week, month or year so many before the present one."""
    if unit in ("day", "week"):
        first = today - timedelta(days=back * _DAYS[unit] + (today.weekday() if unit == "week" else 0))
        return Days(first=first, last=first + timedelta(days=_DAYS[unit] - 1), is_relative=True)
    year, month = divmod(today.year * 12 + today.month - 1 - back * (12 if unit == "year" else 1), 12)
    days = _months(year, 1, 12) if unit == "year" else _months(year, month + 1)
    return replace(days, is_relative=True)


def _months(year: int, first: int, count: int = 1) -> Days:
    behind = date(year + (first + count > 12), (first + count - 1) % 12 + 1, 1)
    return Days(first=date(year, first, 1), last=behind - timedelta(days=1))


def _valid(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None
