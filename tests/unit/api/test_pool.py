import threading

import anyio
import pytest

from memline.producers.api.calls import Overloaded, Pool


@pytest.fixture
def held():
    """What calls wait for, for as long as the test lasts."""
    held = threading.Event()
    yield held
    held.set()


def test_the_result_and_the_error_of_a_call_are_passed_on():
    calls = Pool(1, timeout_s=60)

    assert anyio.run(calls.run, lambda: 5) == 5
    with pytest.raises(ZeroDivisionError):
        anyio.run(calls.run, lambda: 1 / 0)


def test_a_call_that_takes_too_long_is_not_waited_for(held):
    with pytest.raises(Overloaded, match=r"no answer within 0.05 s"):
        anyio.run(Pool(1, timeout_s=0.05).run, held.wait)
