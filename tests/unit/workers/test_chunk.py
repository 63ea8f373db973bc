import pytest

from memline.shared.queue.messages import ChunkFiles, MessageRefused, StoreFiles
from memline.workers import chunk
from tests.unit.workers.conftest import work

MESSAGE = ChunkFiles(agent="main", paths=("memory/a.md", "memory/gone.md"), job="5f3a")


def test_files_are_sent_to_the_store_worker_as_they_are_now(context, sent):
    work(chunk.chunk_files, MESSAGE)

    (message,) = sent
    assert isinstance(message, StoreFiles)
    assert message.job == "5f3a"
    assert [row.path for row in message.files] == ["memory/a.md", "memory/gone.md"]
    assert [len(row.chunks or ()) for row in message.files] == [1, 0]


def test_many_files_are_sent_in_several_messages(context, sent, monkeypatch):
    monkeypatch.setattr(chunk, "MESSAGE_CHARS", 10)

    work(chunk.chunk_files, MESSAGE)

    assert len(sent) == 2


def test_a_full_store_queue_is_waited_for_until_the_process_is_told_to_stop(context, sent, monkeypatch):
    depths = iter([100, 100, 3])
    monkeypatch.setattr(context, "store_depth", lambda: next(depths))

    work(chunk.chunk_files, MESSAGE)
    monkeypatch.setattr(context, "store_depth", lambda: 100)
    context.stopping.set()
    work(chunk.chunk_files, MESSAGE)

    assert next(depths, None) is None
    assert len(sent) == 2


def test_files_of_another_workspace_are_refused(context, sent):
    here = context.agent("main").index_path.name

    work(chunk.chunk_files, ChunkFiles(agent="main", paths=("memory/a.md",), index=here))
    with pytest.raises(MessageRefused, match=r"about the index main\.sqlite"):
        work(
            chunk.chunk_files,
            ChunkFiles(agent="main", paths=("memory/a.md",), index="main.sqlite"),
        )

    assert [(type(each), each.index) for each in sent if isinstance(each, StoreFiles)] == [(StoreFiles, here)]
