"""The HTTP API with tokens and several agents: what each opens."""

import json

import httpx
import pytest

from memline.producers.api import auth
from tests.support.http_api import refused, serving

ALL, WORK = "token-for-all", "token-for-work"


@pytest.fixture
def notes(place):
    place.write("MEMORY.md", "# Facts\n\nInvoices are whole cents.\n")
    # A search brings changed files in for a second and a half, which is short on a loaded machine.
    place.index()
    return place


def with_agents(place):
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


def bearer(token):
    return {"authorization": f"Bearer {token}"}


def test_a_client_that_repeats_wrong_tokens_has_to_wait(notes):
    with serving(with_agents(notes)) as url, httpx.Client(base_url=url, timeout=120) as client:
        for _ in range(auth.MAX_WRONG_TOKENS):
            refused(client.get("/status", headers=bearer("wrong-token")), 401)

        answer = client.get("/status", headers=bearer("another-wrong-token"))

        assert "too many wrong tokens" in refused(answer, 429)
        assert int(answer.headers["retry-after"]) <= 61
        # Through a proxy all clients have this address.
        assert client.get("/status", headers=bearer(ALL)).status_code == 200


def test_the_token_of_an_agent_opens_its_four_calls_and_nothing_else(notes):
    with serving(with_agents(notes)) as url, httpx.Client(base_url=url, timeout=120) as client:
        metrics = client.get("/metrics", headers=bearer(ALL))
        assert client.get("/status", headers=bearer(WORK)).status_code == 200
        assert client.get("/context", headers=bearer(ALL)).status_code == 200
        for path in ("/context", "/metrics"):
            refused(client.get(path, headers=bearer(WORK)), 403)
        refused(client.post("/reindex", json={}, headers=bearer(WORK)), 403)
        assert "queue.url" in refused(client.post("/reindex", json={}, headers=bearer(ALL)), 503)
        unknown = client.post("/reindex", json={"agent": "nobody"}, headers=bearer(ALL))
        assert "name one of these: main, work" in refused(unknown, 404)
        assert "force" in refused(client.post("/reindex", json={"force": "yes"}, headers=bearer(ALL)), 400)

    assert 'memline_files_behind{agent="work"}' in metrics.text
