"""Examine one agent: all conditions over its `Facts`, the most urgent finding first."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import msgspec

from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import choose
from memline.shared.errors import IndexFault, IndexMissing
from memline.shared.finding import Finding, by_urgency
from memline.shared.findings import place, work
from memline.shared.findings.facts import Facts

Check = Callable[[Facts], Iterator[Finding]]

#: What is examined, the more urgent of a level first.
CHECKS: tuple[Check, ...] = (
    place.workspace_missing,
    place.index_unusable,
    place.not_writable,
    place.root_emptied,
    place.port_taken,
    place.first_index_missing,
    place.no_notes,
    place.source_missing,
    work.provider_unusable,
    place.memory_disabled,
    work.paused,
    work.ceiling_reached,
    work.fallback_active,
    work.breaker_open,
    work.rate_limited,
    work.model_differs,
    work.no_provider,
    work.job_paused,
    work.text_refused,
    work.batch_blocked,
    place.files_behind,
    work.vectors_behind,
    place.files_failed,
    work.in_batch,
)


def check(facts: Facts, *more: Finding) -> tuple[Finding, ...]:
    """Return the findings of an agent, and these, which its caller made; most urgent first."""
    checked = (each for test in CHECKS for each in test(facts))
    return of_agent(facts.agent, by_urgency(checked, more))


def of_agent(agent: str, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Return findings as those of an agent, which is their subject where they name no other."""
    return tuple(
        msgspec.structs.replace(each, agent=agent, subject=each.subject or agent) for each in findings
    )


def of_fault(settings: AgentSettings, fault: IndexFault) -> tuple[Finding, ...]:
    """Return the findings of an agent whose index cannot be used, for a call that this ended."""
    known = None if isinstance(fault, IndexMissing) else fault
    return check(Facts(settings, choose(settings), None, now=time.time(), fault=known))
