from typing import Any

import fakeredis
import msgspec
import pytest

from memline.shared.queue import messages
from memline.shared.queue.messages import ChunkFiles, Wire
from memline.shared.queue.replies import cancel_jobs

URL = "redis://127.0.0.1:6379/0"


def chunk(*paths: str, agent: str = "main", job: str = "5f3a") -> ChunkFiles:
    return ChunkFiles(agent=agent, source="memory", paths=paths, job=job)


def put(redis_server: fakeredis.FakeRedis, name: str, message: Wire | bytes, *, taken: bool = False) -> None:
    """A message on the chunk queue as dramatiq keeps it."""
    data = message if isinstance(message, bytes) else _stored(message)
    redis_server.hset("memline:chunk.msgs", name, data)  # type: ignore[arg-type]
    if not taken:
        redis_server.rpush("memline:chunk", name)


def _stored(message: Wire) -> bytes:
    fields: dict[str, Any] = {"actor_name": "chunk_files", "args": [messages.encode(message)]}
    return msgspec.msgpack.encode(fields)


def waiting(redis_server: fakeredis.FakeRedis) -> list[str]:
    found: Any = redis_server.lrange("memline:chunk", 0, -1)
    return [name.decode() for name in found]


def test_only_the_messages_of_these_jobs_are_cancelled(redis_server: fakeredis.FakeRedis) -> None:
    put(redis_server, "mine", chunk("a.md", "b.md"))
    put(redis_server, "live", chunk("c.md", job=""))
    put(redis_server, "other", chunk("d.md", agent="work"))
    put(redis_server, "later", chunk("f.md", job="6d1c"))
    put(redis_server, "more", chunk("e.md"))

    assert cancel_jobs(URL, "main", ["5f3a"]) == 2

    assert waiting(redis_server) == ["live", "other", "later"]
    assert redis_server.hkeys("memline:chunk.msgs") == [b"live", b"other", b"later"]
    assert cancel_jobs(URL, "main", ["5f3a"]) == 0


def test_a_message_that_a_worker_has_taken_stays_its(redis_server: fakeredis.FakeRedis) -> None:
    put(redis_server, "taken", chunk("a.md"), taken=True)

    assert cancel_jobs(URL, "main", ["5f3a"]) == 0

    assert redis_server.hexists("memline:chunk.msgs", "taken")


@pytest.mark.parametrize(
    "data",
    [
        b"\xc1 no message",
        msgspec.msgpack.encode({"args": []}),
        msgspec.msgpack.encode({"args": [{"v": 99, "agent": "main"}]}),
        msgspec.msgpack.encode(["a list"]),
    ],
)
def test_what_cannot_be_understood_is_left_to_the_workers(
    redis_server: fakeredis.FakeRedis, data: bytes
) -> None:
    put(redis_server, "odd", data)

    assert cancel_jobs(URL, "main", ["5f3a"]) == 0

    assert waiting(redis_server) == ["odd"]


def test_an_id_without_a_message_is_passed_over(redis_server: fakeredis.FakeRedis) -> None:
    redis_server.rpush("memline:chunk", "ghost")

    assert cancel_jobs(URL, "main", ["5f3a"]) == 0
