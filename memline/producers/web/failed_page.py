"""Show the texts that got no vector, by the provider's words, and try them again."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

from memline.producers.web.page import Data, Page, View, command_line
from memline.producers.web.search_page import note_url
from memline.shared.config.schema import AgentSettings
from memline.shared.index import driver, identities
from memline.shared.values import value

#: Texts of a group that are named.
SHOWN = 50

_FAILED = (
    "SELECT vectors.error, vectors.attempts, ifnull(jobs.token, ''), ifnull(files.path, ''),"
    " ifnull(min(chunks.start_line), 0), ifnull(chunks.end_line, 0)"
    " FROM vectors LEFT JOIN jobs ON jobs.id = vectors.job"
    " LEFT JOIN chunks ON chunks.text_hash = vectors.text_hash LEFT JOIN files ON files.id = chunks.file_id"
    " WHERE vectors.identity_id = ? AND vectors.state = 'failed' AND vectors.active = 1"
    " GROUP BY vectors.id ORDER BY vectors.error, files.path, chunks.start_line"
)


@value
class FailedText:
    """A text that got no vector."""

    attempts: int
    #: The job that wants it; empty for a live edit.
    job: str
    #: Empty where no file has it any more.
    path: str
    first: int
    last: int
    url: str


@value
class Group:
    """The texts of an agent that failed with the same words."""

    agent: str
    #: The provider's own words.
    error: str
    count: int
    texts: tuple[FailedText, ...]


def _failed(view: View) -> Data:
    chosen = view.query.get("agent", "")
    agents = [view.agent(chosen)] if chosen else list(view.agents)
    groups = [group for settings in agents for group in _groups(settings)]
    return {
        "groups": sorted(groups, key=lambda group: -group.count),
        "shown": SHOWN,
        "names": [settings.agent for settings in view.agents],
        "chosen": chosen,
        "command": command_line("--agent" * bool(chosen), chosen, "status", "--verbose"),
    }


def _groups(settings: AgentSettings) -> Iterator[Group]:
    with driver.reading_if_any(settings.index_path) as reader:
        target = identities.target(reader) if reader is not None else None
        rows = reader.execute(_FAILED, (target.id,)).fetchall() if reader and target else []
    for error, found in groupby(rows, key=itemgetter(0)):
        texts = [_text(settings.agent, row) for row in found]
        yield Group(agent=settings.agent, error=error, count=len(texts), texts=tuple(texts[:SHOWN]))


def _text(agent: str, row: tuple[Any, ...]) -> FailedText:
    _, attempts, job, path, first, last = row
    url = note_url(agent, path, first, last) if path else ""
    return FailedText(attempts=attempts, job=job, path=path, first=first, last=last, url=url)


PAGES = (Page(path="/failed", title="Failed texts", template="failed.html", data=_failed, is_in_nav=False),)
