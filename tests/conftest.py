"""What every test stands on: a home of its own, and none of the developer's variables."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_FOREIGN = (
    "MEMLINE_",
    "OPENCLAW_",
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
