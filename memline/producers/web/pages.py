"""Collect what the five pages show."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing

import msgspec
from starlette.datastructures import QueryParams

from memline.producers.api.calls import Calls
from memline.producers.reports.jobs import listed
from memline.producers.reports.state import AgentState, State, StateReader, to_json
from memline.producers.web.rendering import command
from memline.shared.config.schema import AgentSettings
from memline.shared.index import driver, identities, ledger, vectors
from memline.shared.index.accounts import AccountFile
from memline.shared.queue import dead_letters
from memline.shared.scheduling.minutes import last_day
from memline.shared.search.request import search_request
from memline.shared.search.results import pattern_of

#: Characters of a question.
MAX_QUESTION = 10_000

#: Hits of a search, files of a list, failed texts, jobs and batches that have ended, and messages of a group,
#: at most.
HITS, FILES, FAILED, ENDED, MESSAGES = 10, 500, 100, 20, 5

#: Minutes of a step of the chart, and the height of each of its two curves.
STEP_MIN, HEIGHT = 10, 40

#: What a page shows, by the names of its template.
Data = Mapping[str, object]


class View(msgspec.Struct, frozen=True, kw_only=True):
    """One request for a page."""

    tools: Calls
    state: StateReader
    query: QueryParams

    def command(self, *words: str, agent: str = "") -> str:
        """Write the equal command, as it works in any folder."""
        return command(self.tools, *words, agent=agent)

    def agent(self) -> AgentSettings:
        """Return the agent that the address names, or the default one. Raises UnknownAgent."""
        return self.tools.memory(self.query.get("agent") or self.tools.default_agent).settings


def overview(view: View) -> Data:
    """Show what is wrong, the agents, the providers, and what was spent."""
    state = view.state.read()
    report = to_json(state)
    return {
        **{name: report[name] for name in ("queues", "workers", "providers", "spending")},
        "at": state.at,
        "findings": state.findings,
        "agents": [_agent_row(each) for each in state.agents],
        "rate": sum(each.vectors_per_second for each in state.agents),
        "chart": _chart(view, state),
        "command": view.command("status"),
    }


def _chart(view: View, state: State) -> Data | None:
    """Draw a day of what was pending, and below it of what was embedded; None where nothing was."""
    settings = view.tools.settings
    # Texts of a key that was removed wait for nothing.
    agents = [each.settings for each in state.agents if settings.queue or each.choice.identity]
    with closing(AccountFile(settings.account_path)) as file:
        minutes, waiting = last_day(file, {str(each.index_path) for each in agents}, state.at)
    starts = range(0, len(minutes), STEP_MIN)
    embedded = [sum(minutes[start : start + STEP_MIN]) for start in starts]
    pending = [max(waiting[start : start + STEP_MIN]) for start in starts]
    if not any(embedded) and not any(pending):
        return None
    return {
        "width": len(starts),
        "embedded": sum(embedded),
        "fastest": max(embedded),
        "pending": waiting[-1],
        "most": max(pending),
        "curves": {"pending": _steps(pending, HEIGHT), "embedded": _steps(embedded, 2 * HEIGHT + 4)},
    }


def _steps(values: Sequence[int], floor: int) -> str:
    """Return the path of an area with a step for each value, above its floor."""
    scale = HEIGHT / max(*values, 1)
    steps = (f"V{floor - value * scale:.4g}H{at}" for at, value in enumerate(values, 1))
    return f"M0 {floor}{''.join(steps)}V{floor}Z"


def _agent_row(each: AgentState) -> Data:
    choice = each.target.identity if each.fallback and each.target else each.choice
    # A model that no run has taken up yet has no backlog.
    pending = each.model.missing if each.model.reason else each.backlog.in_progress
    return {
        "agent": each.settings.agent,
        "workspace": str(each.settings.workspace),
        "embedder": f"{choice.provider} {choice.model}".strip(),
        "files": each.files,
        "behind": each.plan.changes.count,
        "ready": each.backlog.ready,
        "wanted": pending if each.model.missing else 0,
        "failed": each.backlog.failed,
        "has_index": each.has_index,
        "error": each.fault.message if each.fault else "",
    }


def search(view: View) -> Data:
    """Show the hits of a question."""
    settings, question = view.agent(), view.query.get("q", "").strip()[:MAX_QUESTION]
    data = {"names": view.tools.agents, "chosen": settings.agent, "question": question, "answer": None}
    if not question:
        return data
    request = search_request(question, max_results=HITS)
    answer = view.tools.memory(settings.agent).ask(request).to_json()
    return data | {
        "answer": answer,
        "hits": [hit | {"runs": tuple(_runs(hit["snippet"], hit["matched"]))} for hit in answer["results"]],
        "command": view.command("search", question, agent=settings.agent),
    }


def _runs(snippet: str, words: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Cut a text into runs, each with whether it matched."""
    pattern, end = pattern_of(words), 0
    for match in pattern.finditer(snippet) if pattern else ():
        yield snippet[end : match.start()], False
        yield match[0], True
        end = match.end()
    yield snippet[end:], False


def jobs(view: View) -> Data:
    """Show the jobs and batches that are open, and the last ones that ended."""
    now, settings = time.time(), view.tools.settings
    reports = listed(view.tools.served, limit=ENDED, queue=settings.queue)
    return {
        "jobs": [each for each in reports if each["kind"] != "batch"],
        "batches": [each for each in reports if each["kind"] == "batch"],
        "now": now,
        "command": view.command("jobs"),
    }


def queue(view: View) -> Data:
    """Show the queues, the workers and the dead letters by their error."""
    state, url = view.state.read(), view.tools.settings.queue
    error = state.fleet.error if state.fleet and not state.fleet.queues else None
    found = {} if error or not url else dead_letters.by_error(dead_letters.listed(url))
    return {
        "report": to_json(state),
        "error": error.message if error else "",
        "dead": [(error, len(letters), letters[:MESSAGES]) for error, letters in found.items()],
        "has_queue": bool(url),
        "command": view.command("queue"),
    }


def files(view: View) -> Data:
    """Show the files of an agent with their outcomes, and the texts that failed."""
    settings = view.agent()
    outcome, path = (view.query.get(name, "").strip() for name in ("outcome", "path"))
    shown: dict[str, object] = {"files": [], "outcomes": {}, "failed": []}
    with driver.reading_if_any(settings.index_path) as reader:
        if reader is not None:
            target = identities.target(reader)
            shown = {
                "files": ledger.page(reader, outcome=outcome, path=path, count=FILES),
                "outcomes": ledger.outcome_counts(reader),
                "failed": vectors.failures(reader, target.id, FAILED) if target else [],
            }
    return shown | {
        "names": view.tools.agents,
        "agent": settings.agent,
        "outcome": outcome,
        "path": path,
        "most": FILES,
        "command": view.command("status", "--verbose", agent=settings.agent),
    }


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page: its path below ROOT, its title, and what it shows."""

    path: str
    title: str
    template: str
    data: Callable[[View], Data]
    #: Whether the script asks for it again while it is looked at.
    is_followed: bool = True


PAGES = (
    Page(path="/", title="Overview", template="overview.html", data=overview),
    Page(path="/search", title="Search", template="search.html", data=search, is_followed=False),
    Page(path="/jobs", title="Jobs", template="jobs.html", data=jobs),
    Page(path="/queue", title="Queue", template="queue.html", data=queue),
    Page(path="/files", title="Files", template="files.html", data=files),
)
