import pytest

from memline.producers.reports.status import examine_agent, examine_common
from memline.shared.queue import fleet as fleet_module
from tests.support.embedding_server import EmbeddingServer
from tests.support.workspace import remote
from tests.unit.findings.conftest import fleet_now

pytestmark = pytest.mark.place(files={"memory/notes.md": "# Notes\n"})


def test_what_is_well_is_said_beside_what_is_not(place):
    place.configure(provider="none")
    before = [each.code for each in examine_agent(place.settings, place.agent)]
    place.index()

    assert before == ["first_index_missing", ""]
    assert [each.what for each in examine_agent(place.settings, place.agent)] == [
        f"1 file, 1 chunk, 0 vectors in {place.index_path}",
        "keyword search only: memorySearch.provider is none",
    ]


def test_a_fleet_whose_queues_are_served_is_well(place, monkeypatch):
    monkeypatch.setenv("MEMLINE_QUEUE_URL", "redis://127.0.0.1:1/0")

    def found(*roles):
        monkeypatch.setattr(fleet_module, "_fleets", {place.settings.queue: fleet_now(*roles)})
        return [each for each in examine_common(place.settings, [place.agent]) if "queue" in each.what]

    assert [each.what for each in found("chunk", "store", "query", "embed")] == [
        "queue: 4 workers in Redis, every queue that needs one is served"
    ]
    # No query worker is missed while no question waits for one.
    assert [each.code for each in found("chunk")] == ["role_missing"]
    assert [each.code for each in found("chunk", "store")] == [""]


def test_a_provider_is_asked_only_on_demand(place):
    with EmbeddingServer() as server:
        place.configure(**remote(server.url))
        place.index()
        sent = len(server.requests)

        assert "embeds with openai stub, not asked (memline doctor --deep)" in {
            each.what for each in examine_agent(place.settings, place.agent)
        }
        assert len(server.requests) == sent
        assert "embeds with openai stub, asked for one vector" in {
            each.what for each in examine_agent(place.settings, place.agent, deep=True)
        }
    found = list(examine_agent(place.settings, place.agent, deep=True))
    (finding,) = (each for each in found if each.level == "problem")
    assert finding.what.startswith("openai does not embed: ")
    assert not any(each.what.startswith("embeds with") for each in found)
