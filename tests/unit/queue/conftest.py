import fakeredis
import pytest

from memline.shared.queue import redis_client

#: Nobody is there: the clients of these tests speak to a server in memory.
URL = "redis://127.0.0.1:6379/0"


@pytest.fixture
def redis_server(monkeypatch: pytest.MonkeyPatch) -> fakeredis.FakeRedis:
    """A Redis in memory that every client of this process talks to; a client to look into it."""
    fake = fakeredis.FakeServer()

    def client(url: str, **_: object) -> fakeredis.FakeRedis:
        name = ":".join(filter(None, [redis_client.NAMESPACE, url.partition("#")[2]]))
        return fakeredis.FakeRedis(server=fake, client_name=name)

    monkeypatch.setattr(redis_client, "client", client)
    return client(URL)
