"""The life of a batch in one process, over real HTTP: made, submitted, collected, cleaned up."""

import pytest

from tests.support.embedding_server import EmbeddingServer, GeminiServer, VoyageServer
from tests.support.workspace import note, remote

#: Texts of a note, and notes that are worth a batch here.
TEXTS, NOTES = 3, 8

BATCH = {"enabled": True, "minTexts": 10, "pollIntervalMs": 50}


@pytest.fixture(params=["openai", "gemini", "voyage"])
def provider(request):
    """Each provider that has a Batch API."""
    servers = {"openai": EmbeddingServer, "gemini": GeminiServer, "voyage": VoyageServer}
    with servers[request.param](dims=16) as running:
        yield request.param, running


def use(place, server, **batch):
    """Make the stub the provider, by batch."""
    place.configure(**remote(server.url, batch=BATCH | batch))


def write(place, notes=NOTES, *, first=0):
    """Write notes; how many texts they have."""
    for number in range(first, first + notes):
        place.write(f"memory/note-{number}.md", note(number))
    return TEXTS * notes


def jobs(server):
    return server.log()["batch"]["jobs"]


def test_a_first_index_goes_by_one_batch_and_leaves_nothing_at_the_provider(place, provider):
    name, server = provider
    use(place, server)
    place.configure(provider=name, model="")
    texts = write(place)

    report = place.index()

    assert not report.failed
    assert report.vectors == {"embedded": texts, "cached": 0, "pending": 0, "failed": 0}
    (job,) = jobs(server)
    assert (job["rows"], job["agent"]) == (texts, "main")
    assert server.log()["batch"]["files"] == 0
    assert server.requests == [], "no text went out in a request"
    assert place.rows("SELECT state, outcome, rows, stored FROM batches") == [
        ("closed", "done", texts, texts)
    ]
    assert len(place.contents().vectors) == texts


def test_two_open_batches_that_no_run_waited_for_are_collected_by_the_next(place, server):
    server.control({"batch": {"looks": 3, "latency_ms": 100}})
    use(place, server, wait=False, pollIntervalMs=60_000)
    texts = write(place)
    first = place.index()
    texts += write(place, first=NOTES)
    place.index()

    use(place, server)
    report = place.index()

    (note_,) = (each for each in first.findings if each.code == "in_batch")
    assert "24 texts are in 1 batch at openai" in note_.what
    assert (first.failed, first.warning, first.vectors["pending"]) == (False, "", texts // 2)
    assert report.vectors["embedded"] == texts
    assert report.seconds < 20, "none waits until its worker is called again"
    assert len(jobs(server)) == 2
