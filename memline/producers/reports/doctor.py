"""Examine an installation and its agents for `memline doctor`: the findings, and what is well."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

from memline.producers.reports.state import agent_state
from memline.shared.config.agents import Settings
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import NONE
from memline.shared.finding import OK, Finding
from memline.shared.findings.check import check_common
from memline.shared.index import driver
from memline.shared.packages import lack
from memline.shared.queue.fleet import fleet_at
from memline.shared.words import counted


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
    if choice.requested == NONE:
        yield _ok(f"keyword search only: {choice.reason}", agent.agent)
    elif choice.identity and not codes & {"provider_fails", "provider_unusable", "fallback_active"}:
        is_asked = "asked for one vector" if deep else "not asked (memline doctor --deep)"
        yield _ok(f"embeds with {choice.provider} {choice.model}, {is_asked}", agent.agent)
