"""What every page is rendered with: escaping, visible control characters, numbers in words."""

import pytest

from memline.producers.web.rendering import (
    Renderer,
    Static,
    age,
    money,
    number,
    one_line,
    size,
    visible,
    when,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\n\ttext", "plain\n\ttext"),
        ("\x1b[31m", "\\x1b[31m"),
        ("a\u202eb\u200b", "a\\u202eb\\u200b"),
        ("half \ud800", "half \\ud800"),
        ("\x00\x7f\x9b", "\\x00\\x7f\\u009b"),
        ("日本 Ünï 👍", "日本 Ünï 👍"),
    ],
)
def test_control_characters_are_made_visible(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_a_name_with_a_line_end_is_one_line() -> None:
    assert one_line("a\nb\tc") == "a\\nb\\tc"


def test_every_output_is_escaped_and_finished() -> None:
    html = Renderer(Static()).fragment(
        "error.html", "content", {"what": "<b>\u202e&", "hint": "", "status": 400}
    )

    assert html is not None and "&lt;b&gt;\\u202e&amp;" in html
    assert Renderer(Static()).fragment("error.html", "none", {}) is None


def test_numbers_are_written_for_readers() -> None:
    assert (number(12345), number(1.25), number(0.0), number(None)) == ("12,345", "1.2", "0", "–")
    assert (age(5), age(None), age(-3)) == ("5 s", "–", "0 s")
    assert (money(0.5), money(0), money(200, "EUR"), money(None)) == ("$0.5000", "$0.00", "200.00 EUR", "–")
    assert (size(999), size(1500), size(2.5e9), size(None)) == ("999 bytes", "1.5 kB", "2.5 GB", "–")
    assert (when(0), when(1)) == ("", "1970-01-01 00:00:01")
