import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from memline.shared.config.load import Options, load
from tests.support.qmd import FakeQmd


@dataclass(slots=True, kw_only=True)
class Place:
    """A workspace, and a program that stands for qmd."""

    folder: Path
    qmd: FakeQmd

    @property
    def notes(self):
        return self.folder / "notes"

    def settings(self, **qmd):
        """The configuration with these keys of `memory.qmd`; longer limits, for a loaded machine."""
        own = {"command": f"'{self.qmd.program}' ignored words", "searchMode": "search", **qmd}
        own["limits"] = {"timeoutMs": 120_000, **own.get("limits", {})}
        memory = {"backend": "qmd", "qmd": own}
        file = self.folder / "c.json5"
        agents = {"defaults": {"workspace": str(self.notes)}}
        file.write_text(json.dumps({"agents": agents, "memory": memory}))
        return load(Options(config=file, home=self.folder / "home"))

    def agent(self, **qmd):
        return self.settings(**qmd).agents["main"]


@pytest.fixture
def place(tmp_path):
    place = Place(folder=tmp_path, qmd=FakeQmd(tmp_path / "bin with blanks"))
    (place.notes / "memory").mkdir(parents=True)
    (place.notes / "MEMORY.md").write_text("# Facts\n\nInvoices are whole cents.\n")
    (place.notes / "memory" / "2026-02-10.md").write_text("Deploy failed with ERR_CONN_42.\n")
    return place
