"""What the pages follow: read once for all who watch, again when something changed, kept for the charts."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from memline.producers.web import live
from memline.producers.web.live import LiveFigures
from memline.shared.config.schema import AgentSettings
from memline.shared.index_writer import IndexWriter
from tests.integration.web.conftest import configure
from tests.support.index_rows import MODEL_A, file_row
from tests.support.workspace import Place, until


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The agents whose rows were read, in this order."""
    read: list[str] = []
    original = live.agent_state

    def counted(settings: AgentSettings, *args: Any, **options: Any) -> object:
        read.append(settings.agent)
        return original(settings, *args, **options)

    monkeypatch.setattr(live, "agent_state", counted)
    yield read


def figures_of(place: Place) -> LiveFigures:
    settings = configure(place).settings
    return LiveFigures(settings, list(settings.agents.values()))


def test_rows_are_read_again_only_when_the_index_changed(notes: Place, reads: list[str]) -> None:
    figures = figures_of(notes)
    figures.read(0)
    assert sorted(reads) == ["main", "work"]

    figures.read(0)
    assert len(reads) == 2
    with closing(IndexWriter.of(notes.settings.agents["work"])) as writer:
        writer.retarget(MODEL_A)
        writer.store_file(file_row("memory/a.md", "one text"))
    snapshot = figures.read(0)

    assert reads[2:] == ["work"]
    assert (snapshot.figures("work")["wanted"], snapshot.figures("main")["wanted"]) == ("2", "0")
    assert snapshot.figures("")["wanted"] == "2"


def test_rows_that_take_long_are_read_beside_the_pages(
    notes: Place, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whatever they take is long, and may be all of the time.
    monkeypatch.setattr(live, "SLOW_S", -1.0)
    monkeypatch.setattr(live, "SLOW_SHARE", 1e9)
    figures = figures_of(notes)
    figures.read(0)

    def store(text: str) -> None:
        with closing(IndexWriter.of(notes.settings.agents["work"])) as writer:
            writer.retarget(MODEL_A)
            writer.store_file(file_row(f"memory/{text}.md", text))

    def wanted() -> str:
        return figures.read(0).figures("work")["wanted"]

    store("one")
    assert wanted() == "0"
    until(lambda: wanted() == "2", "the rows that were read beside")
    store("two")
    figures.forget()
    assert wanted() == "3"


def test_a_state_that_was_just_read_is_given_to_all(notes: Place, reads: list[str]) -> None:
    figures = figures_of(notes)

    assert figures.read(60) is figures.read(60)
    assert len(reads) == 2


def test_an_index_that_cannot_be_read_is_said_and_harms_no_other(notes: Place) -> None:
    settings = configure(notes).settings
    settings.agents["work"].index_path.write_bytes(b"not an index" * 500)

    snapshot = figures_of(notes).read(0)

    assert snapshot.agents["work"].error and not snapshot.agents["main"].error
    assert snapshot.topics("main") != snapshot.topics("work")
