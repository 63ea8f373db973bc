from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.sources.entries import daily_entry, heading_line, is_empty, last_heading, long_term_entry

MOMENT = datetime(2026, 2, 10, 14, 32, tzinfo=UTC)


def test_an_entry_of_a_day_carries_its_time_and_a_lasting_one_its_day() -> None:
    assert daily_entry("Deployed v1.5.2.", MOMENT) == "- 14:32 Deployed v1.5.2."
    assert long_term_entry("We keep cents.", MOMENT) == "- We keep cents. (2026-02-10)"


def test_lines_that_follow_belong_to_the_entry() -> None:
    assert daily_entry("one\n\n  two\r\nthree\u2028four", MOMENT) == "- 14:32 one\n  two\n  three\n  four"


@pytest.mark.parametrize(
    "line", ["# heading", "###### deep", "===", "---", "```", "~~~py", "* * *", "<!-- hidden", "#"]
)
def test_no_line_of_an_entry_is_structure(line: str) -> None:
    assert daily_entry(f"x\n{line}\ny", MOMENT) == f"- 14:32 x\n  \\{line}\n  y"
    assert long_term_entry(line, MOMENT).startswith("- \\")


def test_what_cannot_be_seen_is_left_out() -> None:
    assert daily_entry("a\x00b\x1b[31m\u202ec\ud800", MOMENT) == "- 14:32 ab[31mc"


@given(st.text())
def test_whatever_the_text_an_entry_is_one_item_without_a_heading(text: str) -> None:
    entry = daily_entry(text, MOMENT)

    assert not re.search(r"(?m)^ {0,3}(#{1,6}(\s|$)|```|~~~|=+\s*$)", entry)
    first, *rest = entry.split("\n")
    assert first == "" or first.startswith("- 14:32 ")
    assert all(line.startswith("  ") for line in rest)
    assert last_heading(f"# Title\n\n{entry}\n") == "Title"
    entry.encode()


@pytest.mark.parametrize(
    ("text", "empty"),
    [("", True), (" \n#\n", True), ("---", True), ("\ufeff\x00", True), ("👍", False), ("0", False)],
)
def test_marks_and_blanks_say_nothing(text: str, empty: bool) -> None:
    assert is_empty(text) is empty


def test_a_heading_that_is_wanted_is_one_line() -> None:
    assert heading_line("  Shopping\n# and more ") == "## Shopping # and more"
    assert heading_line("## Shopping ##") == "## Shopping"
    assert heading_line(" \n#\n ") == ""


def test_the_last_heading_is_not_looked_for_in_code() -> None:
    assert last_heading("# a\n\n## B ##\n\n```sh\n# comment\n```\ntext\n") == "B"
    assert last_heading("text\n#no heading\n") == ""
