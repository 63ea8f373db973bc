"""Embed workers whose home is not that of the index: what they send is known and counted all the same."""

import shutil
from pathlib import Path

from tests.acceptance.conftest import write_notes
from tests.support.embedding_server import EmbeddingServer
from tests.support.fleet import Fleet
from tests.support.workspace import Place

#: Milliseconds of a request: it is under way while something else is done.
LATENCY_MS = 3_000

NOTES = 20


def start_elsewhere(fleet: Fleet, folder: Path) -> None:
    """Start an embed worker with a home and a configuration file of its own, as another host has."""
    folder.mkdir(exist_ok=True)
    config = shutil.copy(fleet.place.config, folder / "config.json5")
    name = fleet.address.rpartition("#")[2]
    env = {"MEMLINE_HOME": str(folder / "home"), "MEMLINE_CONFIG": config, "MEMLINE_QUEUE_NAME": name}
    fleet.start("embed", env=env)


def send_texts(fleet: Fleet, notes: Place, provider: EmbeddingServer, folder: Path) -> int:
    """Have a worker elsewhere send requests; returns how many texts there are."""
    texts = write_notes(notes, 0, NOTES)
    provider.control({"latency_ms": LATENCY_MS})
    start_elsewhere(fleet, folder / "elsewhere")
    fleet.start("watch")
    fleet.start_work("chunk", "store")
    fleet.until(lambda: len(provider.requests) >= 4, "requests at the provider")
    return texts


def is_done(fleet: Fleet, texts: int) -> bool:
    return fleet.vectors() == {"ready": texts} and fleet.queue("store").in_flight == 0


def is_counted(notes: Place, provider: EmbeddingServer) -> bool:
    return bool(notes.status()["spending"]["today"]["requests"] == len(provider.requests))


def pause(fleet: Fleet) -> None:
    assert fleet.run("queue", "pause").status == 0
    assert fleet.run("queue", "resume").status == 0


def test_what_a_worker_of_another_home_sends_is_never_taken_for_unsent(
    fleet: Fleet,
    notes: Place,
    provider: EmbeddingServer,
    tmp_path: Path,
) -> None:
    texts = send_texts(fleet, notes, provider, tmp_path)

    pause(fleet)
    fleet.until(lambda: is_done(fleet, texts), "all vectors")

    assert provider.repeated() == {}
    assert is_counted(notes, provider)


def test_what_a_killed_worker_of_another_home_sent_is_counted(
    fleet: Fleet, notes: Place, provider: EmbeddingServer, tmp_path: Path
) -> None:
    texts = send_texts(fleet, notes, provider, tmp_path)

    fleet.kill("embed")
    fleet.until(lambda: is_counted(notes, provider), "what was sent")
    provider.control({"latency_ms": 0})
    start_elsewhere(fleet, tmp_path / "elsewhere")
    fleet.until(lambda: is_done(fleet, texts), "all vectors")

    assert provider.repeated() != {}
    assert is_counted(notes, provider)
