"""Jobs over HTTP: listed, shown, paused, resumed and cancelled by those whom their token lets."""

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest
from jsonschema import validate

from memline.producers.calls.arguments import answers
from memline.shared.index_writer import IndexWriter
from tests.support.http_api import serving
from tests.support.index_rows import MODEL_A, file_row, make_job
from tests.support.workspace import Place

ALL, WORK = "token-for-all", "token-for-work"


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.fixture
def ids(place: Place) -> dict[str, str]:
    """The open job of each of two agents."""
    agents = [{"id": name, "workspace": str(place.folder / name)} for name in ("main", "work")]
    for name in ("main", "work"):
        place.write(f"../{name}/MEMORY.md", "# Facts\n")
    serve = {"token": ALL, "tokens": {"work": WORK}}
    place.config.write_text(json.dumps({"agents": {"list": agents}, "serve": serve}))
    made = {}
    for name, settings in place.settings.agents.items():
        with closing(IndexWriter.of(settings)) as writer:
            writer.retarget(MODEL_A)
            job = make_job(writer, "MEMORY.md", "more.md")
            writer.store_file(file_row("MEMORY.md", "facts"), job=job.token)
            made[name] = job.token
    return made


@pytest.fixture
def client(place: Place, ids: dict[str, str]) -> Iterator[httpx.Client]:
    assert ids
    with serving(place.settings) as url, httpx.Client(base_url=url, timeout=120) as client:
        yield client


def listed(client: httpx.Client, token: str, **params: Any) -> list[str]:
    answer = client.get("/jobs", params=params, headers=bearer(token))
    assert answer.status_code == 200, answer.text
    for job in answer.json()["jobs"]:
        validate(job, answers()["job"])
    return sorted(job["agentId"] for job in answer.json()["jobs"])


def test_a_token_sees_the_jobs_of_its_agent_alone(client: httpx.Client, ids: dict[str, str]) -> None:
    assert listed(client, ALL) == ["main", "work"]
    assert listed(client, ALL, agent="work", open="true") == ["work"]
    assert listed(client, WORK) == ["work"]
    assert client.get("/jobs", params={"agent": "main"}, headers=bearer(WORK)).status_code == 403
    for path in (f"/jobs/{ids['main']}", f"/jobs/{ids['main']}/cancel"):
        method = "POST" if path.endswith("cancel") else "GET"
        assert client.request(method, path, headers=bearer(WORK)).status_code == 404
    assert client.get(f"/jobs/{ids['main']}").status_code == 401


def test_a_job_is_shown_paused_resumed_and_cancelled(client: httpx.Client, ids: dict[str, str]) -> None:
    path = f"/jobs/{ids['work']}"

    shown = client.get(path[:-3], headers=bearer(ALL)).json()
    states = [
        client.post(f"{path}/{verb}", headers=bearer(WORK)).json() for verb in ("pause", "resume", "cancel")
    ]
    again = client.post(f"{path}/cancel", headers=bearer(WORK))

    validate(shown, answers()["job"])
    assert (shown["id"], shown["files"], shown["texts"]["left"]) == (ids["work"], {"done": 1, "total": 2}, 1)
    assert [state["state"] for state in states] == ["paused", "running", "cancelled"]
    by = [(each["event"], each["by"]) for each in states[-1]["history"][1:]]
    assert by == [(event, "tokens.work") for event in ("paused", "resumed", "cancelled")]
    assert again.status_code == 409
    validate(again.json(), answers()["error"])
    assert "is cancelled" in again.json()["error"]


def test_a_reindex_without_a_queue_is_refused_with_what_to_do(client: httpx.Client) -> None:
    refused = client.post("/jobs", json={"force": True}, headers=bearer(ALL))

    assert refused.status_code == 503
    validate(refused.json(), answers()["error"])
    assert "queue.url" in refused.text


@pytest.mark.parametrize("body", [{"force": "yes"}, {"all": True}])
def test_a_wrong_parameter_is_named(client: httpx.Client, body: dict[str, Any]) -> None:
    refused = client.post("/jobs", json=body, headers=bearer(ALL))

    assert refused.status_code == 400
    assert next(iter(body)) in refused.json()["error"]
