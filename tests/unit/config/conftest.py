import json

import pytest

from memline.shared.config.load import Options, load


@pytest.fixture
def read(home, tmp_path):
    """Load a configuration of this content, with these variables and options."""

    def read(content=None, env=None, **options):
        if content is not None:
            (tmp_path / "c.json5").write_text(json.dumps(content))
            options["config"] = tmp_path / "c.json5"
        return load(Options(**options), {"HOME": str(home), **(env or {})})

    return read


def memory(**keys):
    return {"agents": {"defaults": {"workspace": "/w", "memorySearch": keys}}}
