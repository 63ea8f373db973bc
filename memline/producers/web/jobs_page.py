"""Show jobs (reindexes, first imports, model changes, backfills) and batches, and change them."""

from __future__ import annotations

import time
from typing import Any

from memline.producers.reports import batch_jobs
from memline.producers.reports import job_reports as reports
from memline.producers.reports.batch_jobs import SHORT
from memline.producers.web.page import Data, Page, PageMissing, View, command_line
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import JobUnknown
from memline.shared.index import driver

#: Jobs and batches that have ended and are shown.
ENDED = 100

#: Errors of a batch on a page.
PAGE = 100

#: What can be done with a job in a state.
_VERBS = {"running": ("jobs pause", "jobs cancel"), "paused": ("jobs resume", "jobs cancel")}


def _jobs(view: View) -> Data:
    opened = _opened(view)
    ended = reports.ended(view.agents, prices=view.site.settings.prices, limit=ENDED)
    known = {job["id"] for job in opened}
    rows = [*opened, *(job.to_json() for job in ended if job.id not in known)]
    return {"jobs": rows, "now": time.time(), "command": command_line("jobs", "ls")}


def _opened(view: View) -> list[dict[str, Any]]:
    """Return the open jobs, as the one reader of the state has them: counting what is left may cost."""
    states = [each.state for each in view.site.live.read(0.0).of(view.access.only)]
    return [job for state in states if state for job in state["jobs"]]


def _job(view: View) -> Data:
    name = view.path["job"]
    found = next((job for job in _opened(view) if job["id"] == name), None)
    if found is None:
        try:
            job = reports.named(view.agents, name)
        except JobUnknown as error:
            raise PageMissing(error.message, hint="memline jobs ls") from error
        prices = view.site.settings.prices
        found = reports.report(job, prices=prices, now=time.time()).to_json()
    return {
        "title": f"Job {found['id']}",
        "job": found,
        "batches": _batches_of(view, found["agentId"], found["id"]),
        "now": time.time(),
        "verbs": _VERBS.get(found["state"], ()),
        "command": command_line("jobs", "show", found["id"]),
    }


_JOBS_OF_BATCH = "SELECT DISTINCT jobs.token FROM vectors JOIN jobs ON jobs.id = vectors.job WHERE lease = ?"


def _jobs_of(settings: AgentSettings, batch: str) -> list[str]:
    """List the jobs whose texts an open batch has."""
    with driver.reading_if_any(settings.index_path) as reader:
        rows = reader.execute(_JOBS_OF_BATCH, (batch,)).fetchall() if reader is not None else []
    return [job for (job,) in rows]


def _batches_of(view: View, agent: str, job: str) -> list[dict[str, Any]]:
    """List the open batches that have texts of a job."""
    settings, now = view.agent(agent), time.time()
    found = batch_jobs.listed([settings], limit=0, only_open=True)
    return [each.to_json(now) for each in found if job in _jobs_of(settings, each.batch.token)]


def _batches(view: View) -> Data:
    now = time.time()
    found = [job.to_json(now) for job in batch_jobs.listed(view.agents, limit=ENDED)]
    return {"batches": found, "short": SHORT, "now": now, "command": command_line("batch", "ls")}


def _batch(view: View) -> Data:
    job = _named(view, view.path["batch"])
    now, first = time.time(), view.number("first", 0)
    errors = batch_jobs.error_rows(job, first=first, limit=PAGE + 1)
    batch = job.to_json(now)
    base = f"/batches/{batch['id']}?first="
    return {
        "title": f"Batch {batch['id'][:SHORT]}",
        "batch": batch,
        "jobs": _jobs_of(job.settings, job.batch.token),
        "now": now,
        "errors": errors[:PAGE],
        "before": f"{base}{max(0, first - PAGE)}" if first else "",
        "after": f"{base}{first + PAGE}" if len(errors) > PAGE else "",
        "command": command_line("batch", "show", batch["id"]),
    }


def _named(view: View, name: str) -> batch_jobs.Job:
    """Return the batch with this id, of an agent that the token opens. Raises PageMissing."""
    found = next((job for job in batch_jobs.matching(view.agents, name) if job.batch.token == name), None)
    if found is None:
        raise PageMissing(f"there is no batch {name[:80]!r}", hint="memline batch ls")
    return found


PAGES = (
    Page(path="/jobs", title="Jobs", template="jobs.html", data=_jobs),
    Page(path="/jobs/{job}", title="Job", template="job.html", data=_job, is_in_nav=False),
    Page(path="/batches", title="Batches", template="batches.html", data=_batches),
    Page(path="/batches/{batch}", title="Batch", template="batch.html", data=_batch, is_in_nav=False),
)
