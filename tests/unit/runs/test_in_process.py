from __future__ import annotations

import pytest

from memline.producers.runs.in_process import InProcessWorkers
from memline.shared.queue.routes import QUEUES
from memline.workers import lifecycle
from tests.support.workspace import Place


@pytest.mark.parametrize("is_enabled", [False, True])
def test_a_worker_for_batches_runs_only_when_an_agent_uses_them(
    place: Place, monkeypatch: pytest.MonkeyPatch, is_enabled: bool
) -> None:
    place.configure(remote={"batch": {"enabled": is_enabled}})
    started: list[dict[str, int]] = []
    start = lifecycle.start

    def noted(broker: object, threads_of: dict[str, int], **options: object) -> object:
        started.append(threads_of)
        return start(broker, threads_of, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(lifecycle, "start", noted)

    with InProcessWorkers(place.settings) as workers:
        workers.wake("main")

    assert ("batch" in started[0]) is is_enabled
    assert started[0]["store"] == QUEUES["store"].threads == 1
    assert workers.fault() is None
