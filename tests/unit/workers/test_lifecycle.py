from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import dramatiq
import pytest

from memline.shared import logs
from memline.shared.errors import IndexUnwritable
from memline.shared.liveness import Liveness
from memline.shared.queue.broker import in_process
from memline.shared.queue.routes import QUEUES
from memline.workers import lifecycle
from memline.workers.lifecycle import LogFields, only_store


def test_every_queue_has_a_module_that_declares_its_actors() -> None:
    broker = in_process()

    lifecycle.declare_actors(QUEUES)

    for name, queue in QUEUES.items():
        for actor in queue.actors.values():
            assert broker.get_actor(actor.name).queue_name == name


def test_one_store_process_at_a_time_works_on_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "LOCK_EVERY_S", 0.01)
    stop, entered = threading.Event(), threading.Event()

    def second() -> None:
        with only_store(tmp_path, stop, Liveness()):
            entered.set()

    with only_store(tmp_path, threading.Event(), Liveness()):
        thread = threading.Thread(target=second)
        thread.start()
        assert not entered.wait(0.1)

    assert entered.wait(120)
    thread.join()


def test_a_store_process_that_waits_ends_when_it_is_told_to(tmp_path: Path) -> None:
    stop = threading.Event()

    with only_store(tmp_path, threading.Event(), Liveness()):
        threading.Timer(0.05, stop.set).start()
        with only_store(tmp_path, stop, Liveness()):
            assert stop.is_set()


def test_a_home_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with (
        pytest.raises(IndexUnwritable, match="cannot write"),
        only_store(tmp_path / "file", threading.Event(), Liveness()),
    ):
        pass


def test_lines_of_a_thread_that_works_on_a_message_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []
    fields, broker = LogFields(), cast(dramatiq.Broker, None)
    message = cast(
        Any,
        SimpleNamespace(
            queue_name="store", message_id="m", actor_name="sweep", args=[{"agent": "main"}], options={}
        ),
    )
    original = logs.context

    def context(**bound: Any) -> Any:
        seen.append(bound)
        return original(**bound)

    monkeypatch.setattr(logs, "context", context)
    fields.before_process_message(broker, message)
    fields.after_process_message(broker, message)

    assert seen == [{"queue": "store", "message_id": "m", "actor": "sweep", "agent": "main"}]
