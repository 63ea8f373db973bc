"""The details of a `google.rpc.Status`: how long to wait, and which quota it was.

The message of a Gemini answer is the same for a quota of a minute and for one of a day, and a day's comes
with a `retryDelay` of seconds all the same; only the name of the quota tells them apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from shared.embedders.waiting import duration_s

#: Seconds to wait for a quota of a minute when the answer does not say.
MINUTE_S = 60.0

_A_DAY = re.compile(r"per[ _]?day|daily", re.IGNORECASE)
_A_MINUTE = re.compile(r"per[ _]?(?:minute|second)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaDetails:
    """What the details say of a quota; the defaults are those of an answer without details."""

    #: `RetryInfo.retryDelay`, or a minute for a quota of a minute.
    wait_s: float | None = None
    #: The quota is one of a minute: it comes back by itself.
    is_short: bool = False
    #: The quota of the day is used up.
    is_daily: bool = False
    #: The key has no quota at all for this model (a limit of 0).
    is_none: bool = False


def quota_details(answer: Any) -> QuotaDetails:
    """The details of an answer that may be a `google.rpc.Status`, alone or in a list."""
    wait_s: float | None = None
    is_short = is_daily = is_none = False
    for detail in _details(answer):
        delay = detail.get("retryDelay")
        if isinstance(delay, str):
            wait_s = duration_s(delay)
        for violation in _maps(detail.get("violations")):
            words = " ".join(
                str(violation.get(name, "")) for name in ("quotaId", "quotaMetric", "description")
            )
            is_daily = is_daily or bool(_A_DAY.search(words))
            is_short = is_short or bool(_A_MINUTE.search(words))
            is_none = is_none or str(violation.get("quotaValue")) == "0"
    if is_short and wait_s is None:
        wait_s = MINUTE_S
    is_short = is_short and not (is_daily or is_none)
    return QuotaDetails(wait_s=wait_s, is_short=is_short, is_daily=is_daily, is_none=is_none)


def _details(answer: Any) -> Iterator[Mapping[str, Any]]:
    status = answer[0] if isinstance(answer, list) and answer else answer
    error = status.get("error") if isinstance(status, dict) else None
    if isinstance(error, dict):
        yield from _maps(error.get("details"))


def _maps(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))
