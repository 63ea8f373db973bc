"""Fields of jobs as providers write them: counts that are text, times of several spellings."""

from __future__ import annotations

from datetime import datetime


def number(value: object) -> int:
    """A count, which may be text; 0 when it is none."""
    try:
        return int(value)  # type: ignore[call-overload,no-any-return]
    except (TypeError, ValueError, OverflowError):
        return 0


def moment(value: object) -> float:
    """Seconds since the epoch, of a number or of an RFC 3339 time; 0 when it is neither."""
    if isinstance(value, int | float):
        return float(value)
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except (ValueError, OverflowError):
        return 0.0
