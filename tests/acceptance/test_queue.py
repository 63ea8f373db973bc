"""The broker on a real redis-server: each trap of dramatiq and redis-py that was measured, one test.

A broker here stands for a process: two of them on one server are two processes.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import dramatiq
import msgspec
import pytest
import redis
from dramatiq.brokers import redis as dramatiq_redis

from memline.shared.errors import QueueError
from memline.shared.queue import dead_letters, depth, redis_broker, redis_client
from memline.shared.queue.broker import MessagePack, send
from memline.shared.queue.messages import StoreVectors
from memline.shared.queue.middleware import FailMessages, SkipRevoked
from memline.shared.queue.redis_broker import FleetBroker
from memline.shared.queue.redis_client import RetryPolicy
from memline.shared.queue.redis_limits import RedisLimits
from memline.shared.queue.replies import Replies
from memline.shared.scheduling.limits import STOP_COOLDOWN_S, WINDOW_S
from tests.support.index_rows import MODEL_A
from tests.support.redis_server import RedisServer
from tests.support.stored_messages import StoredMessages, files
from tests.support.tls_proxy import CERTIFICATE, TlsProxy
from tests.support.workspace import until

Actor = Callable[[dict[str, Any]], None]


@pytest.fixture(autouse=True)
def ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages as ours are, and short waits before what failed is tried again."""
    dramatiq.set_encoder(MessagePack())
    monkeypatch.setattr(redis_broker, "MIN_BACKOFF_MS", 20)
    monkeypatch.setattr(redis_broker, "RETRY_EVERY_S", 0.05)


class Process:
    """A broker with one actor `work` on the queue `embed`, and what the actor was called with."""

    def __init__(self, url: str, work: Actor | None = None, *, max_wait_s: float = 0.0) -> None:
        self.broker = FleetBroker(
            url, retry=RetryPolicy(url, max_wait_s=max_wait_s), middleware=[SkipRevoked(), FailMessages()]
        )
        self.got: list[Any] = []
        self._work = work
        dramatiq.actor(self._run, broker=self.broker, queue_name="embed", actor_name="work")
        self.worker: dramatiq.Worker | None = None

    def _run(self, raw: dict[str, Any]) -> None:
        self.got.append(raw["n"])
        if self._work is not None:
            self._work(raw)

    def hold(self) -> tuple[threading.Event, threading.Event]:
        """Keep a message until the second event is set; the first one tells that one is worked on."""
        began, go_on = threading.Event(), threading.Event()

        def work(raw: dict[str, Any]) -> None:
            began.set()
            go_on.wait(120)

        self._work = work
        return began, go_on

    def send(self, number: int, *, actor: str = "work") -> dramatiq.Message[Any]:
        return self.broker.enqueue(
            dramatiq.Message(
                queue_name="embed",
                actor_name=actor,
                args=({"n": number, "agent": "main"},),
                kwargs={},
                options={},
                message_id=f"message-{number}",
            )
        )

    @contextmanager
    def working(self, threads: int = 1) -> Iterator[Process]:
        worker = dramatiq.Worker(self.broker, queues={"embed"}, worker_threads=threads, worker_timeout=200)
        worker.start()
        self.worker = worker
        try:
            yield self
        finally:
            worker.stop(timeout=60_000)


@pytest.fixture
def process(redis_server: RedisServer) -> Process:
    return Process(redis_server.url)


@pytest.fixture
def other(redis_server: RedisServer) -> Process:
    return Process(redis_server.url)


def embed_queue(process: Process) -> depth.QueueDepth:
    return next(one for one in depth.read(process.broker.url).queues if one.name == "embed")


def test_an_idle_worker_takes_a_message_at_once(process: Process) -> None:
    with process.working():
        for number in range(3):
            # It waits inside Redis, which wakes it: a consumer that polls sleeps on its own.
            until(lambda: process.broker.client.info("clients")["blocked_clients"] > 0)
            process.send(number)
            until(lambda count=number + 1: len(process.got) == count)  # type: ignore[misc]


def test_a_queue_that_was_taken_whole_is_waited_for_and_not_asked_again(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, fetch = [], process.broker.do_fetch

    def counted(*args: Any) -> Any:
        asked.append(args)
        return fetch(*args)

    monkeypatch.setattr(process.broker, "do_fetch", counted, raising=False)
    with closing(process.broker.consume("embed", prefetch=2, timeout=10)) as consumer:
        for number in (1, 2):
            process.send(number)
            assert next(consumer) is not None
            assert next(consumer) is None
            assert len(asked) == number


def test_the_messages_of_a_worker_that_was_killed_go_to_another_when_its_heartbeat_is_missed(
    process: Process, other: Process
) -> None:
    process.send(1)
    assert process.broker.do_fetch("embed", 4)
    other.broker.heartbeat_timeout = 300

    with other.working():
        until(lambda: other.got == [1])

    assert embed_queue(other).in_flight == 0


def test_after_a_redis_that_was_away_no_worker_counts_as_dead_before_it_could_tell_that_it_lives(
    process: Process, other: Process
) -> None:
    process.send(1)
    assert process.broker.do_fetch("embed", 4)
    heartbeats = "memline:__heartbeats__"
    # As when it is continued after 20 s, or started again with its data.
    for worker, at in process.broker.client.zrange(heartbeats, 0, -1, withscores=True):
        process.broker.client.zadd(heartbeats, {worker: at - 20_000})

    assert other.broker.do_fetch("embed", 4) == []
    # One that is not heard of in the meantime is dead.
    until(lambda: bool(other.broker.do_fetch("embed", 4)))


def test_a_worker_whose_clock_is_ahead_takes_nothing_from_the_others(
    process: Process, other: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    process.send(1)
    assert process.broker.do_fetch("embed", 4)
    hour_ms = 3_600_000
    monkeypatch.setattr(dramatiq_redis, "current_millis", lambda: int(time.time() * 1000) + hour_ms)

    assert other.broker.do_fetch("embed", 4) == []


def test_a_message_whose_fetch_was_never_answered_is_worked_on_by_the_same_process(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_broker, "RECLAIM_EVERY_S", 0.1)

    with process.working():
        process.send(1)
        until(lambda: process.got == [1])
        # What the server has given out, and the connection has lost.
        process.broker.client.sadd(process.broker.taken_key("embed"), "message-3")
        process.broker.client.hset(
            "memline:embed.msgs",
            "message-3",
            dramatiq.Message(
                queue_name="embed",
                actor_name="work",
                args=({"n": 3},),
                kwargs={},
                options={"redis_message_id": "message-3"},
                message_id="message-3",
            ).encode(),
        )
        until(lambda: 3 in process.got)

    assert embed_queue(process).in_flight == 0


def test_in_a_healthy_run_no_message_is_taken_for_lost(
    process: Process, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    began, go_on = process.hold()
    taken = redis_broker.BlockingConsumer._taken
    looks = 0

    def slow(consumer: redis_broker.BlockingConsumer) -> set[bytes]:
        """Redis' answer is on its way while the message that it names is finished."""
        nonlocal looks
        found = taken(consumer)
        if found and consumer.queue_name == "embed":
            looks += 1
            go_on.set()
            until(lambda: embed_queue(process).in_flight == 0 and not process.broker.taken_ids["embed"])
        return found

    monkeypatch.setattr(redis_broker, "RECLAIM_EVERY_S", 0.0)
    monkeypatch.setattr(redis_broker.BlockingConsumer, "_taken", slow)
    with process.working():
        process.send(1)
        assert began.wait(120)
        until(lambda: looks > 0)
        # One that is cancelled in the moment in which it is taken is nowhere; Redis counts it as taken.
        process.broker.client.sadd(process.broker.taken_key("embed"), "message-2")
        until(lambda: not process.broker.client.exists(process.broker.taken_key("embed")))

    assert process.got == [1]
    assert "messages.reclaimed" not in caplog.text


def test_a_message_that_is_sent_twice_because_an_answer_was_lost_is_there_once(process: Process) -> None:
    process.send(1)
    process.send(1)

    assert embed_queue(process).waiting == 1


def test_a_request_that_is_sent_twice_is_not_worked_on_again_when_it_is_done_already(
    process: Process,
) -> None:
    with process.working():
        process.send(1)
        until(lambda: process.got == [1] and embed_queue(process).in_flight == 0)
        process.send(1)
        process.send(2)
        until(lambda: 2 in process.got)

    assert process.got == [1, 2]
    assert 0 < process.broker.client.ttl("memline:embed.sent:message-1") <= 900


def test_what_a_worker_gives_back_at_its_end_comes_before_what_lies_behind_it(process: Process) -> None:
    began, go_on = process.hold()
    for number in range(4):
        process.send(number)

    with process.working():
        # One is worked on, one lies in the memory of the worker.
        assert began.wait(120)
        until(lambda: embed_queue(process).waiting == 2)
        worker = process.worker
        assert worker is not None

        def go_on_at_the_end() -> None:
            until(lambda: not any(thread.running for thread in worker.workers), "the stop")
            go_on.set()

        threading.Thread(target=go_on_at_the_end).start()

    left = process.broker.client.lrange("memline:embed", 0, -1)
    assert left == [b"message-1", b"message-2", b"message-3"]


def test_a_message_that_fails_is_retried_later_and_a_dead_letter_with_its_error_after_the_last_time(
    redis_server: RedisServer,
) -> None:
    def fail(raw: dict[str, Any]) -> None:
        raise RuntimeError("the disk is on fire")

    process = Process(redis_server.url, fail)
    process.send(1)

    with process.working():
        until(lambda: embed_queue(process).dead == 1)

    (letter,) = dead_letters.listed(redis_server.url)
    assert (letter.id, letter.actor, letter.agent) == ("message-1", "work", "main")
    assert letter.error == "RuntimeError: the disk is on fire"
    assert process.got == [1, 1, 1, 1]
    assert (embed_queue(process).delayed, embed_queue(process).in_flight) == (0, 0)


def test_a_message_that_waits_for_its_retry_survives_a_kill_of_its_worker_and_of_redis(
    lasting_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(raw: dict[str, Any]) -> None:
        raise RuntimeError("the disk is full")

    monkeypatch.setattr(redis_broker, "MIN_BACKOFF_MS", 60_000)
    monkeypatch.setattr(redis_broker, "MAX_BACKOFF_MS", 120_000)
    first = Process(lasting_redis.url, fail)
    first.send(1)
    with first.working():
        until(lambda: embed_queue(first).delayed == 1)
    assert embed_queue(first).in_flight == 0

    lasting_redis.restart()
    assert embed_queue(first).delayed == 1
    lasting_redis.ask("ZADD", "memline:embed.delayed", 1, "message-1")
    second = Process(lasting_redis.url)
    with second.working():
        until(lambda: second.got == [1])

    until(lambda: (embed_queue(second).delayed, embed_queue(second).in_flight) == (0, 0))


def test_a_message_for_an_actor_that_is_not_there_is_a_dead_letter_with_its_error(process: Process) -> None:
    process.send(1, actor="burn")

    with process.working():
        until(lambda: embed_queue(process).dead == 1)

    (letter,) = dead_letters.listed(process.broker.url)
    assert "burn" in letter.error


def test_a_message_that_says_it_is_delayed_is_worked_on_at_once(process: Process) -> None:
    later = int(time.time() * 1000) + 3_600_000
    message = process.send(1).copy(options={"eta": later})
    process.broker.client.hset("memline:embed.msgs", "message-1", message.encode())

    with process.working():
        until(lambda: process.got == [1])

    assert embed_queue(process).in_flight == 0


def test_what_a_task_sends_while_redis_is_away_arrives_when_it_is_back_and_the_task_is_done_once(
    lasting_redis: RedisServer,
) -> None:
    started, away = threading.Event(), threading.Event()
    process = Process(lasting_redis.url, max_wait_s=120)

    def work(raw: dict[str, Any]) -> None:
        if raw["n"] == 1:
            started.set()
            away.wait(120)
            process.send(2)

    process._work = work
    process.send(1)

    with process.working():
        assert started.wait(120)
        lasting_redis.kill()
        away.set()
        time.sleep(0.3)
        lasting_redis.start()
        until(lambda: process.got == [1, 2])
        until(lambda: embed_queue(process).in_flight == 0)

    assert dead_letters.listed(lasting_redis.url) == []


def test_a_task_that_cannot_send_before_its_process_must_end_is_left_to_the_next_one(
    lasting_redis: RedisServer,
) -> None:
    started, away = threading.Event(), threading.Event()
    first = Process(lasting_redis.url, max_wait_s=60)

    def work(raw: dict[str, Any]) -> None:
        started.set()
        away.wait(120)
        first.send(2)

    first._work = work
    first.send(1)

    with first.working():
        assert started.wait(120)
        lasting_redis.kill()
        first.broker.stop_waiting(0.2)
        away.set()
    lasting_redis.start()
    second = Process(lasting_redis.url)
    second.broker.heartbeat_timeout = 300
    with second.working():
        until(lambda: second.got == [1])

    assert dead_letters.listed(lasting_redis.url) == []


def test_the_answer_to_a_question_is_waited_for_longer_than_a_command_may_take(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_client, "SOCKET_TIMEOUT_S", 1.0)
    replies = Replies(redis_server.url)
    answers = threading.Timer(1.5, Replies(redis_server.url).put, ("box", b"42"))
    answers.start()

    answer = replies.take("box", 120)

    assert answer == b"42"
    answers.join()


def test_bytes_that_are_no_message_hold_up_none_that_were_fetched_with_them(process: Process) -> None:
    for number in range(3):
        process.send(number)
    process.broker.client.hset("memline:embed.msgs", "message-1", b"\xc1")

    with process.working(threads=4):
        until(lambda: sorted(process.got) == [0, 2])
        until(lambda: embed_queue(process).dead == 1)

    (letter,) = dead_letters.listed(process.broker.url)
    assert letter.id == "message-1" and "cannot be decoded" in letter.error
    assert embed_queue(process).in_flight == 0


def test_a_dead_letter_is_put_back_as_new_but_a_request_to_embed_is_removed_and_not_paid_for_again(
    redis_server: RedisServer,
) -> None:
    stored = StoredMessages(redis_server.url)
    stored.put("store", "one", files("a.md"), error="no", retries=3)
    stored.put("embed", "two", files("a.md"), error="no", actor="embed_texts")

    assert dead_letters.requeue(stored.url, dead_letters.listed(stored.url)) == 2

    assert stored.client.lrange("memline:t:store", 0, -1) == [b"one"]
    (content,) = stored.client.hvals("memline:t:store.msgs")
    assert msgspec.msgpack.decode(content)["options"] == {}
    assert stored.client.keys("memline:t:embed*") == []
    stored.client.close()


def test_dead_letters_are_put_back_and_dropped(process: Process) -> None:
    for number in range(3):
        process.send(number, actor="burn")
    with process.working():
        until(lambda: embed_queue(process).dead == 3)
    url = process.broker.url

    letters = {letter.id: letter for letter in dead_letters.listed(url)}

    moved = [dead_letters.requeue(url, [letters["message-1"]]) for _ in range(2)]
    dropped = [dead_letters.drop(url, [letters["message-2"]]) for _ in range(2)]

    assert (moved, dropped) == ([1, 0], [1, 0])
    assert [letter.id for letter in dead_letters.listed(url)] == ["message-0"]
    assert embed_queue(process).waiting == 1


def test_a_new_store_process_has_at_once_what_the_dead_one_had_taken(
    process: Process, other: Process
) -> None:
    for number in range(3):
        process.send(number)
    assert process.broker.do_fetch("embed", 2)

    other.broker.take_over("embed")

    waiting = other.broker.client.lrange("memline:embed", 0, -1)
    assert sorted(waiting[:2]) == [b"message-0", b"message-1"]
    assert waiting[2:] == [b"message-2"]
    assert embed_queue(other).in_flight == 0


# Requests, which cost money.


def test_a_request_that_was_answered_is_not_worked_on_again_when_its_worker_is_killed(
    process: Process, other: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dramatiq, "get_broker", lambda: process.broker)
    process.send(1)
    assert process.broker.do_fetch("embed", 1)
    send(StoreVectors(agent="main", identity=MODEL_A, lease="message-1", vectors=()))

    # As when its heartbeat is missed.
    other.broker.take_over("embed")

    assert not other.broker.do_fetch("embed", 1)
    assert embed_queue(other).waiting == embed_queue(other).in_flight == 0


def test_no_two_workers_take_the_last_place_of_a_minute(redis_server: RedisServer) -> None:
    workers = [RedisLimits(redis_server.url) for _ in range(8)]
    waits: list[float] = []

    def take(limits: RedisLimits) -> None:
        for _ in range(5):
            waits.append(limits.take("openai", tokens=10, max_requests=7))

    threads = [threading.Thread(target=take, args=(limits,)) for limits in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert waits.count(0.0) == 7
    assert all(10 < wait <= WINDOW_S for wait in waits if wait)


def test_a_place_of_a_minute_is_held_two_seconds_longer_than_the_minute(redis_server: RedisServer) -> None:
    limits, began = RedisLimits(redis_server.url), time.monotonic()

    limits.take("openai", tokens=1, max_requests=1)
    wait_s = limits.take("openai", tokens=1, max_requests=1)

    # What is sent slowly and what is sent fast are that much nearer to each other at the provider.
    assert wait_s + time.monotonic() - began > 61.9


def test_tokens_of_a_minute_are_shared_and_a_request_above_them_all_goes_alone(
    redis_server: RedisServer,
) -> None:
    one, two = RedisLimits(redis_server.url), RedisLimits(redis_server.url)

    assert one.take("openai", tokens=500, max_tokens=100) == 0
    assert 10 < two.take("openai", tokens=1, max_tokens=100) <= WINDOW_S
    assert two.take("voyage", tokens=60, max_tokens=100) == 0
    assert one.take("voyage", tokens=30, max_tokens=100) == 0
    assert 10 < one.take("voyage", tokens=1, max_tokens=100) <= WINDOW_S


def test_a_question_takes_a_place_that_texts_leave_and_never_waits(redis_server: RedisServer) -> None:
    limits = RedisLimits(redis_server.url)

    texts = [limits.take("a", tokens=1, max_requests=10) for _ in range(10)]
    questions = [limits.take("a", tokens=1, max_requests=10, is_question=True) for _ in range(2)]

    assert texts[:9] == [0] * 9
    assert texts[9] > 10
    assert questions[0] == 0
    assert questions[1] > 10
    assert limits.take("b", tokens=100, max_tokens=100, is_question=True) == 0
    assert limits.take("b", tokens=1, max_tokens=100, is_question=True) > 10


def test_where_texts_are_counted_the_texts_of_a_minute_are_shared(redis_server: RedisServer) -> None:
    one, two = RedisLimits(redis_server.url), RedisLimits(redis_server.url)
    key = redis_client.key(redis_client.client(redis_server.url), "limit:{gemini}:requests")
    redis_client.client(redis_server.url).zadd(key, {"0a1b:1:7": time.time() * 1000 - 1000})

    # A tenth is left to questions.
    assert one.take("gemini", tokens=1, requests=50, max_requests=100) == 0
    assert 10 < two.take("gemini", tokens=1, requests=40, max_requests=100) <= WINDOW_S
    assert two.take("gemini", tokens=1, requests=39, max_requests=100) == 0
    assert 10 < two.take("gemini", tokens=1, requests=1, max_requests=100) <= WINDOW_S
    assert one.take("openai", tokens=1, requests=500, max_requests=100) == 0


def test_a_cooldown_counts_for_all_and_a_shorter_one_never_cuts_it(redis_server: RedisServer) -> None:
    one, two = RedisLimits(redis_server.url), RedisLimits(redis_server.url)

    one.cool_down("openai", 60)
    one.cool_down("openai", 1)

    assert 10 < two.take("openai", tokens=1) <= 60
    assert 10 < two.cooldown_s("openai") <= 60
    assert two.cooldown_s("gemini") == 0
    assert two.take("gemini", tokens=1) == 0
    two.end_cooldown("openai")
    assert one.take("openai", tokens=1) == 0
    one.cool_down("gemini", STOP_COOLDOWN_S)
    two.end_cooldown("gemini")
    assert one.cooldown_s("gemini") > 0


def test_places_are_given_ahead_to_those_who_wait(redis_server: RedisServer) -> None:
    one, two = RedisLimits(redis_server.url), RedisLimits(redis_server.url)
    one.cool_down("openai", 30)

    waits = [
        limits.take("openai", tokens=60, max_requests=3, max_tokens=100, max_wait_s=50)
        for limits in (one, two, one)
    ]

    # The first has its place at the end of the cooldown; the others' tokens fit into no minute with it.
    assert 0 < waits[0] <= 30
    assert all(60 < wait <= 30 + WINDOW_S for wait in waits[1:])


# The server.


def test_a_process_waits_for_redis_as_its_retry_policy_says_or_tells_what_to_do(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    waiting = Process(redis_server.url, max_wait_s=120)
    redis_server.kill()

    with pytest.raises(QueueError, match="cannot be reached") as error:
        Process(redis_server.url).send(1)
    assert "redis-server" in error.value.hint
    back = threading.Timer(0.3, redis_server.start)
    back.start()
    waiting.send(2)

    back.join()
    assert embed_queue(waiting).waiting == 1


def test_a_suspended_redis_is_an_error_after_its_time_and_no_hang(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_client, "SOCKET_TIMEOUT_S", 0.2)
    redis_server.suspend()

    try:
        with pytest.raises(QueueError, match="cannot be reached"):
            redis_client.check(redis_server.url)
    finally:
        redis_server.resume()


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "allkeys-random"])
def test_a_server_that_may_evict_is_refused(redis_server: RedisServer, policy: str) -> None:
    redis_server.ask("CONFIG", "SET", "maxmemory-policy", policy)
    redis_client.check(redis_server.url)
    redis_server.ask("CONFIG", "SET", "maxmemory", "64mb")

    with pytest.raises(QueueError, match=policy) as error:
        redis_client.check(redis_server.url)

    assert error.value.hint == "redis-cli config set maxmemory-policy noeviction"


def test_tls_is_spoken_and_a_certificate_that_is_not_trusted_ends_it_at_once(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TlsProxy(redis_server.port) as proxy:
        url = f"rediss://127.0.0.1:{proxy.port}/0"
        began = proxy.connections
        with pytest.raises(QueueError, match="certificate verify failed"):
            RetryPolicy(url, max_wait_s=600)(redis_client.client(url).ping)
        assert proxy.connections - began <= 3

        monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
        redis_client.check(url)
        process = Process(url)
        with process.working():
            process.send(1)
            until(lambda: process.got == [1])


def test_what_takes_its_whole_time_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_client, "SOCKET_TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"

        with closing(redis_client.client(url)) as client, pytest.raises(redis.TimeoutError):
            client.ping()

        silent.accept()[0].close()
        silent.settimeout(0)
        with pytest.raises(BlockingIOError):
            silent.accept()


def test_a_full_server_is_told_at_the_start_with_the_command_that_mends_it(redis_server: RedisServer) -> None:
    redis_server.ask("CONFIG", "SET", "maxmemory", "1")

    with pytest.raises(QueueError, match="out of memory") as error:
        redis_client.check(redis_server.url)

    assert "redis-cli config set maxmemory" in error.value.hint


def test_messages_are_taken_and_acknowledged_again_when_a_full_server_has_room(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # dramatiq reads its own pauses at import.
    monkeypatch.setattr("dramatiq.worker.CONSUMER_RESTART_DELAY_SECS", 0.1)
    monkeypatch.setattr("dramatiq.worker.POST_PROCESS_MESSAGE_RETRY_DELAY_SECS", 0.1)
    began, full = threading.Event(), threading.Event()

    def work(raw: dict[str, Any]) -> None:
        began.set()
        full.wait(120)

    process = Process(redis_server.url, work)
    for number in range(4):
        process.send(number)

    with process.working():
        assert began.wait(120)
        redis_server.ask("CONFIG", "SET", "maxmemory", "1")
        full.set()
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            process.broker.client.set("x", "y")
        redis_server.ask("CONFIG", "SET", "maxmemory", "0")
        until(lambda: process.got == [0, 1, 2, 3])
        until(lambda: embed_queue(process).in_flight == 0)

    assert dead_letters.listed(redis_server.url) == []
