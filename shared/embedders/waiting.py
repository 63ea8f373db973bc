"""How long a provider asks to be left alone, in whatever way it says so."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

#: A week; a longer wait is nonsense in the answer, not a plan.
MAX_WAIT_S = 7 * 24 * 3600.0

_UNIT_S = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001, "milli": 0.001}

#: One part of "6m0s", "1.5s", "20 ms", "8 seconds".
_PART = r"(\d+(?:\.\d+)?)\s*(ms|milli|[dhms])(?:seconds?|ays?|ours?|in(?:ute)?s?|ec(?:ond)?s?)?(?![a-z])"
_PARTS = re.compile(_PART, re.IGNORECASE)
_IN_WORDS = re.compile(rf"(?:try again|retry)\s+(?:in|after)\s+((?:{_PART}\s*)+)", re.IGNORECASE)

#: "rate limits of 3 RPM".
_A_MINUTE = re.compile(r"(?:limits?|rate) of (\d+) (?:RPM|requests per minute)", re.IGNORECASE)

#: Pairs of headers: what is left, and when it is full again.
_BUCKETS = (
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
)


def wait_s(headers: Mapping[str, str], text: str, *, now: float, told_s: float | None = None) -> float | None:
    """Seconds to wait, or None when the answer does not say. Names in `headers` are lower case.

    Tried in order: `retry-after-ms`, `retry-after` (seconds or an HTTP date), an exhausted
    `x-ratelimit-*` bucket, `told_s` (what the body has in a field of its own), "try again in 6ms" in `text`,
    "3 RPM" in `text`.
    """
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return _bounded(milliseconds / 1000)
    told = headers.get("retry-after", "").strip()
    if told:
        seconds = _number(told)
        if seconds is None:
            seconds = _until(told, headers, now)
        if seconds is not None:
            return _bounded(seconds)
    resets = [
        seconds
        for remaining, reset in _BUCKETS
        if headers.get(remaining, "").strip() == "0" and (seconds := duration_s(headers.get(reset, "")))
    ]
    if resets:
        return _bounded(max(resets))
    seconds = told_s
    words = _IN_WORDS.search(text)
    if seconds is None and words:
        seconds = duration_s(words.group(1))
    a_minute = _A_MINUTE.search(text)
    if seconds is None and a_minute and int(a_minute.group(1)):
        seconds = 60 / int(a_minute.group(1))
    return None if seconds is None else _bounded(seconds)


def _bounded(seconds: float) -> float:
    return min(max(seconds, 0.0), MAX_WAIT_S)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _until(date: str, headers: Mapping[str, str], now: float) -> float | None:
    """Seconds until an HTTP date, by the clock of the server when it tells its time."""
    moment = _timestamp(date)
    if moment is None:
        return None
    return moment - (_timestamp(headers.get("date", "")) or now)


def _timestamp(date: str) -> float | None:
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


def duration_s(text: str) -> float | None:
    """The seconds of "6m0s", "34.07s" or "20"; None when it is no duration."""
    parts = _PARTS.findall(text)
    if not parts:
        return _number(text)
    return float(sum(float(number) * _UNIT_S[unit.lower()] for number, unit in parts))
