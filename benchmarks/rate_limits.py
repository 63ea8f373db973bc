"""Limits of a provider, kept by a fleet: never above them in any minute, and not below what is promised.

The server refuses what is above 60 requests or 100,000 tokens in any sliding minute. Each run lasts
`_MEASURED_S` after the first minute; what counts is what the server saw.

Texts are promised a share of each limit, the rest is for questions, of which there are none here. A minute
counts for some seconds more than the server's, and of tokens a request may be left over for which there is no
room: it has a twentieth of the minute's at most.
"""

from __future__ import annotations

import json
import os
from itertools import pairwise

from benchmarks import limited_provider
from benchmarks.backfill import backlog
from benchmarks.bench import Bench, Place
from benchmarks.figures import Figure, at_least, at_most
from benchmarks.fleet_processes import FleetProcesses, needs_redis, wait_until
from benchmarks.limited_provider import WINDOW_S, Arrival
from memline.shared.embedders.choice import BUDGET_PARTS
from memline.shared.scheduling.limits import WINDOW_S as OUR_WINDOW_S
from memline.shared.scheduling.limits import for_texts

_REQUESTS, _TOKENS = 60, 100_000
_PROCESSES = 4
_MEASURED_S = float(os.environ.get("MEMLINE_BENCH_LIMIT_SECONDS", "190"))

#: Seconds without a request after which sending has begun anew.
_REST_S = 10.0

#: Rows of a request, 300 tokens each: five make requests and tokens run out nearly together, the usual ones
#: are so large that tokens run out alone.
_ROWS = {"requests": 5, "tokens": 0}

#: Of what is promised: each minute begins when the first request of the one before is over, and is answered.
_LATE = 0.99


@needs_redis
def kept(bench: Bench) -> list[Figure]:
    """60 requests and 100,000 tokens a minute, 4 embed processes: the most in any minute, and the use."""
    figures: list[Figure] = []
    for bound, rows in _ROWS.items():
        seen = _seen(bench, rows)
        most = {"requests": _most(seen, tokens=False), "tokens": _most(seen, tokens=True)}
        limit = {"requests": _REQUESTS, "tokens": _TOKENS}
        used = _rate(seen, tokens=bound == "tokens") / limit[bound]
        detail = (
            f"{len(seen)} requests in {seen[-1].at:.0f} s, {sum(one.refused for one in seen)} refused;"
            f" at most {most['requests']} requests and {most['tokens']:,} tokens in a minute"
        )
        above = max(most[name] / limit[name] for name in limit)
        figures += [
            at_most(f"limits, {bound} run out: most in any minute", 100 * above, 100, "%", detail=detail),
            at_least(f"limits, {bound} run out: use of them", 100 * used, promised(bound), "%"),
        ]
    return figures


def promised(bound: str) -> int:
    """Return the percent of a minute's requests or tokens that texts are to use at least."""
    limit, left = (_TOKENS, _TOKENS / BUDGET_PARTS) if bound == "tokens" else (_REQUESTS, 0)
    return int(100 * _LATE * (for_texts(limit) - left) / limit * WINDOW_S / OUR_WINDOW_S)


def _seen(bench: Bench, rows: int) -> list[Arrival]:
    with limited_provider.serving(requests=_REQUESTS, tokens=_TOKENS) as url:
        place = backlog(bench, url, rows)
        _limit(place)
        with FleetProcesses(place) as fleet:
            fleet.start("embed", processes=_PROCESSES)
            fleet.start("store")
            wait_until(lambda: bool(limited_provider.arrivals(url)), "the first request")
            wait_until(
                lambda: limited_provider.arrivals(url)[-1].at >= WINDOW_S + _MEASURED_S,
                "the last request",
                2 * (WINDOW_S + _MEASURED_S),
            )
            return limited_provider.arrivals(url)


def _limit(place: Place) -> None:
    content = json.loads(place.config.read_text())
    remote = content["agents"]["defaults"]["memorySearch"]["remote"]
    remote |= {"requestsPerMinute": _REQUESTS, "tokensPerMinute": _TOKENS}
    place.config.write_text(json.dumps(content))


def _most(seen: list[Arrival], *, tokens: bool) -> int:
    """The most that came in any minute, refused requests among them."""
    most = total = first = 0
    for last, one in enumerate(seen):
        total += one.tokens if tokens else 1
        while seen[first].at <= one.at - WINDOW_S:
            total -= seen[first].tokens if tokens else 1
            first += 1
        assert first <= last
        most = max(most, total)
    return most


def _rate(seen: list[Arrival], *, tokens: bool) -> float:
    """What was served a minute, over whole periods: until the last time that it began anew after a rest.

    Whoever may send 60 requests in any minute sends them at its beginning, and then waits.
    """
    pairs = pairwise(seen)
    begins = [later.at for earlier, later in pairs if later.at - earlier.at > _REST_S]
    end = begins[-1] if begins else seen[-1].at
    served = [one for one in seen if one.at < end and not one.refused]
    return sum(one.tokens if tokens else 1 for one in served) * 60 / end
