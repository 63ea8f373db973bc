from contextlib import nullcontext
from threading import Event

import fakeredis
from msgspec.structs import replace

from memline.shared.config.installation import QueueAddress
from memline.shared.queue import redis_broker, redis_client
from memline.shared.queue.broker import in_process
from memline.shared.queue.messages import KINDS
from memline.shared.queue.routes import QUEUES
from memline.workers import process
from memline.workers.context import PER_THREAD, Context
from memline.workers.process import fleet_worker, serve_queues
from tests.unit.queue.conftest import Client


def test_every_queue_has_a_module_that_declares_its_actors(context):
    broker = in_process()

    with serve_queues(broker, context, dict.fromkeys(QUEUES, 1), idle_ms=10, stop_ms=10_000):
        pass

    for kind in KINDS.values():
        assert broker.get_actor(kind.actor).queue_name == kind.queue


def test_a_process_of_a_fleet_counts_its_own_threads_before_it_looks_for_work(context, monkeypatch):
    fake, credits = fakeredis.FakeServer(), []
    monkeypatch.setattr(redis_client, "client", lambda *_, **__: Client(server=fake))
    monkeypatch.setattr(Client, "trouble", lambda _: None)
    monkeypatch.setattr(redis_broker, "on_redis", lambda *_, **__: None)
    monkeypatch.setattr(process, "serve_queues", lambda *_, **__: nullcontext())
    monkeypatch.setattr(Context, "schedule", lambda self, *_, **__: credits.append(self.credits()))

    # Of this test alone: what is known of a fleet is kept for a while.
    settings = replace(context.settings, queue=QueueAddress("redis://127.0.0.1:6379/0", "one-process"))
    with fleet_worker(settings, {"store": 1, "embed": 3}, Event()):
        pass

    assert credits == [3 * PER_THREAD] * 2
