import fakeredis
import pytest

from memline.shared.config.installation import QueueAddress
from memline.shared.queue import redis_client

#: Nobody is there: the clients of these tests speak to a server in memory.
URL = QueueAddress("redis://127.0.0.1:6379/0")


class Client(fakeredis.FakeRedis, redis_client.FleetClient):
    """A fleet's client of a server in memory."""


@pytest.fixture
def redis_server(monkeypatch):
    """A Redis in memory that every client of this process talks to; a client to look into it."""
    fake = fakeredis.FakeServer()

    def client(*_, **__):
        return Client(server=fake)

    monkeypatch.setattr(redis_client, "client", client)
    return client(URL)
