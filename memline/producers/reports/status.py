"""Collect what `memline status` shows of one agent: index, provider, vectors, and what does not work."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from memline.producers.reports import breakers
from memline.producers.reports.fleet_state import ceiling, provider_states, spending
from memline.shared.config.schema import AgentSettings, Batch, Settings
from memline.shared.embedders.choice import Choice, choose
from memline.shared.embedders.local.downloads import engine_report
from memline.shared.errors import IndexFault, MemlineError
from memline.shared.finding import Finding, Trouble
from memline.shared.findings.diagnosis import merged, of_agent, of_common, processes, queue_of
from memline.shared.index import (
    bits,
    chunks,
    driver,
    identities,
    ledger,
    meta,
    vectors,
)
from memline.shared.index.accounts import Accounts
from memline.shared.packages import lack_at_a_glance
from memline.shared.scheduling import health
from memline.shared.scheduling.breaker import Health
from memline.shared.sources.outcomes import INDEXED
from memline.shared.sync.model_state import ModelState, model_state
from memline.shared.sync.plan import IndexState, Plan, make_plan, read_index_state

if TYPE_CHECKING:
    from sqlite3 import Connection

#: Failed texts in a status at most.
MAX_FAILURES = 5


def examine(
    settings: AgentSettings, *, deep: bool = False, queue: str = "", troubles: tuple[Trouble, ...] = ()
) -> tuple[dict[str, Any], tuple[Finding, ...]]:
    """Return what a status says of an agent, and what is wrong. Only reads, but for a log to be emptied.

    `deep` asks the provider for one vector, which may cost a little. `queue`: the address of a fleet's Redis;
    `troubles`: what the caller met before.
    """
    choice = choose(settings)
    asked: dict[str, Any] = {}
    if deep:
        problem, action = check_provider(choice)
        # OpenClaw's name of it, in the same report.
        asked["embeddingProbe"] = {"ok": not problem, "error": problem, "action": action}
        if problem and choice.identity is not None:
            details = {"provider": choice.provider, "reason": problem}
            troubles += (Trouble(code="provider_fails", details=details, action=action),)
    fault = {}
    look = partial(of_agent, settings, choice=choice, queue=queue, troubles=troubles)
    try:
        with driver.reading_if_any(settings.index_path) as reader:
            plan = make_plan(settings, choice, read_index_state(reader) if reader else IndexState())
            status = _status(settings, choice, plan, reader)
            found = look(index=reader, plan=plan)
    except IndexFault as error:
        plan = make_plan(settings, choice, IndexState())
        fault = {"error": error.message, "action": error.hint}
        status = _status(settings, choice, plan, None)
        found = look(fault=error, plan=plan)
    report = {
        "agentId": settings.agent,
        "status": status | fault,
        "scan": {
            "totalFiles": plan.total_files,
            "issues": list(plan.discovery.issues),
            "leftOut": [{"path": path, "reason": reason} for path, reason in plan.discovery.left_out],
        },
    }
    return report | asked, found


def whole_report(
    settings: Settings, agent: AgentSettings, *, deep: bool, troubles: tuple[Trouble, ...] = ()
) -> dict[str, Any]:
    """Collect what `memline status --json` says of an agent; `deep`, `troubles`: as in `examine`."""
    report, found = examine(agent, deep=deep, queue=queue_of(settings), troubles=troubles)
    return report | told(settings, agent, found)


def told(settings: Settings, agent: AgentSettings, found: tuple[Finding, ...]) -> dict[str, Any]:
    """Return findings of an agent, those of its fleet, and the processes of its home, as JSON."""
    everything = merged(found, of_common(settings, [agent]))
    return {
        "findings": [each.to_json() for each in everything],
        "processes": [each.to_json() for each in processes(agent)],
    }


def check_provider(choice: Choice) -> tuple[str, str]:
    """Embed one word with the chosen provider; return the error and what to do, or two empty texts."""
    if choice.identity is None:
        return choice.reason or "no embedding provider", choice.action
    try:
        with closing(choice.build()) as embedder:
            embedder.embed_query("ping", timeout_s=10)
    except MemlineError as error:
        return error.message, error.hint
    return "", ""


def left_out_files(settings: AgentSettings) -> list[dict[str, str]]:
    """List the files that are not indexed as a whole, each with its outcome and the reason."""
    try:
        with driver.reading(settings.index_path) as reader:
            return [
                {"path": entry.path, "outcome": entry.outcome, "reason": entry.reason}
                for entry in ledger.entries(reader).values()
                if entry.outcome != INDEXED or entry.reason
            ]
    except IndexFault:
        return []


def _status(settings: AgentSettings, choice: Choice, plan: Plan, reader: Connection | None) -> dict[str, Any]:
    """Say what the index has, and what settings, provider, libraries and disk are; None: without an index."""

    def read(function: Callable[[Connection], Any], default: Any) -> Any:
        return function(reader) if reader else default

    memory, rules = settings.memory, settings.memory.remote.batch
    vector, library = memory.store.vector, driver.library()
    vector_error = driver.vec_error(vector.extension_path) if vector.enabled else ""
    active, target = read(identities.active, None), read(identities.target, None)
    backlog = plan.index.backlog
    model = read(lambda reader: model_state(reader, settings, choice), ModelState())
    batch, open_breakers = Health(), list[dict[str, Any]]()
    failed: list[tuple[str, str, str]] = []
    status: dict[str, Any] = {}
    if reader:
        with Accounts.opened(reader, settings) as accounts:
            open_breakers = breakers.of_index(accounts, settings)
            if target:
                batch = health.read(accounts, target.identity.provider, health.BATCH)
                in_use = provider_states(accounts, settings, target.identity)[0]
                names = ("state", "reason", "action", "holdUntil")
                status["providerHealth"] = {name: in_use[name] for name in names}
                failed = vectors.failures(reader, target.id, MAX_FAILURES) if backlog.failed else []
    sources = dict.fromkeys(memory.sources, (0, 0)) if reader else {}
    sources |= {name: (files, count) for name, files, count in read(ledger.source_counts, [])}
    errors = read(lambda reader: meta.get(reader, meta.LOOP_ERRORS, {}), {})
    stand_in = read(lambda reader: meta.get(reader, meta.FALLBACK), None)
    fallback = {"from": choice.fallback_from, "reason": choice.reason} if choice.fallback_from else None
    embeds = target.identity if stand_in and target else choice
    return status | {
        "backend": "builtin",
        "files": sum(files for files, _ in sources.values()),
        "chunks": read(chunks.count, 0),
        "dirty": plan.is_behind or bool(model.missing or model.reason),
        "workspaceDir": str(settings.workspace),
        "workspaceOrigin": settings.workspace_origin,
        "dbPath": str(settings.index_path),
        "provider": embeds.provider,
        "model": embeds.model,
        "requestedProvider": choice.requested,
        # What runs a local model, where one is configured.
        "engine": engine_report(settings, choice.provider),
        # The model that reads the best hits again, where one is configured.
        "providerReason": choice.reason,
        "providerAction": choice.action,
        "sources": list(memory.sources),
        "extraPaths": [extra.path for extra in memory.extra_paths],
        "sourceCounts": [
            {"source": name, "files": files, "chunks": count}
            for name, (files, count) in sorted(sources.items())
        ],
        "outcomes": read(ledger.outcome_counts, {}),
        "behind": plan.behind | {"vectors": model.missing},
        # What of the settings the index has not taken up yet, and what that costs; empty: nothing.
        "modelDiffers": model.reason,
        "cache": {
            "enabled": memory.cache.enabled,
            # All ready vectors; of these the cache keeps at most `maxEntries` that no chunk needs.
            "entries": read(vectors.count_ready, 0),
            "cached": read(vectors.count_cached, 0),
            "maxEntries": memory.cache.max_entries,
        },
        "fts": {"enabled": True, "available": True, "error": ""},
        "vector": {
            "enabled": vector.enabled,
            "available": vector.enabled and not vector_error,
            "dims": active.vector_dims if active else None,
            "extensionPath": driver.vec_path(vector.extension_path),
            "loadError": vector_error,
            "sqlite": f"{library.__name__} {library.sqlite_version}",
            "numpy": not lack_at_a_glance("numpy"),
            "wanted": backlog.pending,
            "ready": backlog.ready,
            # With how many a question is compared exactly, at least: chosen by their bits; null: with all.
            "compared": read(lambda reader: _compared(reader, active), None),
            "failed": backlog.failed,
            # The first of them; `memline index --json` lists more.
            "failures": [{"path": path or "", "reason": why} for _, why, path in failed],
            "table": bool(active and not vector_error),
        },
        "batch": _batch_json(rules, batch, plan.index.open_batches),
        "breakers": open_breakers,
        "spending": spending(settings),
        "ceiling": read(lambda reader: ceiling(reader, settings), None),
        "loopErrors": [{"part": part, **entry} for part, entry in sorted(errors.items())],
        "fallback": stand_in or fallback,
        "identity": _identities_json(active, target),
    }


def _batch_json(rules: Batch, batch: Health, open_batches: int) -> dict[str, Any]:
    return {
        "enabled": rules.enabled,
        "failures": batch.failures,
        "limit": rules.failure_limit,
        "wait": rules.wait,
        "minTexts": rules.min_texts,
        "concurrency": rules.concurrency,
        "pollIntervalMs": rules.poll_interval_ms,
        "timeoutMs": rules.timeout_minutes * 60_000,
        "lastError": batch.reason,
        "open": open_batches,
    }


def _compared(reader: Connection, active: identities.IdentityRow | None) -> int | None:
    return bits.NEAREST if active and bits.centre_of(reader, active.id) else None


def _identities_json(
    active: identities.IdentityRow | None, target: identities.IdentityRow | None
) -> dict[str, Any] | None:
    if not active and not target:
        return None
    is_building = bool(active and target and active.id != target.id)
    return {"active": _identity_json(active), "target": _identity_json(target), "building": is_building}


def _identity_json(row: identities.IdentityRow | None) -> dict[str, Any] | None:
    if row is None:
        return None
    identity = row.identity
    dims = row.vector_dims or identity.dims or None
    return {"provider": identity.provider, "model": identity.model, "dims": dims, "key": identity.key[:12]}
