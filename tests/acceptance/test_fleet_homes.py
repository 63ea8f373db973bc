"""An embed worker may have a home and a host of its own."""

import shutil

from tests.acceptance.conftest import write_notes


def test_what_a_worker_of_another_home_sends_is_stored_and_counted(fleet, notes, provider, tmp_path):
    texts = write_notes(notes, 0, 20)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    config = shutil.copy(notes.config, elsewhere / "config.json5")
    name = fleet.address.name
    env = {"MEMLINE_HOME": str(elsewhere / "home"), "MEMLINE_CONFIG": config, "MEMLINE_QUEUE_NAME": name}

    fleet.start("embed", env=env)
    fleet.start("watch")
    fleet.start_work("chunk", "store")
    fleet.until(lambda: fleet.vectors() == {"ready": texts}, "all vectors")

    assert provider.repeated() == {}
    assert notes.status()["spending"]["today"]["requests"] == len(provider.requests)
