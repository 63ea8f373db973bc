"""One trace from a save or a question through the processes of a fleet, received as a collector does."""

from collections.abc import Iterator

import pytest

from tests.acceptance.conftest import TEXTS
from tests.support.fleet import Fleet
from tests.support.otlp_server import OtlpServer, Received
from tests.support.redis_server import RedisServer
from tests.support.workspace import Place, note

#: What no span may hold.
SECRET = "sk-proj-0123456789abcdefghij"


@pytest.fixture
def collector() -> Iterator[OtlpServer]:
    with OtlpServer() as running:
        yield running


def path_to(spans: list[Received], span: Received) -> list[str]:
    """The names from the root of a trace to one of its spans."""
    by_id = {each.id: each for each in spans if each.trace == span.trace}
    names = [span.name]
    while span.parent:
        span = by_id[span.parent]
        names.insert(0, span.name)
    return names


def save(place: Place, number: int, text: str) -> None:
    """Save a note in one step: one that is begun, and written later, is two saves on a loaded machine."""
    part = place.folder / "part"
    part.write_text(text)
    part.rename(place.workspace / f"memory/note-{number}.md")


def test_a_save_and_a_question_are_one_trace_each_and_a_shared_request_links_its_saves(
    notes: Place, redis_server: RedisServer, collector: OtlpServer
) -> None:
    # Nothing is sent before a process ends: its last spans arrive all the same.
    traced = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "3600000"}
    notes.write("memory/note-1.md", note(1))
    with Fleet(notes, redis_server.url, **traced) as fleet:
        fleet.start("watch", "embed")
        fleet.start_work("chunk", "store", "query")
        fleet.until(lambda: fleet.vectors() == {"ready": TEXTS}, "the first import")

        # One save.
        save(notes, 2, note(2) + SECRET)
        fleet.until(lambda: fleet.vectors() == {"ready": 2 * TEXTS}, "the vectors of a save")
        # Two saves, whose texts wait for each other.
        assert fleet.run("queue", "pause").status == 0
        for number in (3, 4):
            save(notes, number, note(number))
            wanted = {"ready": 2 * TEXTS, "wanted": (number - 2) * TEXTS}
            fleet.until(lambda wanted=wanted: fleet.vectors() == wanted, "the texts of a save")
        assert fleet.run("queue", "resume").status == 0
        fleet.until(lambda: fleet.vectors() == {"ready": 4 * TEXTS}, "the vectors of both")
        # A question.
        answer = notes.run(
            *("search", "word2x0", "--json"),
            env={"MEMLINE_QUEUE_URL": redis_server.url, **traced},
            # On a loaded machine the worker takes it later.
            before="from memline.shared.queue import replies; replies.TAKEN_S = 120",
        )
        assert answer.status == 0 and answer.json["results"], answer.stderr

        assert collector.named("search")
        fleet.terminate("watch", "embed", "work")
        assert [fleet.ended(label) for label in ("watch", "embed", "work")] == [0, 0, 0]

    spans = collector.spans
    chain = ["save", "process chunk", "process store", "process embed", "process store"]
    stored = collector.named("process store", memline_actor="store_vectors")
    assert [path_to(spans, span) for span in stored] == [chain] * len(stored)
    asked = [span for span in spans if span.name.startswith("embeddings ")]
    assert sorted(map(tuple, (path_to(spans, span)[:-1] for span in asked))) == sorted(
        [*[tuple(chain[:4])] * (len(asked) - 1), ("search", "process query")]
    )
    # The processes are different ones, and say which.
    saves = collector.named("save")
    assert [span.attributes["memline.files"] for span in saves] == [1, 1, 1]
    assert {span.resource["service.name"] for span in spans} == {"memline"}

    requests = collector.named("process embed")
    linked = [span for span in requests if span.links]
    assert linked, [span.name for span in spans]
    for span in linked:
        others = [each for each in spans if each.id in span.links]
        assert [each.attributes["memline.actor"] for each in others] == ["store_files"] * len(span.links)
        assert {each.trace for each in others} <= {each.trace for each in saves} - {span.trace}

    span = stored[0]
    assert span.attributes["messaging.operation.type"] == "process"
    assert span.attributes["messaging.destination.name"] == "store"
    assert asked[0].attributes["gen_ai.operation.name"] == "embeddings"
    assert asked[0].attributes["gen_ai.provider.name"] == "openai"
    sent = b"".join(collector.bodies)
    for text in (SECRET, "word2x0", "word3x1", "note-2", notes.memory["remote"]["apiKey"]):
        assert text.encode() not in sent
