import pytest
from dramatiq.brokers import redis as dramatiq_redis

from memline.shared.errors import QueueError
from memline.shared.packages import install_command
from memline.shared.queue import redis_broker
from memline.shared.queue.redis_broker import FleetBroker
from tests.unit.queue.conftest import URL


def test_a_dramatiq_whose_private_parts_have_changed_is_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert redis_broker._CALLERS_CLOCK in dramatiq_redis._scripts["dispatch"]
    monkeypatch.setitem(dramatiq_redis._scripts, "dispatch", b"return 1")

    with pytest.raises(QueueError, match="dramatiq") as error:
        FleetBroker(URL, middleware=[])

    assert error.value.hint == install_command("dramatiq>=2.2,<2.3")
