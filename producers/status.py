"""What `memline status` shows of one agent: index, provider, vectors, and what is not as it should be."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from producers import breakers
from shared.config.schema import AgentSettings
from shared.embedders.choice import Choice, choose
from shared.errors import IndexFault, IndexMissing, MemlineError
from shared.index import batches, chunks, driver, fts, health, identity, ledger, meta, vec, vectors
from shared.index.plan import Known, Plan, ledger_of, look
from shared.index.vectors import Backlog

if TYPE_CHECKING:
    from sqlite3 import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Whether the provider embeds, asked for real (`status --deep`)."""

    ok: bool
    error: str = ""
    action: str = ""


def collect(settings: AgentSettings, *, deep: bool = False) -> dict[str, Any]:
    """The status of an agent in the shape of the JSON contract. Only reads."""
    choice = choose(settings)
    try:
        with driver.reading(settings.index_path) as reader:
            status = _of_index(reader, settings, choice)
    except IndexMissing:
        status = _of_nothing(settings, choice)
    except IndexFault as error:
        status = _of_nothing(settings, choice)
        status["status"]["error"] = error.message
        status["status"]["action"] = error.hint
    if deep:
        found = probe(choice)
        status["embeddingProbe"] = {"ok": found.ok, "error": found.error, "action": found.action}
    return status


def probe(choice: Choice) -> Probe:
    """Embed one word with the provider of `choice`."""
    if choice.identity is None:
        return Probe(ok=False, error=choice.reason, action=choice.action)
    try:
        with closing(choice.build()) as embedder:
            embedder.embed_query("ping", timeout_s=10)
    except MemlineError as error:
        return Probe(ok=False, error=error.message, action=error.hint)
    return Probe(ok=True)


def _of_index(reader: Connection, settings: AgentSettings, choice: Choice) -> dict[str, Any]:
    plan = look(settings, choice, ledger_of(reader))
    active = identity.active(reader)
    target = identity.target(reader)
    backlog = vectors.backlog(reader, target.id) if target else Backlog()
    status = _frame(settings, choice, plan)
    sources = ledger.source_counts(reader)
    there = {source for source, _, _ in sources}
    # A source that is switched on and holds nothing yet is told as well.
    sources = sorted([*sources, *((name, 0, 0) for name in settings.memory.sources if name not in there)])
    outcomes = ledger.outcome_counts(reader)
    body = status["status"]
    body["files"] = sum(files for _, files, _ in sources)
    body["chunks"] = chunks.count(reader)
    body["sourceCounts"] = [
        {"source": source, "files": files, "chunks": count} for source, files, count in sources
    ]
    body["outcomes"] = outcomes
    body["cache"]["entries"] = vectors.cached_entries(reader)
    body["vector"].update(
        dims=active.vector_dims if active else None,
        wanted=backlog.pending,
        ready=backlog.ready,
        failed=backlog.failed,
    )
    load_error = body["vector"]["loadError"]
    body["vector"]["table"] = bool(active and not load_error and vec.usable(reader, active.id))
    body["identity"] = _identities(active, target)
    body["fallback"] = meta.get(reader, meta.FALLBACK) or body["fallback"]
    body["breakers"] = breakers.of_index(reader, settings)
    if target:
        body["batch"].update(_batches(reader, target.identity.provider))
        state = health.read(reader, target.identity.provider)
        body["providerHealth"] = {
            "state": "paused" if state.paused else "ok",
            "reason": state.reason,
            "action": state.action,
            "holdUntil": state.hold_until or None,
        }
    return status


def _batches(reader: Connection, provider: str) -> dict[str, Any]:
    state = health.read(reader, provider, health.BATCH)
    return {
        "failures": state.failures,
        "lastError": state.reason,
        "open": len(batches.open_batches(reader)),
    }


def _of_nothing(settings: AgentSettings, choice: Choice) -> dict[str, Any]:
    """An agent without an index: what is on the disk, all of it new."""
    return _frame(settings, choice, look(settings, choice, Known()))


def _frame(settings: AgentSettings, choice: Choice, plan: Plan) -> dict[str, Any]:
    memory = settings.memory
    with closing(driver.library().connect(":memory:")) as connection:
        vector_error = (
            driver.load_vec(connection, memory.store.vector.extension_path)
            if memory.store.vector.enabled
            else ""
        )
        fts_error = fts.missing(connection)
    body = {
        "backend": "builtin",
        "files": 0,
        "chunks": 0,
        "dirty": plan.is_behind,
        "workspaceDir": str(settings.workspace),
        "dbPath": str(settings.index_path),
        "provider": choice.provider,
        "model": choice.model,
        "requestedProvider": choice.requested,
        "providerReason": choice.reason,
        "providerAction": choice.action,
        "sources": list(memory.sources),
        "extraPaths": [extra.path for extra in memory.extra_paths],
        "sourceCounts": [],
        "outcomes": {},
        "behind": plan.behind,
        "cache": {
            "enabled": memory.cache.enabled,
            "entries": 0,
            "maxEntries": memory.cache.max_entries,
        },
        "fts": {"enabled": True, "available": not fts_error, "error": fts_error},
        "vector": {
            "enabled": memory.store.vector.enabled,
            "available": memory.store.vector.enabled and not vector_error,
            "dims": None,
            "extensionPath": driver.vec_path(memory.store.vector.extension_path),
            "loadError": vector_error,
            "sqlite": f"{driver.library().__name__} {driver.library().sqlite_version}",
            "numpy": _has_numpy(),
            "wanted": 0,
            "ready": 0,
            "failed": 0,
        },
        "batch": {
            "enabled": memory.remote.batch.enabled,
            "failures": 0,
            "limit": memory.remote.batch.failure_limit,
            "wait": memory.remote.batch.wait,
            "minTexts": memory.remote.batch.min_texts,
            "concurrency": memory.remote.batch.concurrency,
            "pollIntervalMs": memory.remote.batch.poll_interval_ms,
            "timeoutMs": memory.remote.batch.timeout_minutes * 60_000,
            "lastError": "",
            "open": 0,
        },
        "breakers": [],
        "fallback": (
            {"from": choice.fallback_from, "reason": choice.reason} if choice.fallback_from else None
        ),
        "identity": None,
    }
    return {
        "agentId": settings.agent,
        "status": body,
        "scan": {"totalFiles": plan.total_files, "issues": list(plan.discovery.issues)},
    }


def _identities(
    active: identity.IdentityRow | None, target: identity.IdentityRow | None
) -> dict[str, Any] | None:
    if active is None and target is None:
        return None

    def words(row: identity.IdentityRow | None) -> dict[str, Any] | None:
        if row is None:
            return None
        return {
            "provider": row.identity.provider,
            "model": row.identity.model,
            "dims": row.vector_dims or row.identity.dims or None,
            "key": row.identity.key[:12],
        }

    return {
        "active": words(active),
        "target": words(target),
        "building": bool(active and target and active.id != target.id),
    }


def _has_numpy() -> bool:
    from importlib.util import find_spec

    return find_spec("numpy") is not None


def digest(settings: AgentSettings, collected: dict[str, Any]) -> dict[str, Any]:
    """The part of a status that helps an agent: what is there to search, what is missing, what to do."""
    status = collected["status"]
    health = status.get("providerHealth", {})
    behind = status["behind"]
    warning, action = status.get("error", ""), status.get("action", "")
    if not settings.memory.enabled:
        warning, action = "memory search is disabled for this agent", "set memorySearch.enabled to true"
    elif not warning and health.get("state") == "paused":
        warning, action = health["reason"], health["action"]
    elif not warning and status["provider"] == "none" and status["requestedProvider"] not in ("auto", "none"):
        warning, action = status["providerReason"], status["providerAction"]
    elif not warning and any(behind.values()):
        warning = f"{behind['files']} files and {behind['vectors']} vectors are not in the index yet"
        action = "memline index, or leave memline up running"
    return {
        "agentId": settings.agent,
        "enabled": settings.memory.enabled,
        "provider": status["provider"],
        "model": status["model"],
        "mode": "hybrid" if status["vector"]["ready"] and status["provider"] != "none" else "keyword",
        "files": status["files"],
        "chunks": status["chunks"],
        "sources": status["sources"],
        "sourceCounts": status["sourceCounts"],
        "vectors": {name: status["vector"][name] for name in ("ready", "wanted", "failed")},
        "stale": status["dirty"],
        "behind": behind,
        "append": settings.memory.append.enabled,
        "warning": warning,
        "action": action,
    }
