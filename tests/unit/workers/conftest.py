import json
from importlib import import_module

import pytest

from memline.shared.config.load import Options, load
from memline.shared.queue import broker
from memline.shared.queue.routes import QUEUES
from memline.workers import context as workers_context
from memline.workers.context import Context

# An actor belongs to the broker that is current when its module is imported.
broker.in_process()
for queue in QUEUES:
    import_module(f"memline.workers.{queue}")


@pytest.fixture
def notes(tmp_path):
    """A workspace with one note."""
    folder = tmp_path / "notes"
    (folder / "memory").mkdir(parents=True)
    (folder / "memory" / "a.md").write_text("# Apples\n\nred and green\n", "utf-8")
    return folder


@pytest.fixture
def context(tmp_path, notes, home, clock):
    """The context of a worker process whose agent embeds with a provider that is not there."""
    # Another test of this process may have used a fleet.
    broker.in_process()
    remote = {"baseUrl": "http://127.0.0.1:9/v1", "apiKey": "k", "requestsPerMinute": 1}
    memory = {"provider": "openai", "model": "a", "remote": remote}
    config = tmp_path / "config.json5"
    agents = {"defaults": {"memorySearch": memory}, "list": [{"id": "main"}, {"id": "work"}]}
    config.write_text(json.dumps({"agents": agents}), "utf-8")
    options = Options(config=config, home=tmp_path / "state", workspace=notes)
    context = Context(load(options, {"HOME": str(home)}), clock=clock)
    workers_context.use(context)
    yield context
    context.close()
    workers_context.use(None)


@pytest.fixture
def sent(monkeypatch):
    """What the actors send."""
    sent = []

    def send(message, *, host=None):
        sent.append(message)
        return "id"

    for module in ("batch", "chunk", "embed", "store"):
        monkeypatch.setattr(f"memline.workers.{module}.send", send)
    return sent


def work(actor, message):
    """Call an actor as dramatiq does."""
    actor.fn(message)
