import fakeredis
import pytest
from dramatiq import Message
from dramatiq.broker import MessageProxy
from dramatiq.brokers import redis as dramatiq_redis

from memline.shared.errors import IndexFault, IndexUnwritable, QueueError
from memline.shared.packages import install_command
from memline.shared.queue.redis_broker import FleetBroker
from memline.shared.queue.redis_scripts import CHANGES
from memline.shared.queue.routes import MESSAGE_RETRIES
from tests.unit.queue.conftest import URL


def test_a_dramatiq_whose_private_parts_have_changed_is_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert all(part in dramatiq_redis._scripts["dispatch"] for part in CHANGES)
    monkeypatch.setitem(dramatiq_redis._scripts, "dispatch", b"return 1")

    with pytest.raises(QueueError, match="dramatiq") as error:
        FleetBroker(URL, middleware=[])

    assert error.value.hint == install_command("dramatiq>=2.2,<2.3")


@pytest.mark.parametrize(
    ("actor", "error", "is_kept"),
    [
        ("store_vectors", IndexUnwritable("the disk is full"), True),
        ("embed_failed", IndexUnwritable("the disk is full"), True),
        ("store_vectors", IndexFault("locked"), False),
        ("store_files", IndexUnwritable("the disk is full"), False),
    ],
)
def test_an_answer_that_was_paid_for_waits_for_the_disk_however_long(
    redis_server: fakeredis.FakeRedis,
    monkeypatch: pytest.MonkeyPatch,
    actor: str,
    error: Exception,
    is_kept: bool,
) -> None:
    broker = FleetBroker(URL, middleware=[])
    moved: list[str] = []
    monkeypatch.setattr(broker, "_move", lambda keys, args: moved.append(keys[2]))
    options = {"retries": MESSAGE_RETRIES}
    message = MessageProxy(Message(queue_name="store", actor_name=actor, args=(), kwargs={}, options=options))
    message.stuff_exception(error)

    for _ in range(5):
        broker.retry_or_dead_letter("store", "one", message)

    assert moved == [broker.key("store") + (".delayed" if is_kept else ".XQ")] * 5
