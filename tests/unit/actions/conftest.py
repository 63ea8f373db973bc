from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.workspace import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A workspace with a note and without a provider."""
    place = Place(folder=tmp_path / "user")
    place.write("MEMORY.md", "# Notes\n\nThe queue is Redis.\n")
    return place
