from memline.shared.queue.messages import AdvanceBatch, Sweep, Wire
from memline.workers import batch
from memline.workers.context import Context
from tests.unit.workers.conftest import work


def test_a_message_about_a_batch_that_is_gone_only_wakes_the_dispatcher(
    context: Context, sent: list[Wire]
) -> None:
    work(batch.advance_batch, AdvanceBatch(agent="main", token="gone"))

    assert sent == [Sweep(agent="main")]
