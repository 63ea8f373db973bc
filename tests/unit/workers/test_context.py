import pytest

from memline.shared.errors import QueueError
from memline.shared.queue.messages import MessageRefused


class Resource:
    """Something that is open until it is closed."""

    is_open = True

    def close(self):
        self.is_open = False


def test_an_agent_that_is_not_configured_is_refused_with_those_that_are(context):
    with pytest.raises(MessageRefused, match=r"'bob', which is not configured here \(known: main, work\)"):
        context.agent("bob")


def test_what_is_kept_is_built_once_and_closed_at_the_end(context):
    first = context.keep("a", Resource)

    assert context.keep("a", Resource) is first
    assert context.keep("b", Resource) is not first
    context.close()
    assert not first.is_open


class Stuck(Resource):
    """A resource that cannot be closed."""

    def close(self):
        raise OSError("stuck")


def test_what_cannot_be_closed_keeps_nothing_else_open(context):
    before, _, after = context.keep("a", Resource), context.keep("b", Stuck), context.keep("c", Resource)

    with pytest.raises(OSError, match="stuck"):
        context.close()

    assert not before.is_open and not after.is_open


def test_an_index_that_was_replaced_is_opened_anew(context):
    old = context.writer("main")
    for file in old.path.parent.iterdir():
        file.unlink()

    new = context.writer("main")

    assert new is not old and new.path.exists()
    assert context.writer("main") is new


def test_a_sweep_that_could_not_be_sent_is_sent_again_and_none_before_it_is_due(context, monkeypatch):
    sent = []

    def send(message):
        sent.append((message.agent, message.deep))
        if len(sent) == 1:
            raise QueueError("Redis is away")
        context.stopping.set()

    monkeypatch.setattr("memline.workers.context.send", send)
    monkeypatch.setattr("memline.workers.context.SWEEP_EVERY_S", 0)
    context.schedule("later", 3600)
    context.schedule("main", 0, deep=True)

    context.send_sweeps()

    assert sent == [("main", True), ("main", True)]
