"""What every page is rendered with: escaping, visible control characters, numbers in words."""

from memline.producers.web.rendering import (
    Renderer,
    Static,
    age,
    money,
    number,
    size,
    when,
)


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
