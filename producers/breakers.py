"""The circuit breakers of an agent's providers: as JSON for those who look, and set by those who act."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from shared.clock import Clock, SystemClock
from shared.config.schema import AgentSettings
from shared.embedders.choice import choose
from shared.index import fallback, health, identity, meta
from shared.index.driver import faults, transaction
from shared.index.health import Health
from shared.index.writer import IndexWriter

if TYPE_CHECKING:
    from sqlite3 import Connection

#: What to type when a breaker is open and the provider did not say what to do.
RESUME = "memline queue resume"


def of_index(reader: Connection, settings: AgentSettings) -> list[dict[str, Any]]:
    """One entry a provider and mode: that in use comes first, then others that are in trouble."""
    target = identity.target(reader)
    known = health.all_of(reader)
    if target is not None:
        used = [(target.identity.provider, health.REQUESTS)]
        if settings.memory.remote.batch.enabled or (target.identity.provider, health.BATCH) in known:
            used.append((target.identity.provider, health.BATCH))
        known = {key: known.get(key, Health()) for key in used} | known
    in_use = target.identity.provider if target else ""
    return [
        _json(provider, mode, state, settings)
        for (provider, mode), state in known.items()
        if provider == in_use or state.paused or state.failures or state.by_hand
    ]


def _json(provider: str, mode: str, state: Health, settings: AgentSettings) -> dict[str, Any]:
    is_batch = mode == health.BATCH
    rules = health.batch_rules(settings.memory.remote.batch) if is_batch else health.REQUEST_RULES
    action = state.action
    if state.by_hand:
        action = f"{RESUME} --provider {provider} --mode {mode}"
    elif state.paused and not action:
        action = f"{RESUME} --mode {mode}"
    return {
        "provider": provider,
        "mode": mode,
        "state": state.state,
        "failures": state.failures,
        "limit": rules.limit,
        "since": state.since or None,
        "nextProbe": state.probe_at if state.state == "open" else None,
        "holdUntil": state.hold_until or None,
        "pausedByHand": state.by_hand,
        "reason": "paused by hand" if state.by_hand and not state.paused else state.reason,
        "action": action,
    }


def words(entry: dict[str, Any], now: float) -> str:
    """One line about a breaker that is not closed; empty when there is nothing to tell."""
    if entry["pausedByHand"]:
        return f"{entry['mode']} paused by hand (try: {entry['action']})"
    if entry["state"] == "closed":
        return ""
    if entry["state"] == "half_open":
        when = "a probe is out"
    else:
        wait_s = entry["nextProbe"] - now
        when = f"asked again in {_span(wait_s)}" if wait_s > 0 else "asked again with the next text"
    return f"{entry['mode']} stopped, {when}: {entry['reason']} (try: {entry['action']})"


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def pause(
    settings: AgentSettings, *, provider: str = "", mode: str = "", clock: Clock | None = None
) -> list[dict[str, Any]]:
    """Send nothing more to the provider: to all of them in all modes, or to one, or in one mode."""
    now = (clock or SystemClock()).now()
    with closing(IndexWriter.of(settings, clock=clock)) as writer:
        with faults(writer.path), transaction(writer.connection):
            if not provider and not mode:
                meta.put(writer.connection, meta.PAUSED, True)
            else:
                for name, each in _meant(writer.connection, settings, provider, mode):
                    health.set_by_hand(writer.connection, name, True, now, each)
        return of_index(writer.connection, settings)


def resume(
    settings: AgentSettings, *, provider: str = "", mode: str = "", clock: Clock | None = None
) -> list[dict[str, Any]]:
    """Send again: ends pauses by hand, closes breakers on trial, and gives a provider back its place."""
    now = (clock or SystemClock()).now()
    rules = {health.BATCH: health.batch_rules(settings.memory.remote.batch)}
    with closing(IndexWriter.of(settings, clock=clock)) as writer:
        with faults(writer.path), transaction(writer.connection):
            if not provider and not mode:
                meta.put(writer.connection, meta.PAUSED, None)
            for name, each in _meant(writer.connection, settings, provider, mode):
                health.set_by_hand(writer.connection, name, False, now, each)
                health.try_again(writer.connection, name, now, each, rules=rules.get(each))
                if each == health.REQUESTS:
                    health.forget_caps(writer.connection, name)
        choice = choose(settings)
        if mode != health.BATCH:
            if choice.identity is not None and provider in ("", choice.provider):
                fallback.come_back(writer, choice)
            writer.start_over()
        return of_index(writer.connection, settings)


def _meant(
    connection: Connection, settings: AgentSettings, provider: str, mode: str
) -> Sequence[tuple[str, str]]:
    """The providers and modes that options name; without a name those in use and those in trouble."""
    target = identity.target(connection)
    names = {provider} if provider else {name for name, _ in health.all_of(connection)}
    if not provider:
        names |= {target.identity.provider} if target else set()
        names |= {choice.provider} if (choice := choose(settings)).identity else set()
    return [(name, each) for name in sorted(names) for each in health.MODES if mode in ("", each)]
