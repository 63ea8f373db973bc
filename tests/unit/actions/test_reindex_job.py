import pytest

from memline.producers.actions import reindex_job
from memline.producers.actions.reindex_job import QueueError
from tests.support.workspace import Place

pytestmark = pytest.mark.place(files={"MEMORY.md": "# Notes\n\nThe queue is Redis.\n"})


def test_an_agent_without_an_index_has_no_progress(place: Place) -> None:
    assert reindex_job.progress(place.agent)["vectors"] is None


def test_the_progress_of_a_complete_index_has_no_time_left(place: Place) -> None:
    place.index()

    progress = reindex_job.progress(place.agent)

    assert progress["vectors"]["wanted"] == 0
    assert (progress["etaSeconds"], progress["paused"]) == (None, False)


def test_files_that_are_not_read_yet_are_part_of_the_progress(place: Place) -> None:
    place.index()
    place.write("memory/new.md", "# New\n")

    assert reindex_job.progress(place.agent)["filesBehind"] == 1


def test_cancelling_where_nothing_runs_cancels_nothing(place: Place) -> None:
    nothing = {"agentId": "main", "ids": [], "vectors": 0, "batches": 0, "messages": 0, "files": 0}

    assert reindex_job.cancel_all(place.agent, "") == nothing
    assert not place.index_path.exists()
    place.index()
    assert reindex_job.cancel_all(place.agent, "") == nothing


def test_files_are_not_handed_over_without_a_queue(place: Place) -> None:
    with pytest.raises(QueueError):
        reindex_job.start(place.agent, "")
