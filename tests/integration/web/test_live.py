"""What the pages follow: read once for all who watch, again when something changed, kept for the charts."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import anyio
import pytest

from memline.producers.web import live
from memline.producers.web.event_stream import EventStream
from memline.producers.web.live import LiveFigures
from memline.producers.web.queues_page import paused_agents
from memline.producers.web.rendering import Renderer, Static
from memline.producers.web.snapshot import Snapshot
from memline.producers.web.strip import Strip, strip_of
from memline.shared.config.schema import AgentSettings
from memline.shared.index import meta
from memline.shared.index_writer import IndexWriter
from memline.shared.scheduling import health
from memline.shared.values import replace
from tests.integration.web.conftest import configure
from tests.support.index_rows import MODEL_A, add_batch, answer, fail, file_row, lease_all, make_job
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


def test_what_a_look_says_is_made_once_for_all_streams(notes: Place) -> None:
    figures, made, events = figures_of(notes), list[str](), list[str]()
    figures.read(0)

    def counted(snapshot: Snapshot, only: str) -> Strip:
        made.append(only)
        return strip_of(snapshot, only, has_page=lambda _: True)

    stream = EventStream(figures, Renderer(Static()), counted)

    async def follow(only: str) -> None:
        said = stream.told(only, lambda: True, lambda: False)
        await anext(said)
        events.append(await anext(said))
        await said.aclose()  # type: ignore[attr-defined]

    async def follow_all() -> None:
        for only in ("", "work") * 5:
            await follow(only)

    anyio.run(follow_all)

    assert made == ["", "work"]
    assert len(events) == 10 and len(set(events)) == 2


def test_the_pace_says_what_texts_wait_for_and_all_are_there_only_when_they_are(notes: Place) -> None:
    def pace(**change: Any) -> str:
        snapshot = figures_of(notes).read(0)
        # The files of these rows are not on the disk.
        agent = replace(snapshot.agents["work"], **({"files_behind": 0} | change))
        return replace(snapshot, agents={"work": agent}).figures("work")["pace"]

    assert pace() == "no vector is there yet"
    with closing(IndexWriter.of(notes.settings.agents["work"])) as writer:
        writer.retarget(MODEL_A)
        job = make_job(writer, "memory/a.md")
        writer.store_file(file_row("memory/a.md", "one text"), job=job.token)
        answer(writer, lease_all(writer))
        assert pace() == "all are there"
        assert pace(files_behind=1) == "files are behind"

        writer.store_file(file_row("memory/b.md", "another", "a third"))
        meta.put(writer.connection, meta.PAUSED, True)
        assert pace() == "paused"
        meta.put(writer.connection, meta.PAUSED, None)
        health.set_paused(writer.accounts, "openai", True, health.BATCH)
        # Nothing waits for batches: it goes on, in requests.
        assert pace().startswith("rate ")
        fail(writer, lease_all(writer)[0], "stop")
        assert pace() == "the provider stopped"
        health.retry(writer.accounts, "openai", 0.0)
        writer.connection.execute("UPDATE vectors SET state = 'wanted', priority = 3 WHERE state <> 'ready'")
        assert pace() == "2 others wait for a paused job"
        add_batch(writer, "b" * 32, texts=1, job_id="batch_1", created_at=1.0, due=9e12)
        assert pace() == "in a batch"
    notes.settings.agents["main"].index_path.unlink()
    assert figures_of(notes).read(0).figures("main")["pace"] == "no vector is there yet"


def test_a_pause_of_requests_is_not_one_of_batches(notes: Place) -> None:
    with closing(IndexWriter.of(notes.settings.agents["work"])) as writer:
        writer.retarget(MODEL_A)
        writer.store_file(file_row("memory/a.md", "one text"))
        health.set_paused(writer.accounts, "openai", True, health.REQUESTS)

    snapshot = figures_of(notes).read(0)

    agents = list(snapshot.agents.values())
    assert (paused_agents(agents, health.REQUESTS), paused_agents(agents, health.BATCH)) == (("work",), ())
