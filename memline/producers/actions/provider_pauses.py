"""Pause, resume and probe the provider accounts of an agent."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing, suppress

from memline.shared.clock import SystemClock
from memline.shared.config.installation import NO_QUEUE, QueueAddress
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import choose
from memline.shared.errors import QueueError
from memline.shared.index import identities, meta
from memline.shared.index.accounts import Accounts
from memline.shared.index_writer import IndexWriter
from memline.shared.queue.redis_limits import RedisLimits
from memline.shared.scheduling import health, model_change
from memline.shared.scheduling.limits import FileLimits


def pause(settings: AgentSettings, *, provider: str = "", mode: str = "") -> None:
    """Send no more texts to providers: to none in any mode, or not to one, or not in one mode.

    Requests in flight, at most two for each thread of the embed workers, end as usual.
    """
    with closing(IndexWriter.of(settings)) as writer, writer.transaction() as (connection, now):
        if not provider and not mode:
            meta.put(connection, meta.PAUSED, meta.get(connection, meta.PAUSED) or now)
        else:
            for name, each in _selected(writer.accounts, settings, provider, mode):
                health.set_paused(writer.accounts, name, True, each)


def resume(
    settings: AgentSettings, *, provider: str = "", mode: str = "", queue_url: QueueAddress = NO_QUEUE
) -> None:
    """Send texts again: end manual pauses, close breakers on trial, and switch back from the fallback.

    A time that a provider asked to wait ends as well, and one request tries: who says that it goes on may
    have bought more. `queue_url`: the fleet whose workers keep that time; empty without one.
    """
    rules = {health.BATCH: health.batch_rules(settings.memory.remote.batch)}
    choice = choose(settings)
    with closing(IndexWriter.of(settings)) as writer:
        with writer.session():
            chosen = _selected(writer.accounts, settings, provider, mode)
        _end_cooldowns(writer.accounts, chosen, queue_url)
        with writer.transaction() as (connection, _):
            if not provider and not mode:
                meta.put(connection, meta.PAUSED, None)
            for name, each in chosen:
                health.set_paused(writer.accounts, name, False, each)
                health.resume(writer.accounts, name, each, rules=rules.get(each, health.REQUEST_RULES))
        if mode != health.BATCH:
            if choice.identity is not None and provider in ("", choice.provider):
                with writer.session() as (_, now):
                    model_change.switch_back(writer.accounts, choice, now)
            writer.retry_all()


def _end_cooldowns(accounts: Accounts, chosen: Iterable[tuple[str, str]], queue_url: QueueAddress) -> None:
    """Let workers call these providers again: before the rows do, or a worker gives back what they send."""
    names = [name for name, mode in chosen if mode == health.REQUESTS]
    if not queue_url:
        of_file = FileLimits(accounts.file, SystemClock())
        for name in names:
            of_file.end_cooldown(accounts.of(name))
        return
    # While Redis is away no worker calls anyhow.
    with closing(RedisLimits(queue_url)) as limits, suppress(QueueError):
        for name in names:
            limits.end_cooldown(accounts.of(name))


def _selected(accounts: Accounts, settings: AgentSettings, provider: str, mode: str) -> list[tuple[str, str]]:
    """Resolve what options name to providers and modes; no name means the one in use and those in trouble."""
    names = {provider}
    if not provider:
        target, choice = identities.target(accounts.index), choose(settings)
        names = {name for name, _ in health.read_all(accounts)}
        names |= {target.identity.provider} if target else set()
        names |= {choice.provider} if choice.identity else set()
    return [(name, each) for name in sorted(names) for each in health.MODES if mode in ("", each)]
