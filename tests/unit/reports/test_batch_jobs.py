from contextlib import closing

import pytest

from memline.producers.reports import batch_jobs
from memline.shared.errors import IndexFault
from memline.shared.index import driver
from tests.support.workspace import Place

pytestmark = pytest.mark.place(files={"MEMORY.md": "# Notes\n\nThe queue is Redis.\n"})


@pytest.mark.parametrize("what", ["listed", "named", "matching"])
def test_an_index_that_cannot_be_read_is_told_as_a_fault(place: Place, what: str) -> None:
    agent = place.agent
    with closing(driver.open_writer(agent.index_path)) as connection:
        connection.execute("DROP TABLE batches")
    asked = {
        "listed": lambda: batch_jobs.listed([agent], limit=10),
        "named": lambda: batch_jobs.named([agent], "5f3a"),
        "matching": lambda: batch_jobs.matching([agent], "5f3a"),
    }

    with pytest.raises(IndexFault):
        asked[what]()
