"""Report one agent in the JSON contract of `memline status`, and what is well for `memline doctor`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from memline.producers.reports.state import AgentState, agent_state, state
from memline.shared.config.agents import Settings
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import NONE
from memline.shared.errors import IndexFault
from memline.shared.finding import OK, PROBLEM, Finding
from memline.shared.findings.check import check_common
from memline.shared.index import driver, ledger
from memline.shared.index.identities import IdentityRow
from memline.shared.packages import lack, lack_at_a_glance
from memline.shared.queue.fleet import fleet_at
from memline.shared.scheduling import health
from memline.shared.sources.outcomes import INDEXED
from memline.shared.words import counted


def report(
    settings: Settings, agent: AgentSettings, *, deep: bool = False, met: Sequence[Finding] = ()
) -> dict[str, Any]:
    """Collect what `memline status --json` says of an agent; arguments as in `reports.state.state`."""
    now = state(settings, [agent], deep=deep, met=met)
    (one,) = now.agents
    plan, choice = one.plan, one.choice
    about: dict[str, Any] = {
        "agentId": agent.agent,
        "status": _status(one) | _trouble(one) | {"spending": now.spending},
        "scan": {
            "totalFiles": plan.total_files,
            "issues": list(plan.discovery.issues),
            "leftOut": [{"path": path, "reason": reason} for path, reason in plan.discovery.left_out],
        },
        "findings": [each.to_json() for each in now.findings],
    }
    if deep:
        # OpenClaw's name of it, in the same report.
        failed = next((each for each in one.findings if each.subject == choice.provider), None)
        error, action = (failed.what, failed.action) if failed else ("", "")
        if choice.identity is None:
            error, action = choice.reason or "no embedding provider", choice.action
        about["embeddingProbe"] = {"ok": not error, "error": error, "action": action}
    return about


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


def _status(now: AgentState) -> dict[str, Any]:
    """Say what the index has, and what settings, provider, libraries and disk are."""
    settings, choice, backlog = now.settings, now.choice, now.backlog
    memory, rules = settings.memory, settings.memory.remote.batch
    vector = memory.store.vector
    vector_error = driver.vec_error(vector.extension_path) if vector.enabled else ""
    embeds = now.target.identity if now.fallback and now.target else choice
    modes = [mode for account in now.providers for mode in account["modes"]]
    batch = next((each for each in modes if each["mode"] == health.BATCH), {"failures": 0, "reason": ""})
    active, target = now.active, now.target
    rows = {"active": _identity(active), "target": _identity(target), "building": now.is_building}
    is_behind = now.plan.changes.count or now.model.missing or now.model.reason or now.is_building
    sources = [{"source": name, "files": files, "chunks": count} for name, files, count in now.sources]
    return {
        "backend": "builtin",
        "files": now.files,
        "chunks": now.chunks,
        "dirty": bool(is_behind),
        "workspaceDir": str(settings.workspace),
        "workspaceOrigin": settings.workspace_origin,
        "dbPath": str(settings.index_path),
        "provider": embeds.provider,
        "model": embeds.model,
        "requestedProvider": choice.requested,
        "sources": list(memory.sources),
        "extraPaths": [extra.path for extra in memory.extra_paths],
        "sourceCounts": sources,
        "outcomes": now.outcomes,
        "behind": {"files": now.plan.changes.count, "vectors": now.model.missing},
        "cache": {
            "enabled": memory.cache.enabled,
            # All ready vectors; of these the cache keeps at most `maxEntries` that no chunk needs.
            "entries": now.ready,
            "cached": now.cached,
            "maxEntries": memory.cache.max_entries,
        },
        "fts": {"enabled": True, "available": True, "error": ""},
        "vector": {
            "enabled": vector.enabled,
            "available": vector.enabled and not vector_error,
            "dims": active.vector_dims if active else None,
            "extensionPath": driver.vec_path(vector.extension_path),
            "loadError": vector_error,
            "numpy": not lack_at_a_glance("numpy"),
            "wanted": backlog.pending if now.model.missing else 0,
            "ready": backlog.ready,
            "failed": backlog.failed,
            # The first of them; `memline index --json` lists more.
            "failures": [{"path": path or "", "reason": why} for _, why, path in now.failed_texts],
        },
        "batch": {
            "enabled": rules.enabled,
            "failures": batch["failures"],
            "limit": rules.failure_limit,
            "wait": rules.wait,
            "minTexts": rules.min_texts,
            "concurrency": rules.concurrency,
            "pollIntervalMs": rules.poll_interval_ms,
            "timeoutMs": rules.timeout_minutes * 60_000,
            "lastError": batch["reason"],
            "open": len(now.batches),
        },
        "breakers": modes,
        "fallback": now.fallback,
        "identity": rows if active or target else None,
    }


def _trouble(now: AgentState) -> dict[str, Any]:
    trouble: dict[str, Any] = {}
    if (fault := now.fault) is not None:
        trouble = {"error": fault.message, "action": fault.hint}
    if now.providers:
        names = ("state", "reason", "action", "holdUntil")
        trouble["providerHealth"] = {name: now.providers[0][name] for name in names}
    return trouble


def _identity(row: IdentityRow | None) -> dict[str, Any] | None:
    if row is None:
        return None
    identity = row.identity
    dims = row.vector_dims or identity.dims or None
    return {"provider": identity.provider, "model": identity.model, "dims": dims, "key": identity.key[:12]}


def _ok(what: str, agent: str | None = None) -> Finding:
    return Finding(code="", level=OK, what=what, agent=agent)


def examine_common(settings: Settings, agents: Sequence[AgentSettings]) -> Iterator[Finding]:
    """Examine what all agents have in common: SQLite, this machine, Redis and the workers."""
    # The findings take a numpy that fits by its files for one that works.
    lack("numpy")
    library = driver.library()
    with closing(library.connect(":memory:")) as connection:
        yield _ok(f"SQLite {library.sqlite_version} through {library.__name__}, with full-text search (FTS5)")
        if not driver.load_vec(connection):
            yield _ok(f"sqlite-vec {connection.execute('SELECT vec_version()').fetchone()[0]}")
    yield from check_common(settings, agents)
    fleet = fleet_at(settings.queue) if settings.queue else None
    if fleet is not None and fleet.error is None and not fleet.missing(agents):
        workers = counted(len(fleet.workers), "worker")
        yield _ok(f"queue: {workers} in Redis, every queue that needs one is served")


def examine_agent(
    settings: Settings, agent: AgentSettings, *, deep: bool = False, met: Sequence[Finding] = ()
) -> Iterator[Finding]:
    """Examine one agent; `deep` as in `reports.state.agent_state`, `met`: what its backend met."""
    now = agent_state(settings, agent, deep=deep, met=met)
    yield from now.findings
    if now.has_index:
        counts = (now.files, "file"), (now.chunks, "chunk"), (now.backlog.ready, "vector")
        yield _ok(f"{', '.join(counted(*each) for each in counts)} in {agent.index_path}", agent.agent)
    choice, codes = now.choice, {each.code for each in now.findings}
    failing = any(each.level == PROBLEM and each.subject == now.choice.provider for each in now.findings)
    if choice.requested == NONE:
        yield _ok(f"keyword search only: {choice.reason}", agent.agent)
    elif choice.identity and not failing and not codes & {"provider_unusable", "fallback_active"}:
        is_asked = "asked for one vector" if deep else "not asked (memline doctor --deep)"
        yield _ok(f"embeds with {choice.provider} {choice.model}, {is_asked}", agent.agent)
