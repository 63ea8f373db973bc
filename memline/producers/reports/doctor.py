"""Examine an installation and its agents for `memline doctor`: the findings, and what is well."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

from memline.producers.reports.status import examine
from memline.shared.config.schema import AgentSettings, Settings
from memline.shared.embedders.choice import NONE
from memline.shared.errors import IndexFault
from memline.shared.finding import OK, Finding, Trouble
from memline.shared.findings.diagnosis import of_common, queue_of
from memline.shared.findings.facts import fleet_at
from memline.shared.index import driver
from memline.shared.packages import lack
from memline.shared.words import counted


def _ok(what: str, agent: str | None = None) -> Finding:
    return Finding(code="", level=OK, what=what, agent=agent)


def examine_common(
    settings: Settings, agents: Sequence[AgentSettings], warnings: Sequence[str] = ()
) -> Iterator[Finding]:
    """Examine what all agents have in common: SQLite, this machine, Redis and the workers.

    `warnings`: those of loading the configuration.
    """
    # The findings take a numpy that fits by its files for one that works.
    lack("numpy")
    library = driver.library()
    with closing(library.connect(":memory:")) as connection:
        yield _ok(f"SQLite {library.sqlite_version} through {library.__name__}, with full-text search (FTS5)")
        if not driver.load_vec(connection):
            yield _ok(f"sqlite-vec {connection.execute('SELECT vec_version()').fetchone()[0]}")
    found = of_common(settings, agents, warnings)
    yield from found
    fleet = fleet_at(queue_of(settings)) if settings.queue.url else None
    is_served = not any(each.code == "role_missing" for each in found)
    if fleet is not None and not isinstance(fleet, Exception) and is_served:
        yield _ok(
            f"queue: {counted(len(fleet.workers), 'worker')} in Redis, every queue that needs one is served"
        )


def examine_agent(
    settings: AgentSettings, *, deep: bool = False, queue: str = "", met: Sequence[Trouble] = ()
) -> Iterator[Finding]:
    """Examine one agent; `deep` and `queue` as in `reports.status.examine`, `met`: its backend's troubles."""
    name, troubles = settings.agent, [*met]
    try:
        with driver.reading_if_any(settings.index_path) as reader:
            verdict = reader.execute("PRAGMA quick_check(1)").fetchone()[0] if reader is not None else "ok"
        if verdict != "ok":
            details = {"reason": f"the index is damaged: {verdict}"}
            troubles.append(Trouble(code="index_damaged", details=details))
    except IndexFault:
        # Reading its rows meets it again, and says so.
        pass
    report, found = examine(settings, deep=deep, queue=queue, troubles=tuple(troubles))
    yield from found
    codes, body, probe = {each.code for each in found}, report["status"], report.get("embeddingProbe")
    if not codes & {
        "workspace_missing",
        "index_damaged",
        "index_newer",
        "index_unusable",
        "first_index_missing",
    }:
        counts = f"{counted(body['files'], 'file')}, {counted(body['chunks'], 'chunk')}"
        counts += f", {counted(body['vector']['ready'], 'vector')}"
        yield _ok(f"{counts} in {settings.index_path}", name)
    if body["provider"] == NONE:
        if body["requestedProvider"] == NONE:
            yield _ok(f"keyword search only: {body['providerReason']}", name)
    elif not codes & {"provider_fails", "fallback_active", "engine_missing"}:
        asked = "asked for one vector" if probe else "not asked (memline doctor --deep)"
        by = f" by {body['engine']['version']}" if body["engine"] else ""
        yield _ok(f"embeds with {body['provider']} {body['model']}{by}, {asked}", name)
