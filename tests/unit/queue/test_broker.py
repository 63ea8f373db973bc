import logging

import dramatiq
import pytest

from memline.shared.config.installation import NO_QUEUE
from memline.shared.errors import MemlineError, QueueError
from memline.shared.queue import broker
from memline.shared.queue.broker import MessagePack, RedactMessages
from memline.shared.queue.redis_broker import on_redis


def test_a_broker_without_a_url_says_how_to_get_one():
    with pytest.raises(QueueError, match=r"queue\.url is not set") as error:
        on_redis(NO_QUEUE)

    assert "MEMLINE_QUEUE_URL" in error.value.hint and "memline up" in error.value.hint


def test_one_process_has_one_broker_for_as_long_as_it_runs():
    first = broker.in_process()

    assert broker.in_process() is first is dramatiq.get_broker()


def test_log_lines_of_dramatiq_name_a_message_and_hold_nothing_of_it():
    dramatiq.set_encoder(MessagePack())
    message = dramatiq.Message(
        queue_name="store", actor_name="store_files", args=("secret",), kwargs={}, options={}, message_id="m1"
    )
    record = logging.LogRecord("dramatiq", logging.ERROR, "", 0, "Failed %s.", (message,), None)

    assert RedactMessages().filter(record)
    assert record.getMessage() == "Failed store_files(m1)."


def test_an_error_that_is_raised_on_purpose_has_no_traceback():
    error = MemlineError("known")
    record = logging.LogRecord("dramatiq", logging.ERROR, "", 0, "Failed.", None, (type(error), error, None))

    assert not RedactMessages().filter(record)
