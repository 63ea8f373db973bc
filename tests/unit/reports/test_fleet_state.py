import pytest

from memline.producers.reports.fleet_state import agent_state, eta_s, fleet_state, queue_url, state_of
from memline.shared.errors import QueueError
from memline.shared.findings.facts import embeds
from memline.shared.index.driver import transaction
from memline.shared.index_writer import IndexWriter
from memline.shared.scheduling import health
from memline.shared.scheduling.breaker import Health
from tests.support.index_rows import MODEL_A, answer, file_row, lease_all
from tests.support.workspace import Place, remote
from tests.unit.findings.conftest import fleet

pytestmark = pytest.mark.place(**remote("http://127.0.0.1:9/v1"))


def test_without_a_queue_there_is_no_fleet(place: Place) -> None:
    with pytest.raises(QueueError, match="there is no queue") as raised:
        fleet_state(place.settings, [place.agent])

    assert "memline status" in raised.value.hint


def test_the_queue_is_the_configured_one(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMLINE_QUEUE_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("MEMLINE_QUEUE_NAME", "team")

    assert queue_url(place.settings) == "redis://127.0.0.1:1/0#team"


def test_an_agent_without_an_index_has_no_state(place: Place) -> None:
    assert agent_state(place.agent) is None


def test_the_state_of_an_agent_counts_vectors_and_names_its_provider_first(place: Place) -> None:
    writer = IndexWriter.of(place.agent)
    writer.retarget(MODEL_A)
    writer.store_file(file_row("a.md", "apples"))
    answer(writer, lease_all(writer))
    writer.store_file(file_row("b.md", "pears"))
    with transaction(writer.connection):
        health.set_paused(writer.accounts, "voyage", True, health.REQUESTS)
    writer.close()

    state = agent_state(place.agent)

    assert state is not None
    assert (state["vectors"]["ready"], state["vectors"]["wanted"], state["requestsOut"]) == (1, 1, 0)
    first, second = state["providers"]
    assert (first["name"], first["state"]) == ("openai", "ok")
    assert (second["name"], second["state"]) == ("voyage", "paused")
    assert second["reason"] == "embedding is paused for requests to voyage"
    assert second["action"] == "memline queue resume --provider voyage --mode requests"


@pytest.mark.parametrize(("wanted", "leased", "rate", "seconds"), [(30, 10, 4.0, 10.0), (0, 0, 4.0, None)])
def test_the_time_left_is_known_when_something_is_pending_at_a_known_rate(
    wanted: int, leased: int, rate: float, seconds: float | None
) -> None:
    assert eta_s({"wanted": wanted, "leased": leased}, rate, is_stopped=False) == seconds
    assert eta_s({"wanted": wanted, "leased": leased}, 0.0, is_stopped=False) is None
    assert eta_s({"wanted": wanted, "leased": leased}, rate, is_stopped=True) is None


@pytest.mark.parametrize(
    ("health", "state"),
    [
        (Health(), "ok"),
        (Health(failures=1), "cooldown"),
        (Health(retry_at=2**40), "cooldown"),
    ],
)
def test_a_provider_is_not_ok_between_tries_that_failed(health: Health, state: str) -> None:
    assert state_of(health) == state


@pytest.mark.parametrize(
    ("roles", "does"), [((), False), (("store",), False), (("embed",), False), (("store", "embed"), True)]
)
def test_a_fleet_embeds_while_each_of_its_two_roles_is_alive(
    monkeypatch: pytest.MonkeyPatch, roles: tuple[str, ...], does: bool
) -> None:
    monkeypatch.setattr("memline.shared.findings.facts.fleet_at", lambda _: fleet(*roles))

    assert embeds("redis://h/0#name") is does
    assert not embeds("")
