"""What every test stands on: a home of its own, and none of the developer's variables."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

_FOREIGN = (
    "MEMLINE_",
    "OPENCLAW_",
    "CLAUDE_",
    "XDG_",
    "OPENAI_",
    "GEMINI_",
    "GOOGLE_",
    "VOYAGE_",
    "MISTRAL_",
    "_MEMLINE_",
)


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's home directory of this test: empty, and nowhere near a real one."""
    for name in [name for name in os.environ if name.startswith(_FOREIGN)]:
        monkeypatch.delenv(name)
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.fixture(scope="session")
def onnx_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a real ONNX model, made once for all processes of a test session."""
    from tests.support.local_model import MODEL
    from tests.support.onnx_model import make

    base = tmp_path_factory.getbasetemp()
    session = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = session / "all-MiniLM-L6-v2"
    with (session / "all-MiniLM-L6-v2.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "model.onnx").is_file():
            make(MODEL, folder)
    return folder


#: The rings of tests, those that take longest first: what is started last must be short.
_RINGS = ("acceptance", "integration", "unit")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run whole processes first, unit tests last, so that no long test begins when the others are done."""
    items.sort(
        key=lambda item: next((n for n, ring in enumerate(_RINGS) if f"/{ring}/" in str(item.path)), 0)
    )
