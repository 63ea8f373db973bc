"""What is forgotten is in no file of qmd's home, and no answer shows it."""

import json
from pathlib import Path

import pytest

from memline.producers.actions.forget import forget
from memline.producers.actions.forget_targets import targets_of_path
from memline.producers.bridges.qmd.updates import Updater
from memline.producers.memory import Memory
from tests.support.qmd import row
from tests.support.transcripts import opening, said, sessions_folder
from tests.unit.bridges.qmd.conftest import Place

SECRET = "The quixotzalp opens the door."

#: Copies the notes into the index, as qmd does.
KEEP = (
    "import glob\n"
    "with open(os.environ['XDG_CACHE_HOME'] + '/qmd/index.sqlite', 'w') as index:\n"
    " for root, mask in json.load(open(config)).values():\n"
    "  for note in glob.glob(root + '/' + mask.split('{')[0] + '*', recursive=True):\n"
    "   index.write(open(note).read())"
)


def files_with(folder: Path) -> list[str]:
    return [each.name for each in folder.rglob("*") if each.is_file() and b"quixotzalp" in each.read_bytes()]


@pytest.mark.parametrize("keep", [False, True])
def test_index_and_exports_lose_it(place: Place, home: Path, keep: bool) -> None:
    place.qmd.does(update={"python": KEEP})
    note = place.notes / "memory" / "2026-02-10.md"
    note.write_text(f"first\n{SECRET}\nlast\n")
    session = sessions_folder(home / ".openclaw") / "s.jsonl"
    session.write_text(opening() + said("user", SECRET) + said("user", "hello"))
    settings = place.settings(sessions={"enabled": True})
    agent = settings.agents["main"]
    place.qmd.does(
        search={
            "stdout": json.dumps([row("memory-dir-main/2026-02-10.md", text=f"@@ -2,2 @@\n{SECRET}\nlast")])
        }
    )
    with Memory.of(settings, agent) as memory:
        memory.index()
        assert sorted(files_with(agent.home / "qmd")) == ["index.sqlite", "s.md"]

        for path in ("memory/2026-02-10.md#L2", "sessions/s.jsonl"):
            forget(agent, targets_of_path(agent, path), keep_note=keep)
        assert files_with(agent.home) == []

        memory.index()
        hits = memory.search("door").hits

    exports = Updater(agent).home.exports
    assert "hello" not in (exports / "s.md").read_text() and files_with(exports) == []
    assert all("quixotzalp" not in hit.snippet for hit in hits) or not keep
    assert files_with(agent.home) == (["index.sqlite"] if keep else [])
