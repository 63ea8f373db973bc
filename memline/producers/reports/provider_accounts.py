"""Report the provider accounts of an agent: breakers, limits, latency, errors, money, fallback."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from memline.producers.reports import breakers
from memline.shared.clock import SystemClock
from memline.shared.config.schema import AgentSettings, Settings
from memline.shared.embedders.choice import choose
from memline.shared.errors import QueueError
from memline.shared.index import identities, meta
from memline.shared.index.accounts import Accounts
from memline.shared.index.driver import reading_if_any
from memline.shared.queue.redis_limits import RedisLimits
from memline.shared.scheduling import call_times
from memline.shared.scheduling.budget import spent
from memline.shared.scheduling.limits import FileLimits, Used, minute_limits

if TYPE_CHECKING:
    from memline.shared.index.accounts import AccountFile


def of_agent(settings: AgentSettings, whole: Settings) -> list[dict[str, Any]]:
    """Report the providers of an agent: the one that embeds first, then those in trouble; empty without one.

    Raises IndexFaults.
    """
    with reading_if_any(settings.index_path) as reader:
        if reader is None or (target := identities.target(reader)) is None:
            return []
        now, choice = time.time(), choose(settings)
        fallback = meta.get(reader, meta.FALLBACK)
        is_paused = bool(meta.get(reader, meta.PAUSED, False))
        with Accounts.opened(reader, settings) as accounts:
            modes = breakers.of_index(accounts, settings)
            money = spent(accounts.file, whole.limits, now)["models"]
            names = dict.fromkeys([target.identity.provider, *(each["provider"] for each in modes)])
            reports = []
            for name in names:
                account = accounts.of(name)
                # What is configured is meant for the requested provider.
                max_requests, max_tokens = (
                    minute_limits(settings, choice) if name == choice.provider else (0, 0)
                )
                used = _used(accounts.file, account, whole)
                reports.append(
                    {
                        "agentId": settings.agent,
                        "name": name,
                        "account": account,
                        "model": target.identity.model if name == target.identity.provider else None,
                        "paused": is_paused,
                        "modes": [each for each in modes if each["provider"] == name],
                        "minute": {
                            "requests": used.requests if used else None,
                            "tokens": used.tokens if used else None,
                            "maxRequests": max_requests or None,
                            "maxTokens": max_tokens or None,
                        },
                        "lastDay": call_times.of_account(accounts.file, account, now),
                        "spending": [each for each in money if each["provider"] == name],
                        "fallback": fallback if fallback and name in fallback.values() else None,
                    }
                )
    return reports


def _used(file: AccountFile, account: str, whole: Settings) -> Used | None:
    """Tell what is taken of an account's minute; None when Redis, which knows, cannot be asked."""
    if not whole.queue.url:
        return FileLimits(file, SystemClock()).used(account)
    try:
        with closing(RedisLimits(whole.queue.address)) as limits:
            return limits.used(account)
    except QueueError:
        return None
