from __future__ import annotations

import fakeredis
import pytest

from shared.queue import server


@pytest.fixture
def redis_server(monkeypatch: pytest.MonkeyPatch) -> fakeredis.FakeRedis:
    """A Redis in memory that every client of this process talks to; a client to look into it."""
    fake = fakeredis.FakeServer()
    monkeypatch.setattr(server, "client", lambda *_, **__: fakeredis.FakeRedis(server=fake))
    return fakeredis.FakeRedis(server=fake)
