"""The broker of a fleet on a real redis-server: what dramatiq and redis-py are relied on for.

A broker here stands for a process: two of them on one server are two processes.
"""

import threading
from contextlib import contextmanager
from itertools import pairwise

import dramatiq
import pytest

from memline.shared.config.installation import QueueAddress
from memline.shared.errors import QueueError
from memline.shared.queue import broker, dead_letters, redis_broker, redis_client
from memline.shared.queue.fleet import read_fleet
from memline.shared.queue.messages import StoreFiles
from memline.shared.queue.redis_client import retrying
from memline.shared.queue.redis_limits import RedisLimits
from memline.shared.scheduling.limits import WINDOW_S, costs
from tests.support.tls_proxy import CERTIFICATE, TlsProxy
from tests.support.workspace import until


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Short waits before what failed is tried again."""
    monkeypatch.setattr(broker, "MIN_BACKOFF_MS", 20)
    # dramatiq reads its own pauses at import.
    monkeypatch.setattr("dramatiq.worker.CONSUMER_RESTART_DELAY_SECS", 0.1)
    monkeypatch.setattr("dramatiq.worker.POST_PROCESS_MESSAGE_RETRY_DELAY_SECS", 0.1)


def at(server):
    return QueueAddress(server.url)


class Process:
    """A worker of the queue `store`, with an actor `store_files` of the test's own."""

    def __init__(self, url, work=None, *, max_wait_s=0.0, heartbeat_timeout_ms=15_000):
        self.retry = retrying(max_wait_s)
        self.broker = redis_broker.on_redis(url, retry=self.retry)
        self.broker.heartbeat_timeout = heartbeat_timeout_ms
        self.url, self.got, self.work = url, [], work or (lambda raw: None)
        dramatiq.actor(
            self._run,
            broker=self.broker,
            queue_name="store",
            actor_name="store_files",
            retry_when=lambda tries, error: broker.is_retried(StoreFiles, tries, error),
        )

    def _run(self, raw):
        self.got.append(raw["n"])
        self.work(raw)

    def send(self, number, *, actor="store_files"):
        message = dramatiq.Message(
            queue_name="store",
            actor_name=actor,
            args=({"n": number, "agent": "main"},),
            kwargs={},
            options={},
        )
        self.retry(self.broker.enqueue, message)

    @contextmanager
    def working(self, threads=1):
        worker = dramatiq.Worker(self.broker, queues={"store"}, worker_threads=threads, worker_timeout=20)
        worker.start()
        try:
            yield self
        finally:
            worker.stop(timeout=60_000)


@pytest.fixture
def process(redis_server):
    return Process(at(redis_server))


def store_queue(process):
    with redis_client.client(process.url) as client:
        return next(one for one in read_fleet(client).queues if one.name == "store")


def is_idle(process):
    queue = store_queue(process)
    return queue.waiting == queue.in_flight == queue.delayed == 0


def fail(raw):
    raise RuntimeError("the disk is on fire")


def test_the_messages_of_a_worker_that_was_killed_go_to_another_when_its_heartbeat_is_missed(redis_server):
    killed = Process(at(redis_server))
    killed.send(1)
    assert len(killed.broker.do_fetch("store", 4)) == 1

    with Process(at(redis_server), heartbeat_timeout_ms=300).working() as other:
        until(lambda: other.got == [1])
        until(lambda: is_idle(other))


def test_a_message_that_fails_is_a_dead_letter_with_its_error_after_the_last_try(redis_server):
    process = Process(at(redis_server), fail)
    process.send(1)

    with process.working():
        until(lambda: store_queue(process).dead == 1)

    (letter,) = dead_letters.listed(at(redis_server))
    assert (letter.actor, letter.agent) == ("store_files", "main")
    assert letter.error == "RuntimeError: the disk is on fire"
    assert process.got == [1, 1, 1, 1]
    assert is_idle(process)


def test_a_message_that_waits_for_its_retry_survives_a_kill_of_its_worker_and_of_redis(
    lasting_redis, monkeypatch
):
    monkeypatch.setattr(broker, "MIN_BACKOFF_MS", 1_000)
    first = Process(at(lasting_redis), fail)
    first.send(1)
    with first.working():
        until(lambda: store_queue(first).delayed == 1 and store_queue(first).in_flight == 0)

    lasting_redis.restart()

    with Process(at(lasting_redis)).working() as second:
        until(lambda: second.got == [1])
        until(lambda: is_idle(second))


def test_bytes_that_are_no_message_hold_up_none_that_were_fetched_with_them(process):
    process.broker.client.hset("memline:store.msgs", "odd", b"\xc1")
    for number in range(3):
        process.send(number)
        process.broker.client.rpush("memline:store", "odd")

    with process.working(threads=4):
        until(lambda: sorted(process.got) == [0, 1, 2])


def test_dead_letters_are_put_back_as_new_or_dropped(redis_server):
    process = Process(at(redis_server), fail)
    for number in range(3):
        process.send(number)
    process.send(3, actor="burn")
    with process.working():
        until(lambda: store_queue(process).dead == 4)
    letters = dead_letters.listed(at(redis_server), error="fire")
    (unknown,) = dead_letters.listed(at(redis_server), error="burn")
    assert len(letters) == 3

    moved = [dead_letters.remove(process.url, letters[:1], puts_back=True) for _ in range(2)]
    dropped = [dead_letters.remove(process.url, [letters[1], unknown], puts_back=False) for _ in range(2)]

    assert (moved, dropped) == ([1, 0], [2, 0])
    assert [letter.id for letter in dead_letters.listed(process.url)] == [letters[2].id]
    process.work, process.got = (lambda raw: fail(raw) if len(process.got) < 4 else None), []
    with process.working():
        # It has all its tries again.
        until(lambda: len(process.got) == 4 and is_idle(process))


def test_what_an_actor_sends_while_redis_is_away_arrives_when_it_is_back_and_its_work_is_done_once(
    lasting_redis,
):
    began, is_away = threading.Event(), threading.Event()

    def work(raw):
        if raw["n"] == 1:
            began.set()
            is_away.wait(120)
            process.send(2)

    process = Process(at(lasting_redis), work, max_wait_s=120)
    process.send(1)

    with process.working():
        assert began.wait(120)
        lasting_redis.kill()
        is_away.set()
        lasting_redis.start()
        until(lambda: process.got == [1, 2])
        until(lambda: is_idle(process))


def test_messages_are_acknowledged_again_when_a_full_server_has_room(redis_server):
    began, is_full = threading.Event(), threading.Event()

    def work(raw):
        began.set()
        is_full.wait(120)

    process = Process(at(redis_server), work)
    for number in range(4):
        process.send(number)

    with process.working():
        assert began.wait(120)
        redis_server.ask("CONFIG", "SET", "maxmemory", "1")
        is_full.set()
        with pytest.raises(QueueError, match="out of memory"):
            process.send(5)
        redis_server.ask("CONFIG", "SET", "maxmemory", "0")
        until(lambda: process.got == [0, 1, 2, 3])
        until(lambda: is_idle(process))

    assert dead_letters.listed(at(redis_server)) == []


# Limits.


def test_no_two_workers_take_the_same_place(redis_server):
    workers = [RedisLimits(at(redis_server)) for _ in range(8)]
    waits = []

    def take(limits):
        for _ in range(5):
            waits.append(limits.take("openai", costs(tokens=10, max_requests=20), max_wait_s=1_000))

    threads = [threading.Thread(target=take, args=(limits,)) for limits in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    apart = [later - earlier for earlier, later in pairwise(sorted(waits))]
    # Less what the calls themselves took; a tenth of the limit is left to questions.
    assert len(waits) == 40 and min(apart) > WINDOW_S / 18 - 2
    assert sum(apart) > WINDOW_S / 18 * 39 - 20


@pytest.mark.parametrize(
    ("first", "second", "wait_s"),
    [
        ({"tokens": 9}, {"tokens": 9}, 0),
        ({"tokens": 9, "max_requests": 10}, {"tokens": 9, "max_requests": 10}, WINDOW_S / 9),
        ({"tokens": 5, "max_tokens": 100}, {"tokens": 1, "max_tokens": 100}, WINDOW_S / 18),
        # A call above the whole limit goes alone.
        ({"tokens": 900, "max_tokens": 100}, {"tokens": 1, "max_tokens": 100}, WINDOW_S),
        # Where the provider counts texts.
        ({"tokens": 1, "requests": 45, "max_requests": 50}, {"tokens": 1, "max_requests": 50}, WINDOW_S),
    ],
)
def test_a_call_moves_the_next_one_of_its_account_on_by_its_part_of_the_limit(
    redis_server, first, second, wait_s
):
    one, two = RedisLimits(at(redis_server)), RedisLimits(at(redis_server))

    assert one.take("openai", costs(**first)) == 0
    assert wait_s - 10 < two.take("openai", costs(**second)) <= wait_s
    assert two.take("gemini", costs(**second)) == 0


def test_a_cooldown_counts_for_all_and_a_shorter_one_never_cuts_it(redis_server):
    one, two = RedisLimits(at(redis_server)), RedisLimits(at(redis_server))

    one.cool_down("openai", 60)
    one.cool_down("openai", 1)

    assert 10 < two.take("openai", {}) <= 60
    assert 10 < two.take("openai", {}) <= 60
    assert two.take("gemini", {}) == 0
    two.end_cooldown("openai")
    assert one.take("openai", {}) == 0


def test_questions_wait_for_a_cooldown_alone_and_keep_texts_waiting_for_a_minute(redis_server):
    limits = RedisLimits(at(redis_server))
    moves = costs(tokens=1, max_requests=3)

    assert [limits.take("openai", moves, is_question=True) for _ in range(9)] == [0] * 9
    assert WINDOW_S - 10 < limits.take("openai", moves) <= WINDOW_S
    limits.cool_down("openai", 60)
    assert 10 < limits.take("openai", moves, is_question=True) <= 60
    limits.end_cooldown("openai")
    assert limits.take("openai", moves) == 0


# The server.


def test_a_process_waits_for_redis_as_its_retry_policy_says_or_says_what_to_do(redis_server):
    waiting, hasty = Process(at(redis_server), max_wait_s=120), Process(at(redis_server))
    redis_server.kill()

    with pytest.raises(QueueError, match="cannot be reached") as error:
        hasty.send(1)
    assert "redis-server" in error.value.hint
    back = threading.Timer(0.3, redis_server.start)
    back.start()
    waiting.send(2)

    back.join()
    assert store_queue(waiting).waiting == 1


def test_a_suspended_redis_is_an_error_after_its_time_and_no_hang(redis_server, monkeypatch):
    monkeypatch.setattr(redis_client, "SOCKET_TIMEOUT_S", 0.2)
    redis_server.suspend()

    try:
        with pytest.raises(QueueError, match="cannot be reached"):
            redis_client.check(at(redis_server))
    finally:
        redis_server.resume()


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "allkeys-random"])
def test_a_server_that_may_evict_is_refused(redis_server, policy):
    redis_server.ask("CONFIG", "SET", "maxmemory-policy", policy)
    redis_client.check(at(redis_server))
    redis_server.ask("CONFIG", "SET", "maxmemory", "64mb")

    with pytest.raises(QueueError, match=policy) as error:
        redis_client.check(at(redis_server))

    assert error.value.hint == "redis-cli config set maxmemory-policy noeviction"


def test_a_full_server_is_told_at_the_start_with_the_command_that_mends_it(redis_server):
    redis_server.ask("CONFIG", "SET", "maxmemory", "1")

    with pytest.raises(QueueError, match="out of memory") as error:
        redis_client.check(at(redis_server))

    assert "redis-cli config set maxmemory" in error.value.hint


def test_tls_is_spoken_and_a_certificate_that_is_not_trusted_is_refused(redis_server, monkeypatch):
    with TlsProxy(redis_server.port) as proxy:
        url = f"rediss://127.0.0.1:{proxy.port}/0"
        with pytest.raises(QueueError, match="certificate verify failed"):
            redis_client.check(QueueAddress(url))

        monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
        process = Process(QueueAddress(url))
        with process.working():
            process.send(1)
            until(lambda: process.got == [1])
