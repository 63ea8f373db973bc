"""When the findings of a disk, of polling and of an index that was moved aside begin, and when they end."""

import math
import os
import time
from collections.abc import Iterator

import pytest

from memline.producers.actions import provider_pauses
from memline.producers.reports.metrics import FleetCollector, page
from memline.producers.web import live as live_figures
from memline.producers.web.live import LiveFigures
from memline.shared.config.config_file import SettingsFile
from memline.shared.findings import disk
from memline.shared.findings.diagnosis import of_common
from memline.shared.scheduling import home_processes
from tests.support.embedding_server import EmbeddingServer
from tests.support.workspace import Place
from tests.unit.findings.conftest import found, one
from tests.unit.findings.test_faces import damaged_with_rows

MIB, GIB = 2**20, 2**30


@pytest.fixture
def server(place: Place) -> Iterator[EmbeddingServer]:
    with EmbeddingServer() as running:
        place.configure(remote={"baseUrl": running.url, "apiKey": "sk-test"})
        yield running


def codes(place: Place) -> set[str]:
    return {each.code for each in found(place)}


def leave(monkeypatch: pytest.MonkeyPatch, free: float, total: float) -> None:
    """Say that so many bytes of a disk are free for a user, and more for root."""
    counts = (4096, 4096, int(total) // 4096, int(free) // 4096 + 10**9, int(free) // 4096, 0, 0, 0, 0, 255)
    monkeypatch.setattr(disk.os, "statvfs", lambda _: os.statvfs_result(counts))


@pytest.mark.parametrize(
    ("free", "total", "is_low"),
    [
        (199 * MIB, 1 * GIB, True),
        (201 * MIB, 1 * GIB, False),
        (1.9 * GIB, 100 * GIB, True),
        (1.9 * GIB, 90 * GIB, False),
        (2.1 * GIB, 1_000 * GIB, False),
    ],
)
def test_a_disk_is_almost_full_below_200_mib_or_below_two_percent_and_two_gib(
    place: Place, monkeypatch: pytest.MonkeyPatch, free: float, total: float, is_low: bool
) -> None:
    leave(monkeypatch, free, total)

    assert ("disk_almost_full" in codes(place)) is is_low


def test_pages_and_metrics_know_a_full_disk_though_no_row_changed(
    place: Place, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(monkeypatch, 100 * GIB, 500 * GIB)
    # Rows that took long to read, as the first ones do on a busy machine, are read again beside the pages.
    monkeypatch.setattr(live_figures, "SLOW_S", math.inf)
    place.index()
    live, collector = (
        LiveFigures(place.settings, [place.agent]),
        FleetCollector(place.settings, [place.agent]),
    )
    sample = 'memline_finding{agent="main",code="disk_almost_full",level="warning"} 1.0'

    def pages() -> set[str]:
        return {each.code for each in live.read(0.0).told("")}

    assert "disk_almost_full" not in pages() and sample not in page(collector)
    leave(monkeypatch, 100 * MIB, 500 * GIB)
    assert "disk_almost_full" in pages() and sample in page(collector)
    leave(monkeypatch, 100 * GIB, 500 * GIB)
    assert "disk_almost_full" not in pages() and sample not in page(collector)


def test_an_index_that_was_moved_aside_is_told_until_the_next_one_is_complete(
    place: Place, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.index()
    damaged_with_rows(place, monkeypatch)
    server.control({"fault": "401"})
    place.index()
    assert "index_moved_aside" in codes(place)

    server.control({"fault": ""})
    provider_pauses.resume(place.agent)
    place.end_cooldowns()
    place.index()

    assert "index_moved_aside" not in codes(place)
    assert list(place.index_path.parent.glob("*.corrupt-*"))


def test_a_process_that_polls_is_told_while_it_runs_and_polls(place: Place) -> None:
    reason = (
        "inotify watches ran out, files are scanned every 10 s; more: sysctl fs.inotify.max_user_watches=9"
    )
    path, settings = place.agent.account_path, place.settings

    def told() -> set[str]:
        return {each.code for each in of_common(settings, [place.agent])}

    with home_processes.registered(path, home_processes.UP, ["main"], time.time(), SettingsFile()):
        home_processes.note_polling(path, reason)
        finding = one(list(of_common(settings, [place.agent])), "watches_exhausted")
        home_processes.note_polling(path, "")
        assert "watches_exhausted" not in told()
        home_processes.note_polling(path, reason)

    assert "watches ran out, files are scanned every 10 s (memline up on " in finding.what
    assert finding.action == "sudo sysctl fs.inotify.max_user_watches=9"
    assert "watches_exhausted" not in told()
