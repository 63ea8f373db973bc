from __future__ import annotations

import pytest
import redis

from shared.queue.redis_replies import RedisReplies
from shared.queue.replies import InProcessReplies, Replies
from tests.unit.queue.conftest import URL


@pytest.fixture(params=["in this process", "in Redis"])
def replies(request: pytest.FixtureRequest, redis_server: redis.Redis) -> Replies:
    return InProcessReplies() if request.param == "in this process" else RedisReplies(URL)


def test_an_answer_is_taken_from_the_box_it_was_put_into(replies: Replies) -> None:
    replies.open("a")
    replies.open("b")
    replies.put("b", b"to b")
    replies.put("a", b"to a")

    assert (replies.take("a", 1), replies.take("b", 1)) == (b"to a", b"to b")


def test_without_an_answer_there_is_none_when_the_time_is_over(replies: Replies) -> None:
    replies.open("a")

    assert replies.take("a", 0.01) is None


def test_an_answer_for_a_box_that_nobody_opened_is_no_error(replies: Replies) -> None:
    replies.put("nobody", b"late")


def test_an_answer_in_redis_has_an_end(redis_server: redis.Redis) -> None:
    RedisReplies(URL).put("a", b"late")

    assert 0 < redis_server.ttl("memline:reply:a") <= 30
