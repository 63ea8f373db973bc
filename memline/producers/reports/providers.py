"""Report the provider accounts of an agent: one word for the state of each, why, and what ends it."""

from __future__ import annotations

from typing import Any

from memline.shared.findings.facts import Facts
from memline.shared.findings.work import RESUME
from memline.shared.scheduling import health
from memline.shared.scheduling.health import Health
from memline.shared.words import counted

#: The states of a provider account, the first that holds: a person paused it; its circuit breaker is open,
#: for an outage or a definite no; it asked to wait (429); a request failed, and the next one waits a little.
OK, PAUSED, OPEN, RATE_LIMITED, RETRYING = "ok", "paused", "open", "rate limited", "retrying"


def accounts(facts: Facts) -> list[dict[str, Any]]:
    """Report the provider that texts are sent to, and those in trouble; none without an index."""
    breakers = modes(facts)
    names = dict.fromkeys(filter(None, (facts.provider, *(each["provider"] for each in breakers))))
    return [_account(facts, name, [each for each in breakers if each["provider"] == name]) for name in names]


def _account(facts: Facts, name: str, breakers: list[dict[str, Any]]) -> dict[str, Any]:
    # The health of a provider as a whole is that of its requests, which everything falls back to.
    state = facts.health_of(name)
    is_manual, is_in_use = facts.is_paused or state.manual, facts.provider == name
    word, reason, action = OK, state.reason, health.action_of(state, name)
    if is_manual:
        word, action = PAUSED, RESUME if facts.is_paused else action
        reason = health.PAUSED if facts.is_paused else f"{health.PAUSED} for {name}"
    elif state.paused:
        word, action = OPEN, action or RESUME
    elif is_in_use and facts.hold_s:
        word = RATE_LIMITED
    elif state.failures or state.wait_s(facts.now):
        word = RETRYING
    return {
        "name": name,
        # All modes of it.
        "paused": facts.is_paused,
        "state": word,
        "reason": reason,
        "action": action,
        "failures": state.failures,
        "holdUntil": state.retry_at or None,
        "agentId": facts.agent,
        "model": facts.target.identity.model if facts.target and is_in_use else None,
        "modes": breakers,
    }


def modes(facts: Facts) -> list[dict[str, Any]]:
    """List the breakers by provider and mode: those of the provider in use, then those in trouble."""
    in_use, states = facts.provider, facts.breakers
    if in_use:
        has_batches = facts.settings.memory.remote.batch.enabled or (in_use, health.BATCH) in states
        used = (health.REQUESTS, health.BATCH) if has_batches else (health.REQUESTS,)
        states = {(in_use, mode): Health() for mode in used} | states
    return [
        _mode(provider, mode, state)
        for (provider, mode), state in states.items()
        if provider == in_use or state.is_stopped or state.failures
    ]


def _mode(provider: str, mode: str, state: Health) -> dict[str, Any]:
    return {
        "provider": provider,
        "mode": mode,
        "state": state.state,
        "failures": state.failures,
        "since": state.since or None,
        "nextProbe": state.retry_at if state.paused else None,
        "pausedByHand": state.manual,
        "maxRows": state.max_rows or None,
        "reason": state.reason,
    }


def size_words(entry: dict[str, Any]) -> str:
    """Say how many texts a request holds when the provider taught it; empty when it did not."""
    is_learned = entry["mode"] == health.REQUESTS and entry["maxRows"]
    return f"at most {counted(entry['maxRows'], 'text')} in one" if is_learned else ""
