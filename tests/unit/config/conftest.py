import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memline.shared.config.load import Loaded, Options, load

Loader = Callable[..., Loaded]


@pytest.fixture
def read(home: Path, tmp_path: Path) -> Loader:
    """Load a configuration of this content, with these variables and options."""

    def read(
        content: dict[str, Any] | None = None, env: dict[str, str] | None = None, **options: Any
    ) -> Loaded:
        if content is not None:
            (tmp_path / "c.json5").write_text(json.dumps(content))
            options["config"] = tmp_path / "c.json5"
        return load(Options(**options), {"HOME": str(home), **(env or {})})

    return read


def memory(**keys: Any) -> dict[str, Any]:
    return {"agents": {"defaults": {"workspace": "/w", "memorySearch": keys}}}
