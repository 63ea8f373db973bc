import threading

import pytest
import redis

from memline.shared.config.installation import QueueAddress
from memline.shared.errors import QueueError
from memline.shared.queue import redis_client
from memline.shared.queue.redis_client import retrying
from tests.unit.queue.conftest import URL


class Flaky:
    """A call that fails so many times."""

    def __init__(self, times):
        self.calls = 0
        self._times = times

    def __call__(self):
        self.calls += 1
        if self.calls <= self._times:
            raise QueueError("cannot be reached")
        return "done"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (redis.ConnectionError("refused"), "cannot be reached"),
        (redis.TimeoutError("slow"), "cannot be reached"),
        (redis.exceptions.OutOfMemoryError("full"), "out of memory"),
        # As Redis 6 says it of a script.
        (redis.ResponseError("Error running script: -OOM command not allowed"), "out of memory"),
        (redis.AuthenticationError("invalid username-password pair or user is disabled."), "the password"),
        (redis.exceptions.ReadOnlyError("You can't write against a read only replica."), "read-only replica"),
        (redis.ResponseError("MISCONF Redis is unable to persist on disk"), "unable to persist"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_commands_say_what_is_wrong_with_redis_in_our_words(monkeypatch, error, words):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(redis.Redis, "execute_command", fail)

    with pytest.raises(QueueError, match=words) as raised, redis_client.client(URL) as client:
        client.get("a")

    assert raised.value.hint


def test_trouble_that_passes_is_waited_for_until_the_process_must_end(monkeypatch):
    monkeypatch.setattr(redis_client, "MAX_BACKOFF_S", 0.0)
    monkeypatch.setattr(redis_client, "LAST_TRIES_S", 0.0)
    stopping, call = threading.Event(), Flaky(2)
    retry = retrying(30, stopping)

    assert (retry(call), call.calls) == ("done", 3)
    stopping.set()
    with pytest.raises(QueueError):
        retry(Flaky(1))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://127.0.0.1:6379/zero", "not a valid Redis URL"),
        ("http://127.0.0.1:6379/0", "not a valid Redis URL"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused_without_its_password(url, words):
    with pytest.raises(QueueError, match=words) as error:
        redis_client.client(QueueAddress(url.replace("://", "://:hunter2@")))

    assert "hunter2" not in error.value.message


@pytest.mark.parametrize("password", ["hunter/2", "hunter?2", "hunter#2", "hunter/hunter", "1234/hunter"])
def test_no_part_of_a_password_is_told_that_was_not_encoded(password):
    with pytest.raises(QueueError) as error:
        redis_client.client(QueueAddress(f"redis://:{password}@127.0.0.1:6379/0"))

    assert "hunter" not in error.value.message
    assert "%2F" in error.value.hint
