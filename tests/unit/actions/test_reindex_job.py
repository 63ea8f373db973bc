import pytest

from memline.producers.actions import reindex_job
from memline.shared.errors import QueueError

pytestmark = pytest.mark.place(files={"MEMORY.md": "# Notes\n\nThe queue is Redis.\n"})


def test_files_are_not_handed_over_without_a_queue(place):
    with pytest.raises(QueueError):
        reindex_job.start(place.agent, "")
