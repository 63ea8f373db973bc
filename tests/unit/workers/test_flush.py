from types import SimpleNamespace
from typing import Any

import pytest

from memline.shared.queue.messages import FlushMemory
from memline.workers import flush
from memline.workers.context import Context
from tests.unit.workers.conftest import work


def test_a_folder_that_cannot_be_read_is_told_and_left_to_the_next_message(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[dict[str, Any]] = []
    log = SimpleNamespace(error=lambda event, **fields: lines.append({"event": event, **fields}))
    monkeypatch.setattr(flush, "_LOG", log)

    def run(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(flush, "run", run)

    work(flush.flush_memory, FlushMemory(agent="main", session="s.jsonl", cycle="1"))

    (line,) = lines
    assert (line["event"], line["session"]) == ("flush.failed", "s.jsonl")
    assert line["reason"].endswith("permission denied")
