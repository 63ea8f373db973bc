from __future__ import annotations

import pytest
import redis

from memline.shared.queue.replies import Replies
from tests.unit.queue.conftest import URL


@pytest.fixture
def replies(redis_server: redis.Redis) -> Replies:
    return Replies(URL)


def test_an_answer_is_taken_from_the_box_it_was_put_into(replies: Replies) -> None:
    replies.put("b", b"to b")
    replies.put("a", b"to a")

    assert (replies.take("a", 1), replies.take("b", 1)) == (b"to a", b"to b")


def test_without_an_answer_there_is_none_when_the_time_is_over(replies: Replies) -> None:

    assert replies.take("a", 0.01) is None


def test_an_answer_that_is_not_taken_is_gone_after_a_while(redis_server: redis.Redis) -> None:
    Replies(URL).put("a", b"late")

    assert 0 < redis_server.ttl("memline:reply:a") <= 30
