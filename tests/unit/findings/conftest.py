import time
from contextlib import closing, contextmanager

import pytest
from msgspec.structs import replace

from memline.producers.reports.state import agent_state
from memline.shared.index_writer import IndexWriter
from memline.shared.packages import own_version
from memline.shared.queue.fleet import Fleet, QueueDepth, WorkerInfo
from tests.support.index_rows import MODEL_A, retarget
from tests.support.workspace import Place


@pytest.fixture
def place(tmp_path):
    """A place with a note, whose provider is that of MODEL_A; nothing is indexed yet."""
    memory = {"provider": "openai", "model": "a", "remote": {"apiKey": "sk-test"}}
    place = Place(folder=tmp_path / "user", memory=memory)
    place.write("memory/notes.md", "# Notes\n")
    return place


@contextmanager
def writing(place):
    """Give a writer of the place's index, which embeds with MODEL_A."""
    with closing(IndexWriter.of(place.agent)) as writer:
        retarget(writer, MODEL_A)
        yield writer


def found(place):
    """What is wrong with the place's agent, most urgent first."""
    return list(agent_state(place.settings, place.agent).findings)


def one(findings, code):
    """The one finding with this code."""
    (finding,) = (each for each in findings if each.code == code)
    return finding


def fleet(*roles, dead=0, asked=0, batches=0, **about):
    """A fleet with a worker for each of these roles, and what else all workers tell.

    `asked`: questions that wait; `batches`: messages about batches.
    """
    waiting = {"query": asked, "batch": batches}
    empty = QueueDepth(name="", waiting=0, in_flight=0, delayed=0, dead=0, oldest_s=0)
    queues = tuple(
        replace(empty, name=role, waiting=waiting.get(role, 0), dead=dead * (role == "chunk"))
        for role in ("chunk", "embed", "store", "query", *["batch"] * batches)
    )
    worker = WorkerInfo(id="", threads_of={}, host="h", pid=1, version=own_version(), started=0, **about)
    return Fleet(
        queues=queues, workers=tuple(replace(worker, id=role, threads_of={role: 1}) for role in roles)
    )


def fleet_now(*roles, **options):
    """The same, as it was read now."""
    return time.monotonic(), fleet(*roles, **options)
