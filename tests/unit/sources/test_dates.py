from datetime import date

import pytest

from memline.shared.errors import BadRequest
from memline.shared.sources.dates import day_of_path, days_in, parse_bound

#: A Wednesday.
TODAY = date(2026, 3, 18)

#: What a question says, and the days that it is read as on that Wednesday: ISO, or ISO/ISO.
SAID = {
    "en": {
        "what did I do yesterday": "2026-03-17",
        "the day before yesterday": "2026-03-16",
        "notes of today": "2026-03-18",
        "boats last week": "2026-03-09/2026-03-15",
        "this week": "2026-03-16/2026-03-22",
        "last month": "2026-02-01/2026-02-28",
        "last year": "2025-01-01/2025-12-31",
        "last Tuesday": "2026-03-17",
        "last Wednesday": "2026-03-11",
        "three days ago": "2026-03-15",
        "2 weeks ago": "2026-03-02/2026-03-08",
        "in the last 3 days": "2026-03-15/2026-03-18",
        "March 2026": "2026-03-01/2026-03-31",
        "in April": "2025-04-01/2025-04-30",
        "14 March": "2026-03-14",
        "on 20 march we met": "2025-03-20",
        "the 14th of March, 2024": "2024-03-14",
        "May 3, 2023": "2023-05-03",
        "Sept 9th": "2025-09-09",
        "29 Feb": "2024-02-29",
        "memory/2026-02-10.md": "2026-02-10",
        "14.3.2025": "2025-03-14",
    },
}


def read(text):
    return [str(each).replace(" to ", "/") for each in days_in(text, TODAY)]


@pytest.mark.parametrize(("text", "days"), [pair for said in SAID.values() for pair in said.items()])
def test_days_are_read_in_the_ways_people_say_them(text, days):
    assert read(text) == [days]


def test_a_question_may_name_several_days():
    text = "between 2023-05-08, 3 June 2024 and Sept 9th"

    assert read(text) == ["2023-05-08", "2024-06-03", "2025-09-09"]
    assert [text[each.begin : each.end] for each in days_in(text, TODAY)][1:] == ["3 June 2024", "Sept 9th"]


@pytest.mark.parametrize(
    "text",
    [
        *("may I ask", "we may march on", "march on", "they march 14 miles", "the 14 may be", "it may last"),
        *("market 5", "31 February 2024", "2023-13-01", "version 2023-05-081", "may"),
        *("was ist hier los", "a mars rover", "mai dire mai", "it did not last, week by week", "Tuesday"),
        *("how long did it last", "v2.14 may break", "this may be March", "the year of the cat", ""),
    ],
)
def test_words_of_a_sentence_are_not_days(text):
    assert read(text) == []


@pytest.mark.parametrize(
    ("path", "day"),
    [
        ("memory/2026-02-10.md", date(2026, 2, 10)),
        ("memory/work/2026-02-10-rollout.md", date(2026, 2, 10)),
        ("memory/2026-02-10/notes.md", None),
        ("memory/2026-02-31.md", None),
        ("MEMORY.md", None),
        ("daily/2026.02.10.md", date(2026, 2, 10)),
        ("daily/10.2.2026.md", date(2026, 2, 10)),
        ("pages/Tuesday, February 10th 2026.md", date(2026, 2, 10)),
        ("daily/10-02-2026.md", None),
        ("yesterday.md", None),
        ("daily/2026/02/10.md", date(2026, 2, 10)),
        ("2026/02-Feb/10.md", date(2026, 2, 10)),
        ("daily/2026/2026-02/10.markdown", date(2026, 2, 10)),
        ("daily/2026/02/31.md", None),
        ("daily/2026/02/10 ideas.md", None),
        ("v2026/02/10.md", None),
        # Which is the month?
        ("daily/10-02-2026.md", None),
        ("February 2026.md", None),
    ],
)
def test_the_day_of_a_note_is_in_its_file_name(path, day):
    assert day_of_path(path) == day


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("2026-02-10", "2026-02-10", "2026-02-10"),
        ("30d", "2026-02-16", "2026-02-16"),
        ("2w", "2026-03-04", "2026-03-04"),
        ("yesterday", "2026-03-17", "2026-03-17"),
        ("last week", "2026-03-09", "2026-03-15"),
        ("2026-02", "2026-02-01", "2026-02-28"),
        ("2025", "2025-01-01", "2025-12-31"),
    ],
)
def test_a_bound_is_a_day_an_age_or_words(text, first, last):
    assert str(parse_bound(text, TODAY)) == first
    assert str(parse_bound(text, TODAY, is_end=True)) == last


@pytest.mark.parametrize(
    "text",
    [
        "soon",
        "2026-02-31",
        "2026-13",
        "99999y",
        "d",
        "boats last week",
        "today or yesterday",
        "may",
        "Tuesday",
    ],
)
def test_a_bound_that_is_neither_is_refused_with_an_example(text):
    with pytest.raises(BadRequest, match="not a valid date") as caught:
        parse_bound(text, TODAY)

    assert "30d" in caught.value.hint
