from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.clock import ManualClock
from shared.index.writer import IndexWriter


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory" / "main.sqlite"


@pytest.fixture
def writer(path: Path, clock: ManualClock) -> Iterator[IndexWriter]:
    opened = IndexWriter(path, clock=clock)
    yield opened
    opened.close()
