"""Ask for reindexes and control jobs: each is a row of the index, which the store worker works off."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from memline.producers.reports.job_reports import NamedJob
from memline.shared.batches import plan
from memline.shared.clock import SystemClock
from memline.shared.config.installation import QueueAddress
from memline.shared.config.schema import AgentSettings
from memline.shared.findings.facts import fleet_summary
from memline.shared.index import jobs
from memline.shared.index.jobs import Job
from memline.shared.index_writer import IndexWriter
from memline.shared.queue.fleet_workers import Fleet, wake
from memline.shared.sync.plan import plan_of


def start(settings: AgentSettings, url: QueueAddress, *, force: bool = False) -> dict[str, Any]:
    """Write a reindex of an agent down as a job and wake the fleet; texts of cancelled jobs are part of it.

    A reindex that is under way already is not asked for twice. Raises QueueError without a queue, or when it
    cannot be reached; then no job is made.
    """
    with Fleet(url) as fleet:
        plan = plan_of(settings)
        files = plan.files(force=force)
        with closing(IndexWriter.of(settings)) as writer, writer.transaction() as (connection, _):
            resumed = jobs.take_up(connection)
            # The same reindex is one job, unless a file was saved since it was asked for.
            new = plan.outside_jobs(files, jobs.waiting_files(connection))
            equal = (each for each in jobs.open_jobs(connection) if _is_equal(each, force))
            job = None if new else next(equal, None)
            if under_way := job is not None:
                files = jobs.files_of(connection, job.id)
            else:
                job = jobs.create(
                    connection,
                    jobs.REINDEX,
                    by=jobs.asker(),
                    now_ns=SystemClock().now_ns(),
                    what="all files" if force else "",
                    files=files,
                    force=force,
                )
        fleet.wake(settings.agent)
    summary = fleet_summary(url, [settings])
    return {
        "agentId": settings.agent,
        "id": job.token,
        "files": len(files),
        "underWay": under_way,
        "takenUp": resumed,
        "missing": list(summary.missing) if summary else [],
    }


def _is_equal(job: Job, force: bool) -> bool:
    """Tell whether an open job reads what another reindex would."""
    return job.kind == jobs.REINDEX and job.state == jobs.RUNNING and bool(job.force) == force


def change(job: NamedJob, verb: str, url: QueueAddress) -> dict[str, Any]:
    """Pause, resume or cancel a job (`verb`), and wake the dispatcher; says whether that changed anything.

    With cancel: nothing more of it is read or sent to the provider. What is indexed stays, vectors of
    requests in flight are kept, live edits go on. Batches that hold nothing else are cancelled at the
    provider. Its texts stay known as missing; `memline reindex` or `memline index` takes them up.
    """
    settings = job.settings
    body: dict[str, Any] = {"agentId": settings.agent, "id": job.job.token, "changed": False}
    with closing(IndexWriter.of(settings)) as writer, writer.transaction() as (connection, now):
        if verb == "cancel":
            given_up = jobs.cancel(connection, job.job, now)
            is_changed = given_up is not None
            files, texts = given_up or (0, 0)
            batches = plan.cancel_idle(connection, now) if is_changed else 0
            body |= {"files": files, "vectors": texts, "batches": batches}
        else:
            state = jobs.PAUSED if verb == "pause" else jobs.RUNNING
            is_changed = jobs.change(connection, job.job, state)
        after = jobs.by_token(connection, job.job.token)
        body |= {"changed": is_changed, "state": after.state if after else ""}
    if is_changed:
        wake(url, settings.agent)
    return body
