"""Show the texts that got no vector, by the provider's words; try them again, or leave them alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from memline.producers.web.page import Data, Page, View, command_line
from memline.producers.web.search_page import note_url
from memline.shared.config.schema import AgentSettings
from memline.shared.index import driver, identities, vectors
from memline.shared.queue.message_list import group_of

#: Texts of a group that are on a page.
SHOWN = 50

#: What is shown of a text: the job that wants it is empty for a live edit, the path where no file has it.
_FIELDS = ("attempts", "hash", "job", "path", "first", "last")

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
        texts = [dict(zip(_FIELDS, row[2:], strict=True)) for row in found[first : first + SHOWN]]
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


PAGES = (Page(path="/failed", title="Failed texts", group="Memory", template="failed.html", data=_failed),)
