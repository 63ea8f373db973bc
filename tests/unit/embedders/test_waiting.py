"""The time a provider asks for is understood in every way it is said."""

from __future__ import annotations

from email.utils import formatdate

import pytest

from shared.embedders.waiting import MAX_WAIT_S, wait_s

NOW = 1_750_000_000.0


@pytest.mark.parametrize(
    ("headers", "text", "expected"),
    [
        ({}, "", None),
        ({"retry-after": "60"}, "", 60),
        ({"retry-after": "1.5"}, "", 1.5),
        ({"retry-after": "-3"}, "", 0),
        ({"retry-after": "1e12"}, "", MAX_WAIT_S),
        ({"retry-after": "nan"}, "", None),
        ({"retry-after": "soon"}, "", None),
        ({"retry-after": formatdate(NOW + 90, usegmt=True)}, "", 90),
        ({"retry-after": formatdate(NOW - 90, usegmt=True)}, "", 0),
        ({"retry-after-ms": "250", "retry-after": "60"}, "", 0.25),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, "", 360),
        ({"x-ratelimit-remaining-tokens": "9", "x-ratelimit-reset-tokens": "6m0s"}, "", None),
        ({}, "Please try again in 20ms. Visit https://example.com", 0.02),
        ({}, "Please try again in 1h2m3.5s.", 3723.5),
        ({}, "Please retry after 8 seconds.", 8),
        ({}, "try again in 5 minutes", 300),
        ({}, "try again later", None),
        ({}, "reduced rate limits of 3 RPM and 10K TPM", 20),
        ({}, "a rate of 120 requests per minute", 0.5),
        ({}, "rate limits of 0 RPM", None),
    ],
)
def test_time_to_wait(headers: dict[str, str], text: str, expected: float | None) -> None:
    assert wait_s(headers, text, now=NOW) == (None if expected is None else pytest.approx(expected))


def test_a_field_of_the_body_counts_before_its_words_and_behind_the_headers() -> None:
    assert wait_s({}, "try again in 5 s", now=NOW, told_s=34) == 34
    assert wait_s({"retry-after": "7"}, "", now=NOW, told_s=34) == 7


def test_a_date_is_measured_by_the_clock_of_the_server() -> None:
    headers = {
        "date": formatdate(NOW - 3600, usegmt=True),
        "retry-after": formatdate(NOW - 3600 + 45, usegmt=True),
    }

    assert wait_s(headers, "", now=NOW) == 45
