"""The HTTP API with tokens and several agents: what each opens."""

import json
import re
from typing import Any

import httpx
import pytest
from jsonschema import validate

from memline.producers.calls.arguments import answers
from memline.producers.calls.memory_calls import APPEND
from memline.producers.calls.table import CALLS
from memline.producers.http import auth
from tests.support.http_api import refused, serving
from tests.support.workspace import Place

ALL, WORK, READS = "token-for-all", "token-for-work", "token-that-reads"


@pytest.fixture
def notes(place: Place) -> Place:
    place.write("MEMORY.md", "# Facts\n\nInvoices are whole cents.\n")
    # A search brings changed files in for a second and a half, which is short on a loaded machine.
    place.index()
    return place


def with_agents(place: Place) -> Any:
    """Settings of two agents, and tokens."""
    place.write("../other/MEMORY.md", "The vault code is 7341.\n")
    listed = [
        {"id": "main", "default": True, "workspace": str(place.workspace)},
        {"id": "work", "workspace": str(place.folder / "other")},
    ]
    place.config.write_text(
        json.dumps({"agents": {"list": listed}, "serve": {"token": ALL, "tokens": {"work": WORK}}})
    )
    return place.settings


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def found(client: httpx.Client, query: str, token: str, **params: str) -> list[str]:
    answer = client.get("/search", params={"query": query, **params}, headers=bearer(token))
    assert answer.status_code == 200, answer.text
    return [hit["path"] for hit in answer.json()["results"]]


def test_with_tokens_each_opens_its_agent_and_nothing_else(notes: Place) -> None:
    with serving(with_agents(notes)) as url, httpx.Client(base_url=url, timeout=120) as client:
        assert "a token is needed" in refused(client.get("/search", params={"query": "x"}), 401)
        assert "not known" in refused(client.get("/status", headers=bearer("wrong-token")), 401)
        assert client.get("/status").headers["www-authenticate"] == "Bearer"
        assert client.get("/health").status_code == client.get("/ready").status_code == 200

        assert found(client, "vault", WORK) == ["MEMORY.md"]
        assert found(client, "cents", WORK) == []
        assert found(client, "cents", ALL) == ["MEMORY.md"]
        assert found(client, "vault", ALL) == []
        assert found(client, "vault", ALL, agent="work") == ["MEMORY.md"]
        for agent in ("main", "nobody"):
            said = refused(client.get("/status", params={"agent": agent}, headers=bearer(WORK)), 403)
            assert (
                said.replace(agent, "AGENT")
                == "this token does not open the agent 'AGENT' | leave agent out, or name work"
            )
        assert "name one of these: main, work" in refused(
            client.get("/status", params={"agent": "nobody"}, headers=bearer(ALL)), 404
        )


def test_a_token_that_reads_may_search_and_changes_nothing(notes: Place) -> None:
    before = (notes.workspace / "MEMORY.md").read_text()
    with_agents(notes)
    content = json.loads(notes.config.read_text())
    content["serve"] = {"tokens": [{"name": "wall", "token": READS, "role": "reader"}]}
    content["agents"]["defaults"] = {"memorySearch": {"append": {"enabled": True}}}
    notes.config.write_text(json.dumps(content))
    actions = [call for call in CALLS.values() if call.http and call.audit]
    assert "append" in [call.name for call in actions]

    with serving(notes.settings) as url, httpx.Client(base_url=url, timeout=120) as client:
        assert found(client, "cents", READS) == ["MEMORY.md"]
        assert found(client, "vault", READS, agent="work") == ["MEMORY.md"]
        for path in ("/status", "/overview", "/jobs", "/metrics"):
            assert client.get(path, headers=bearer(READS)).status_code == 200
        for call in actions:
            path = re.sub("{.*?}", "x", call.path)
            answer = client.post(path, json={"text": "x"} if call is APPEND else {}, headers=bearer(READS))
            assert "this token only reads" in refused(answer, 403)

    assert (notes.workspace / "MEMORY.md").read_text() == before and not (notes.workspace / "memory").exists()


def test_a_client_that_repeats_wrong_tokens_has_to_wait(notes: Place) -> None:
    with serving(with_agents(notes)) as url, httpx.Client(base_url=url, timeout=120) as client:
        for _ in range(auth.MAX_WRONG_TOKENS):
            refused(client.get("/status", headers=bearer("wrong-token")), 401)

        answer = client.get("/status", headers=bearer("another-wrong-token"))

        assert "too many wrong tokens" in refused(answer, 429)
        assert int(answer.headers["retry-after"]) <= 61
        # Through a proxy all clients have this address.
        assert client.get("/status", headers=bearer(ALL)).status_code == 200


def test_the_overview_is_of_the_agents_that_a_token_opens(notes: Place) -> None:
    with serving(with_agents(notes)) as url, httpx.Client(base_url=url, timeout=120) as client:
        refused(client.get("/overview"), 401)
        whole, part = (client.get("/overview", headers=bearer(token)).json() for token in (ALL, WORK))

        metrics = client.get("/metrics", headers=bearer(ALL))
        refused(client.get("/metrics", headers=bearer(WORK)), 403)

    assert 'memline_index_up{agent="work"} 1.0' in metrics.text
    for overview in (whole, part):
        validate(overview, answers()["overview"])
    assert [agent["agentId"] for agent in whole["agents"]] == ["main", "work"]
    assert [agent["agentId"] for agent in part["agents"]] == ["work"]
