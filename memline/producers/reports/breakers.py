"""Report the provider accounts of an agent and their circuit breakers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from memline.shared.config.schema import AgentSettings
from memline.shared.index import identities, meta
from memline.shared.index.accounts import Accounts
from memline.shared.index.driver import reading_if_any
from memline.shared.scheduling import breaker, health
from memline.shared.scheduling.breaker import Health, tighter
from memline.shared.scheduling.budget import Refusal, ceiling_reached
from memline.shared.words import counted

if TYPE_CHECKING:
    pass

#: What to type when all is paused.
RESUME = "memline queue resume"


def of_index(accounts: Accounts, settings: AgentSettings) -> list[dict[str, Any]]:
    """List the breakers by provider and mode: those of the provider in use, then those in trouble."""
    target = identities.target(accounts.index)
    in_use = target.identity.provider if target else ""
    states = health.read_all(accounts)
    if in_use:
        has_batches = settings.memory.remote.batch.enabled or (in_use, health.BATCH) in states
        modes = (health.REQUESTS, health.BATCH) if has_batches else (health.REQUESTS,)
        states = {(in_use, mode): Health() for mode in modes} | states
    return [
        _json(provider, mode, state, settings)
        for (provider, mode), state in states.items()
        if provider == in_use or state.paused or state.failures or state.manual
    ]


def _json(provider: str, mode: str, state: Health, settings: AgentSettings) -> dict[str, Any]:
    is_batch = mode == health.BATCH
    rules = breaker.batch_rules(settings.memory.remote.batch) if is_batch else breaker.REQUEST_RULES
    paused = health.PAUSED + health.of_mode(provider, mode)
    return {
        "provider": provider,
        "mode": mode,
        "state": state.state,
        "failures": state.failures,
        "limit": rules.max_failures,
        "since": state.since or None,
        "nextProbe": state.probe_at if state.state == "open" else None,
        "holdUntil": state.retry_at or None,
        "pausedByHand": state.manual,
        "maxRows": tighter(state.max_rows, state.shrunk_rows) or None,
        "reason": paused if state.manual and not state.paused else state.reason,
        "action": health.action_of(state, provider, mode),
    }


def size_words(entry: dict[str, Any]) -> str:
    """Say how many texts a request holds when the provider taught it; empty when it did not."""
    is_learned = entry["mode"] == health.REQUESTS and entry["maxRows"]
    return f"at most {counted(entry['maxRows'], 'text')} in one ({RESUME} forgets it)" if is_learned else ""


def is_all_paused(settings: AgentSettings) -> bool:
    """Say whether an operator paused all providers in all modes: a resume of one does not end that."""
    with reading_if_any(settings.index_path) as reader:
        return reader is not None and bool(meta.get(reader, meta.PAUSED, False))


def ceiling_kept(settings: AgentSettings) -> Refusal | None:
    """Return the ceiling for which texts of an agent wait; None without one."""
    with reading_if_any(settings.index_path) as reader:
        if reader is None:
            return None
        with Accounts.opened(reader, settings) as accounts:
            return ceiling_reached(accounts, settings, time.time())
