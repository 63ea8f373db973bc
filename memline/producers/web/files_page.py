"""Show the agents, the ledger of their files, the chunks of a file, texts without a vector, and sessions."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

from memline.producers.actions.perform import Done, audited
from memline.producers.calls.table import CALLS
from memline.producers.reports.estimate import estimate
from memline.producers.web.listing import Listing, asked
from memline.producers.web.page import Action, Data, Page, PageMissing, View, command_line
from memline.producers.web.rendering import ROOT, file_url, path_of
from memline.producers.web.search_page import note_url
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import IndexMissing, MemlineError
from memline.shared.index import driver, identities, ledger, vectors
from memline.shared.index.ledger import FileRecord
from memline.shared.queue.message_list import group_of

#: Files of a page, and chunks of a file that a page lists.
PAGE = 100
CHUNKS = 200

INDEX = CALLS["index"]


def _agents(view: View) -> Data:
    return {
        "cards": [_card(view, settings.agent) for settings in view.agents],
        "has_queue": view.site.has_queue,
    }


def _card(view: View, name: str) -> Data:
    """Return what is known of one agent, from its rows and its settings."""
    settings = view.agent(name)
    card: dict[str, object] = {
        "agent": name,
        "workspace": str(settings.workspace),
        "provider": settings.memory.provider,
        "index": str(settings.index_path),
        "vectors": {},
        "outcomes": {},
        # Provider and model of the vectors that are searched; empty without any.
        "identity": "",
        "cached": 0,
        "max_cached": settings.memory.cache.max_entries,
        "size": 0,
        "last_read": None,
        "error": "",
        # What the last run that was started here says.
        "run": view.site.runs.said(name),
        "files_url": f"{ROOT}/files?{urlencode({'agent': name})}",
    }
    figures = view.site.live.read().agents.get(name)
    if figures is not None and figures.state is not None:
        states = figures.state["vectors"]
        card["vectors"] = {each: states[each] for each in ("ready", "wanted", "leased", "failed")}
    try:
        with driver.reading_if_any(settings.index_path) as reader:
            if reader is None:
                return card
            active = identities.active(reader)
            size = 0
            for suffix in ("", "-wal"):
                with suppress(OSError):
                    size += os.stat(f"{settings.index_path}{suffix}").st_size
            last = driver.scalar(reader, "SELECT max(observed_ns) FROM files")
            return card | {
                "identity": f"{active.identity.provider} {active.identity.model}" if active else "",
                "outcomes": ledger.outcome_counts(reader),
                "cached": vectors.count_cached(reader),
                "size": size,
                "last_read": last / 1e9 if last else None,
            }
    except MemlineError as error:
        return card | {"error": error.message}


def _files(view: View) -> Data:
    settings = view.agent(view.query.get("agent", ""))
    where = {name: view.query.get(name, "").strip() for name in ("outcome", "source", "path")}
    first, (order, query) = view.number("first", 0), asked(view, ledger.ORDERS, "path")
    files: list[FileRecord] = []
    outcomes: dict[str, int] = {}
    with driver.reading_if_any(settings.index_path) as reader:
        if reader is not None:
            outcome, source, path = where.values()
            files = ledger.page(
                reader, outcome=outcome, source=source, path=path, first=first, count=PAGE + 1, order=order
            )
            outcomes = ledger.outcome_counts(reader)
    table = Listing(
        rows=files[:PAGE],
        columns=ledger.ORDERS,
        order=order,
        first=first,
        has_more=len(files) > PAGE,
        query=query | {"agent": settings.agent},
        size=PAGE,
    )
    return {
        "names": [each.agent for each in view.agents],
        "agent": settings.agent,
        "where": where,
        "outcomes": outcomes,
        "files": table,
        "urls": {file.path: file_url(settings.agent, file.path) for file in table.rows},
        "command": command_line("--agent", settings.agent, "status", "--verbose"),
    }


def _file(view: View) -> Data:
    settings = view.agent(view.query.get("agent", ""))
    path, first = view.query.get("path", ""), view.number("first", 0)
    # By the rules of `memory_get` for an agent's token: the chunks are the text of the note.
    if not view.is_owner:
        view.site.tools.get(view.access.caller(settings.agent), {"path": path, "from": 1, "lines": 1})
    with driver.reading_if_any(settings.index_path) as reader:
        if reader is None:
            raise IndexMissing("nothing is indexed yet", hint="memline index")
        found = ledger.page(reader, path=path, is_exact=True, count=1)
        if not found:
            raise PageMissing(f"{path[:200]!r} is not in the index", hint="look at the list of files")
        target = identities.target(reader)
        rows = reader.execute(_CHUNKS, (target.id if target else 0, path, first, CHUNKS + 1)).fetchall()
    more, rows = len(rows) > CHUNKS, rows[:CHUNKS]
    name = settings.agent
    chunks = [
        # The state of its vector: empty where nothing embeds.
        {"first": start, "last": end, "heading": heading, "text": text, "state": state or ""}
        | {"url": note_url(name, path, start, end)}
        for start, end, heading, text, state in rows
    ]
    here = file_url(name, path)
    return {
        "title": f"File {found[0].path}",
        "agent": name,
        "file": found[0],
        "chunks": chunks,
        "note": note_url(name, path),
        "before": f"{here}&first={max(0, first - CHUNKS)}" if first else "",
        "after": f"{here}&first={first + CHUNKS}" if more else "",
        "command": command_line("--agent", name, "get", path),
    }


_CHUNKS = (
    "SELECT start_line, end_line, heading, text, (SELECT state FROM vectors WHERE identity_id = ?"
    " AND vectors.text_hash = chunks.text_hash) FROM chunks"
    " WHERE file_id = (SELECT id FROM files WHERE path = ?) AND ordinal >= ? ORDER BY ordinal LIMIT ?"
)


#: Failed texts of a group that are on a page.
SHOWN = 50

#: What is shown of a text: the job that wants it is empty for a live edit, the path where no file has it.
_TEXT_FIELDS = ("attempts", "hash", "job", "path", "first", "last")

_FAILED = (
    "SELECT vectors.error, vectors.due, vectors.attempts, lower(hex(vectors.text_hash)),"
    " ifnull(jobs.token, '') AS job, ifnull(files.path, ''), ifnull(min(chunks.start_line), 0),"
    " ifnull(chunks.end_line, 0)"
    " FROM vectors LEFT JOIN jobs ON jobs.id = vectors.job"
    " LEFT JOIN chunks ON chunks.text_hash = vectors.text_hash LEFT JOIN files ON files.id = chunks.file_id"
    " WHERE vectors.identity_id = ? AND vectors.state = 'failed' AND vectors.active = 1"
    " AND ? IN ('', jobs.token) GROUP BY vectors.id ORDER BY files.path, chunks.start_line"
)


def _failed(view: View) -> Data:
    chosen, job = view.query.get("agent", ""), view.query.get("job", "")
    agents = [view.agent(chosen)] if chosen else list(view.agents)
    groups = [group for settings in agents for group in _groups(view, settings, job)]
    return {
        "groups": sorted(groups, key=lambda group: (group["is_left"], -group["count"])),
        "names": [settings.agent for settings in view.agents],
        "chosen": chosen,
        "job": job,
        "command": command_line("--agent" * bool(chosen), chosen, "status", "--verbose"),
    }


def _groups(view: View, settings: AgentSettings, job: str) -> Iterator[dict[str, Any]]:
    """Yield the texts of an agent that failed alike, a group at a time."""
    only, first = view.query.get("group", ""), view.number("first", 0)
    with driver.reading_if_any(settings.index_path) as reader:
        target = identities.target(reader) if reader is not None else None
        rows = reader.execute(_FAILED, (target.id, job)).fetchall() if reader and target else []
    groups: dict[tuple[str, bool], list[Any]] = {}
    for row in rows:
        groups.setdefault((group_of(row[0]), row[1] == vectors.LEFT_ALONE), []).append(row)
    for (name, is_left), found in groups.items():
        if only not in ("", name):
            continue
        address = f"?{urlencode({'agent': settings.agent, 'job': job, 'group': name})}&first="
        texts = [dict(zip(_TEXT_FIELDS, row[2:], strict=True)) for row in found[first : first + SHOWN]]
        for each in texts:
            place = settings.agent, each["path"], each["first"], each["last"]
            each["url"] = note_url(*place) if each["path"] else ""
        yield {
            "agent": settings.agent,
            "id": name,
            # The provider's own words, of the first text.
            "error": found[0][0],
            # A person left them alone: they are not tried again by themselves.
            "is_left": is_left,
            "count": len(found),
            "texts": texts,
            "before": f"{address}{max(0, first - SHOWN)}" if first else "",
            "after": f"{address}{first + SHOWN}" if first + SHOWN < len(found) else "",
        }


def _re_embed(view: View) -> Data:
    """Show what it costs to pay for every vector again; reading all files may take long."""
    settings = view.agent(view.query.get("agent", ""))
    began = time.monotonic()
    plan = estimate(settings, re_embed=True, prices=view.site.settings.prices)
    return {
        "agent": settings.agent,
        "plan": plan,
        "lines": plan.words(),
        "took_s": time.monotonic() - began,
        "command": command_line("--agent", settings.agent, "index", "--re-embed"),
    }


def _run(view: View) -> Done:
    """Begin a run in a thread of this process; what comes of it is said on the page of the agents."""
    asker = view.asker(is_of_one=True)
    (settings,) = asker.agents
    options = view.arguments(INDEX)
    with audited(INDEX, asker.by, settings.account_path) as line:
        line |= {"agent": settings.agent, **options}
        view.site.runs.start(view.site.tools.memory(settings.agent), **options)
    words = f"{settings.agent} is being indexed; what comes of it is said on the page of the agents."
    return Done(value=None, words=(words,))


ACTIONS = (Action(call=INDEX, run=_run, path=path_of(INDEX)),)


#: Transcripts of a page.
SESSIONS = 50


def _sessions(view: View) -> Data:
    settings = view.agent(view.query.get("agent", ""))
    first = view.number("first", 0)
    with driver.reading_if_any(settings.index_path) as reader:
        transcripts = (
            ledger.transcripts(reader, first=first, limit=SESSIONS + 1) if reader is not None else []
        )

    def address(first: int) -> str:
        return f"{ROOT}/sessions?{urlencode({'agent': settings.agent, 'first': first})}"

    return {
        "names": [each.agent for each in view.agents],
        "chosen": settings.agent,
        "transcripts": transcripts[:SESSIONS],
        "before": address(max(0, first - SESSIONS)) if first else "",
        "after": address(first + SESSIONS) if len(transcripts) > SESSIONS else "",
    }


PAGES = (
    Page(path="/agents", title="Agents", group="Memory", template="agents.html", data=_agents),
    Page(path="/files", title="Files", group="Memory", template="files.html", data=_files, tells=("files",)),
    Page(path="/file", title="File", template="file.html", data=_file),
    Page(path="/re-embed", title="Embed again", template="re_embed.html", data=_re_embed),
    Page(
        path="/sessions",
        title="Sessions",
        group="Memory",
        template="sessions.html",
        data=_sessions,
        tells=("sessions",),
    ),
    Page(path="/failed", title="Failed texts", group="Memory", template="failed.html", data=_failed),
)
