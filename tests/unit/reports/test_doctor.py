from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from memline.producers.reports import doctor
from memline.producers.reports.doctor import Finding, examine_agent, examine_fleet, examine_installation
from memline.producers.watching.loop_errors import FLUSH, LoopErrors
from memline.shared.index import meta
from memline.shared.index_writer import IndexWriter
from memline.shared.queue import depth
from memline.shared.queue.depth import Fleet, QueueDepth
from memline.shared.queue.worker_registry import WorkerInfo
from memline.shared.scheduling import health
from memline.shared.scheduling.breaker import Health
from tests.support.embedding_server import EmbeddingServer
from tests.support.index_rows import MODEL_A
from tests.support.workspace import Place, remote


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(folder=tmp_path / "user")
    place.write("memory/notes.md", "# Notes\n")
    return place


def levels(findings: list[Finding]) -> set[str]:
    return {finding.level for finding in findings}


def troubles(place: Place) -> list[Finding]:
    return [finding for finding in examine_agent(place.agent) if finding.level != "ok"]


def test_an_installation_with_everything_has_no_finding_to_fix() -> None:
    findings = list(examine_installation())

    assert "problem" not in levels(findings)
    assert findings[0].what.startswith("SQLite ")
    assert findings[0]._asdict() == {"level": "ok", "what": findings[0].what, "fix": ""}


def test_a_healthy_agent_has_no_trouble(place: Place) -> None:
    assert [finding.what for finding in troubles(place)] == [
        f"agent main: nothing is indexed yet, {place.index_path} is missing",
        "agent main: 1 file and 0 vectors behind",
    ]

    place.index()

    assert troubles(place) == []


def test_a_workspace_that_is_missing_is_the_only_finding(place: Place) -> None:
    place.workspace.rename(place.folder / "elsewhere")

    (finding,) = examine_agent(place.agent)

    assert (finding.level, finding.fix) == ("problem", "memline --workspace DIR index")


def test_a_provider_that_was_named_and_has_no_key_is_a_problem(place: Place) -> None:
    place.configure(provider="openai")
    place.index()

    (finding,) = troubles(place)

    assert "keyword search only" in finding.what
    assert "OPENAI_API_KEY" in finding.fix


def test_an_open_breaker_is_a_problem_and_one_of_batches_a_warning(place: Place) -> None:
    place.configure(**remote("http://127.0.0.1:9/v1", batch={"enabled": True}))
    writer = IndexWriter.of(place.agent)
    with writer.session() as (_, now):
        writer.retarget(MODEL_A)
        opened = Health(state="open", reason="bad key", action="check the key", probe_at=now + 60)
        for mode in health.MODES:
            health.update(writer.accounts, "openai", mode, now, lambda _: opened)
    writer.close()

    found = {(each.level, each.what, each.fix) for each in troubles(place)}

    assert ("problem", "agent main: no requests to openai: bad key", "check the key") in found
    assert (
        "warning",
        "agent main: no batch to openai (requests go on): bad key",
        "check the key",
    ) in found


def test_what_up_cannot_go_on_with_is_a_problem(place: Place) -> None:
    place.index()
    with LoopErrors().guard(place.agent, FLUSH):
        raise OSError(13, "Permission denied", "/sessions")

    (finding,) = troubles(place)

    assert finding.what.endswith("cannot go on with its flush: /sessions: permission denied")
    assert finding.fix == "memline doctor"


def test_a_disk_that_is_nearly_full_is_a_warning(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.index()
    monkeypatch.setattr(doctor, "LOW_DISK_BYTES", 2**62)

    (finding,) = troubles(place)

    assert "MiB are free" in finding.what


def test_a_provider_is_asked_only_on_demand(place: Place) -> None:
    with EmbeddingServer() as server:
        place.configure(**remote(server.url))
        place.index()
        sent = len(server.requests)

        assert "agent main: embeds with openai stub, not asked (memline doctor --deep)" in {
            each.what for each in examine_agent(place.agent)
        }
        assert len(server.requests) == sent
        assert "agent main: embeds with openai stub, asked for one vector" in {
            each.what for each in examine_agent(place.agent, deep=True)
        }
    (finding,) = (each for each in examine_agent(place.agent, deep=True) if each.level == "problem")
    assert finding.what.startswith("agent main: openai does not embed: ")


def test_a_broken_extension_path_is_a_problem(place: Place) -> None:
    place.configure(store={"vector": {"extensionPath": str(place.folder / "none.so")}})
    place.index()

    (finding,) = troubles(place)

    assert (finding.level, "store.vector.extensionPath cannot be loaded" in finding.what) == ("problem", True)


def test_a_folder_without_notes_is_told(place: Place) -> None:
    (place.workspace / "memory/notes.md").unlink()

    (finding,) = (each for each in troubles(place) if "Markdown" in each.what)

    assert finding.what == f"agent main: there is no Markdown in {place.workspace}"
    place.write("docs/a.md", "A.")
    (finding,) = (each for each in troubles(place) if "Markdown" in each.what)
    assert finding.what == f"agent main: 1 Markdown file below {place.workspace}, and none is read"


def test_a_key_that_is_not_used_is_told(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    place.configure(provider="none")
    place.index()

    (finding,) = troubles(place)

    assert "a key of openai is set and not used" in finding.what


def fleet(*workers: str, dead: int = 0, failure: str = "") -> Fleet:
    """A fleet of one index host, `kelp`, with a worker for each of these roles."""
    queues = tuple(
        QueueDepth(
            name=role if role == "embed" else f"{role}@kelp",
            role=role,
            host="" if role == "embed" else "kelp",
            waiting=0,
            in_flight=0,
            delayed=0,
            dead=dead if role == "chunk" else 0,
            oldest_s=0,
            rate_per_minute=0,
        )
        for role in ("chunk", "embed", "store", "query")
    )
    alive = tuple(
        WorkerInfo(
            id=role,
            threads_of={role: 1},
            host="h",
            index_host="kelp",
            pid=1,
            version="1",
            started=0,
            last_seen=0,
            busy_s=0,
        )
        for role in workers
    )
    return Fleet(queues=queues, workers=alive, used_memory=1, worker_failure=failure)


def test_a_fleet_without_a_worker_that_is_needed_is_a_warning(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMLINE_QUEUE_URL", "redis://127.0.0.1:1/0")

    def found(state: Fleet) -> list[tuple[str, str, str]]:
        monkeypatch.setattr(depth, "read", lambda _: state)
        return [tuple(each) for each in examine_fleet(place.settings, [place.agent])]  # type: ignore[misc]

    assert found(fleet()) == [("warning", "queue: no worker is alive", "memline fleet")]
    assert found(fleet("chunk", "store", "query", "embed")) == [
        ("ok", "queue: 4 workers in Redis, every queue is served", "")
    ]
    # Nothing embeds here, so no worker of `embed` is missed.
    assert found(fleet("chunk", "store", dead=2, failure="killed")) == [
        ("warning", "queue: no worker takes messages from query@kelp", "memline worker query   (on kelp)"),
        ("warning", "queue: a worker ended in the last ten minutes: killed", "see its log"),
        ("warning", "queue: 2 messages failed for good", "memline queue dead"),
    ]


def test_a_redis_that_does_not_answer_is_a_problem_and_none_is_not(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(examine_fleet(place.settings, [place.agent])) == []
    monkeypatch.setenv("MEMLINE_QUEUE_URL", "redis://127.0.0.1:1/0")

    assert levels(list(examine_fleet(place.settings, [place.agent]))) == {"problem"}


@pytest.mark.parametrize(("left", "level"), [(True, "problem"), (False, "warning")])
def test_an_index_that_moves_to_another_host_is_named(place: Place, left: bool, level: str) -> None:
    place.index()
    with closing(IndexWriter.of(place.agent)) as writer, writer.transaction() as (connection, _):
        meta.put(connection, meta.MOVING, {"host": "two", "left": left})

    found = [each for each in examine_agent(place.agent) if "index host two" in each.what]

    assert [each.level for each in found] == [level]
    assert found[0].fix.startswith("memline agent ")
    assert place.status()["moving"]["host"] == "two"
