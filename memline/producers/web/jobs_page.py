"""Show jobs (reindexes, first imports, model changes, backfills) and batches, and change them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from memline.producers.reports import batch_jobs
from memline.producers.reports import job_reports as reports
from memline.producers.reports.batch_jobs import SHORT
from memline.producers.web.charts_page import Kind, charts, rate
from memline.producers.web.listing import by, listing
from memline.producers.web.page import Data, Page, PageMissing, View, command_line
from memline.producers.web.rendering import ROOT, number
from memline.producers.web.strip import address
from memline.shared import sampling
from memline.shared.errors import JobUnknown
from memline.shared.figures.points import LABEL, SPANS
from memline.shared.index import driver, jobs
from memline.shared.words import span

#: Jobs and batches that have ended and are shown.
ENDED = 500

#: Errors of a batch, and files of a job, on a page.
PAGE = 100

#: Columns of the lists, and what they are ordered by.
_JOB_KEYS = by(
    job="id", agent="agentId", what="name", by="askedBy", state="state", files="files.total",
    texts="texts.total", rate="textsPerSecond", eta="etaSeconds", cost="cost.soFar", total="cost.expected",
    age=lambda job: -job["createdAt"],
)  # fmt: skip
_BATCH_KEYS = by(
    batch="id", agent="agentId", name="jobId", state="progress", rows="rows", stored="stored",
    failed="failed", age="ageSeconds", poll="nextLookAt", price="cost",
)  # fmt: skip

#: What can be done with a job in a state.
_VERBS = {"running": ("jobs pause", "jobs cancel"), "paused": ("jobs resume", "jobs cancel")}


def _jobs(view: View) -> Data:
    opened = _opened(view)
    ended = reports.ended(view.agents, prices=view.site.settings.prices, limit=ENDED)
    known = {job["id"] for job in opened}
    rows = [*opened, *(job.to_json() for job in ended if job.job.token not in known)]
    waits = {job["id"]: _waits(view, job, _batches_of(view, job)) for job in opened}
    table = listing(view, rows, _JOB_KEYS)
    return {"jobs": table, "waits": waits, "now": time.time(), "command": command_line("jobs", "ls")}


def _opened(view: View) -> list[dict[str, Any]]:
    """Return the open jobs, as the one reader of the state has them: counting what is left may cost."""
    states = [each.state for each in view.site.live.read(0.0).of(view.access.only)]
    return [job for state in states if state for job in state["jobs"]]


def _job(view: View) -> Data:
    try:
        name = view.path["job"]
        found = next((each for each in _opened(view) if each["id"] == name), None)
        # Without opening the indexes of all agents again and again.
        job = reports.named([view.agent(found["agentId"])] if found else view.agents, name)
        if found is None:
            found = reports.report(job, prices=view.site.settings.prices, now=time.time()).to_json()
    except JobUnknown as error:
        raise PageMissing(error.message, hint="memline jobs ls") from error
    first, now_s = view.number("first", 0), found["textsPerSecond"]
    files = reports.open_files(job, first=first, count=PAGE + 1)
    texts = Kind(
        label="Texts per second",
        words=number,
        series=rate(sampling.JOB_TEXTS, 1),
        least=1,
        now=lambda *_: now_s,
    )
    snapshot, agent, batches = view.site.live.read(), found["agentId"], _batches_of(view, found)
    age_s = snapshot.at - found["createdAt"]
    points = SPANS["hour" if age_s < 3_600 else "day" if age_s < 86_400 else "month"]
    return {
        "title": f"Job {found['id']}",
        "job": found,
        "batches": batches,
        "waits": _waits(view, found, batches),
        "charts": charts(view, snapshot, points, f"{agent}{LABEL}{found['id']}", (texts,)),
        "files": files[:PAGE],
        "texts": reports.TEXTS,
        "before": f"?first={max(0, first - PAGE)}" if first else "",
        "after": f"?first={first + PAGE}" if len(files) > PAGE else "",
        "now": time.time(),
        "verbs": _VERBS.get(found["state"], ()),
        "command": command_line("jobs", "show", found["id"]),
    }


def _waits(view: View, job: Mapping[str, Any], batches: Sequence[batch_jobs.Job]) -> list[tuple[str, str]]:
    """Say what a job that is not over waits for, each with the address of the page that shows it."""
    now, snapshot = time.time(), view.site.live.read()
    if job["state"] == jobs.PAUSED:
        at, by = next((each["at"], each["by"]) for each in job["history"][::-1] if each["event"] == "paused")
        return [(f"paused by {by} since {span(now - at)}", "")]
    if job["endedAt"] or not (job["texts"]["left"] or job["files"]["done"] < job["files"]["total"]):
        return []
    waits = [
        (
            f"in batch {each.batch.token[:SHORT]} since {span(now - each.batch.created_at)}",
            f"{ROOT}/batches/{each.batch.token}",
        )
        for each in batches
    ]
    # Its own batches are named; those of other jobs it does not wait for.
    found = snapshot.told(view.access.only)
    ours = (
        each
        for each in found
        if each.agent in (None, job["agentId"]) and (each.halts and each.code != "waiting_in_batch")
    )
    return waits + [(each.what, address(each, lambda _: view.is_owner)) for each in ours]


_JOBS_OF_BATCH = "SELECT DISTINCT jobs.token FROM vectors JOIN jobs ON jobs.id = vectors.job WHERE lease = ?"


def _jobs_of(job: batch_jobs.Job) -> list[str]:
    """List the jobs whose texts an open batch has."""
    with driver.reading_if_any(job.settings.index_path) as reader:
        rows = reader.execute(_JOBS_OF_BATCH, (job.batch.token,)).fetchall() if reader is not None else []
    return [name for (name,) in rows]


def _batches_of(view: View, job: Mapping[str, Any]) -> list[batch_jobs.Job]:
    """List the open batches that have texts of a job."""
    if not job["texts"]["left"]:
        return []
    found = batch_jobs.listed([view.agent(job["agentId"])], limit=0, only_open=True)
    return [each for each in found if job["id"] in _jobs_of(each)]


def _batches(view: View) -> Data:
    now = time.time()
    found = [job.to_json(now) for job in batch_jobs.listed(view.agents, limit=ENDED)]
    return {
        "batches": listing(view, found, _BATCH_KEYS),
        "short": SHORT,
        "now": now,
        "command": command_line("batch", "ls"),
    }


def _batch(view: View) -> Data:
    job = _named(view, view.path["batch"])
    now, first = time.time(), view.number("first", 0)
    errors = batch_jobs.error_rows(job, first=first, limit=PAGE + 1)
    batch = job.to_json(now)
    return {
        "title": f"Batch {batch['id'][:SHORT]}",
        "batch": batch,
        "jobs": _jobs_of(job),
        "now": now,
        "errors": errors[:PAGE],
        "before": f"?first={max(0, first - PAGE)}" if first else "",
        "after": f"?first={first + PAGE}" if len(errors) > PAGE else "",
        "command": command_line("batch", "show", batch["id"]),
    }


def _named(view: View, name: str) -> batch_jobs.Job:
    """Return the batch with this id, of an agent that the token opens. Raises PageMissing."""
    found = next((job for job in batch_jobs.matching(view.agents, name) if job.batch.token == name), None)
    if found is None:
        raise PageMissing(f"there is no batch {name[:80]!r}", hint="memline batch ls")
    return found


PAGES = (
    Page(path="/jobs", title="Jobs", group="Work", template="jobs.html", data=_jobs, tells=("jobs",)),
    Page(path="/jobs/{job}", title="Job", template="job.html", data=_job),
    Page(
        path="/batches",
        title="Batches",
        group="Work",
        template="batches.html",
        data=_batches,
        tells=("batches",),
    ),
    Page(path="/batches/{batch}", title="Batch", template="batch.html", data=_batch),
)
