from contextlib import closing

import pytest

from memline.producers.actions import reindex_job
from memline.producers.reports.job_reports import NamedJob
from memline.shared.errors import QueueError
from memline.shared.index import jobs
from memline.shared.index.vectors import CANCELLED, PAUSED
from memline.shared.index_writer import IndexWriter
from memline.shared.scheduling import leases
from memline.shared.values import replace
from tests.support.index_rows import CAPS, MODEL_A, file_row, lease_all
from tests.support.workspace import Place

pytestmark = pytest.mark.place(files={"MEMORY.md": "# Notes\n\nThe queue is Redis.\n"})


def test_files_are_not_handed_over_without_a_queue(place: Place) -> None:
    with pytest.raises(QueueError):
        reindex_job.start(place.agent, "")


@pytest.mark.parametrize(("verb", "priority"), [("pause", PAUSED), ("cancel", CANCELLED)])
def test_a_job_that_is_held_ends_its_requests_that_no_worker_has_begun_to_send(
    place: Place, verb: str, priority: int
) -> None:
    with closing(IndexWriter.of(place.agent)) as writer:
        writer.retarget(MODEL_A)
        job = jobs.create(writer.connection, jobs.REINDEX, by="ann", now_ns=1, files=[("b.md", 1)])
        writer.store_file(file_row("a.md", "live"))
        writer.store_file(file_row("b.md", *(f"text {n}" for n in range(20))), job=job.token)
        requests = writer.lease(replace(CAPS, max_rows=7), credits=8, only_full=False)
        sent = next(each for each in requests if all(text.text != "live" for text in each.texts))
        assert writer.budget.may_send(sent.lease)

        named = NamedJob(settings=place.agent, job=job)
        assert reindex_job.change(named, verb, "", by="ann")["changed"]

        assert leases.tokens(writer.connection) == [sent.lease]
        assert writer.budget.was_sent(sent.lease)
        assert not any(writer.budget.may_send(each.lease) for each in requests)
        texts = {text.text for request in lease_all(writer) for text in request.texts}
        assert texts == {"live"}
        query = "SELECT count(*) FROM vectors WHERE state = 'wanted' AND priority = ?"
        assert place.rows(query, priority) == [(20 - len(sent.texts),)]
