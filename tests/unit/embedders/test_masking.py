"""What a provider wrote is shown short and without secrets."""

from __future__ import annotations

import pytest

from shared.embedders.masking import MAX_SHOWN_CHARS, mask, shown


@pytest.mark.parametrize(
    "text",
    [
        "key my-own-secret-value",
        "Incorrect API key provided: sk-proj-ab12*****wxyz.",
        "Authorization: Bearer abcdef123456",
        "https://example.com/v1?key=abcdef123456&x=1",
        "AIzaSyA1234567890abcdef",
        "AQ.SyA1234567890abcdef",
        "pa-SyA1234567890abcdef",
    ],
)
def test_keys_are_masked(text: str) -> None:
    seen = mask(text, ["my-own-secret-value"])

    assert "***" in seen
    for part in ("my-own", "wxyz", "abcdef", "SyA123"):
        assert part not in seen


def test_a_secret_at_the_cut_does_not_survive_in_part() -> None:
    secret = "0123456789abcdef"
    text = "x" * (MAX_SHOWN_CHARS - 5) + secret

    assert "0123" not in shown(text, [secret])


def test_text_is_shown_on_one_line_and_cut() -> None:
    seen = shown("a\n  b " + "c" * 1000)

    assert seen.startswith("a b ccc")
    assert len(seen) == MAX_SHOWN_CHARS + 1
