"""OpenAI's and Voyage's requests for jobs, and jobs as it and other servers describe them, whole and odd."""

from collections.abc import Iterator
from typing import Any

import pytest

from memline.shared.batches.openai import OpenAIBatch
from memline.shared.batches.remote import STATUS, BatchApi, BatchJob, batch_api_of
from memline.shared.embedders.choice import choose
from memline.shared.errors import ProviderBrokenAnswer
from memline.shared.tables import as_dict
from tests.unit.batches.providers import TAG, Open, Place, client, finished, key, made, row, sent
from tests.unit.embedders.conftest import KEY, make_settings


@pytest.fixture(params=["openai", "gemini"])
def api(request: pytest.FixtureRequest) -> Iterator[BatchApi]:
    opened = client(request.param, "http://127.0.0.1:9/v1", clock=None, timeout_s=1)
    yield opened
    opened.close()


def look(api: BatchApi, job: Any) -> BatchJob:
    return api._read_job(as_dict(job), STATUS)


@pytest.mark.parametrize("api", ["openai"], indirect=True)
@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("validating", "running"),
        ("in_progress", "running"),
        ("finalizing", "running"),
        ("cancelling", "running"),
        ("something new", "running"),
        ("completed", "done"),
        ("Completed", "done"),
        ("failed", "failed"),
        ("expired", "expired"),
        ("cancelled", "cancelled"),
        ("canceled", "cancelled"),
    ],
)
def test_states_of_openai(api: BatchApi, status: str, state: str) -> None:
    found = look(api, {"id": "b", "status": status})

    assert (found.id, found.state, found.provider_state) == ("b", state, status)


@pytest.mark.parametrize("api", ["openai"], indirect=True)
def test_empty_names_of_files_are_none(api: BatchApi) -> None:
    job = {"id": "b", "status": "completed", "output_file_id": "", "error_file_id": ""}

    found = look(api, job)

    assert (found.output, found.errors) == ("", "")
    assert found.reason == "completed without output file"


@pytest.mark.parametrize("api", ["openai"], indirect=True)
@pytest.mark.parametrize(
    ("errors", "reason"),
    [
        ({"object": "list", "data": [{"code": "x", "message": "odd", "line": 3}]}, "odd (line 3)"),
        ({"data": [{"code": "x"}, {"message": "odd"}]}, "x; odd"),
        ({"data": [{"message": "odd"}] * 50}, "odd; odd; odd"),
        ({"message": "odd"}, "odd"),
        ([{"message": "odd"}], "odd"),
        (["odd", None], "odd"),
        ("odd", "odd"),
        ({"data": []}, ""),
        ({"data": None}, ""),
        (None, ""),
        (17, "17"),
    ],
)
def test_reasons_of_openai_are_shown_in_any_shape(api: BatchApi, errors: Any, reason: str) -> None:
    found = look(api, {"id": "b", "status": "failed", "errors": errors})

    assert found.reason == reason
    assert found.error is not None


@pytest.mark.parametrize(
    "job",
    [
        None,
        [],
        17,
        {},
        {"id": "b"},
        {"name": "batches/b"},
        {"status": "completed"},
        {"id": 17, "status": "completed"},
        {"id": "", "status": "completed"},
        {"id": "b", "status": 17},
        {"id": "b" * 10_000, "name": "b" * 10_000, "status": "completed", "done": True},
        {"id": "b", "status": None},
        {"done": True},
        {"name": 17, "done": True},
        {"metadata": {"state": "BATCH_STATE_SUCCEEDED"}},
    ],
)
def test_what_is_no_job_is_a_broken_answer(api: BatchApi, job: Any) -> None:
    with pytest.raises(ProviderBrokenAnswer) as caught:
        look(api, job)

    assert caught.value.status == 200


@pytest.mark.parametrize(
    "fields",
    [
        {"request_counts": None, "metadata": None, "created_at": None},
        {"request_counts": [], "metadata": [], "created_at": []},
        {"request_counts": {"completed": "7"}, "metadata": {"tag": None}, "created_at": "soon"},
        {"metadata": {"batchStats": "many", "displayName": 17, "inputConfig": 3}},
        {"output_file_id": 17, "error_file_id": {}, "input_file_id": []},
    ],
)
def test_odd_fields_are_taken_for_missing(api: BatchApi, fields: dict[str, Any]) -> None:
    job = {"id": "b", "status": "in_progress", "name": "batches/b", "state": "BATCH_STATE_RUNNING", **fields}

    found = look(api, job)

    assert (found.state, found.tag, found.output) == ("running", "", "")


@pytest.mark.parametrize("provider", ["openai", "voyage"])
def test_a_job_whose_server_forgot_its_tag_is_found_by_its_file(provider: str, place: Place) -> None:
    place.control(metadata=False)
    file_id = place.api.upload([row("alpha")], tag=TAG)
    other = place.api.upload([row("beta")], tag="job-2")
    made = place.api.create(file_id, tag=TAG, agent="main")
    place.api.create(other, tag="job-2", agent="main")

    found = place.api.find(TAG, file_id=file_id)

    assert found is not None
    assert found.id == made.id
    assert place.api.find("job-3", file_id="file-3") is None


def test_openai_gets_whole_requests(open_batches: Open) -> None:
    place = open_batches("openai", output_dimensionality=8)

    file_id = place.api.upload([row("alpha")], tag=TAG)
    place.api.create(file_id, tag=TAG, agent="main")

    assert sent(place, file_id) == [
        {
            "custom_id": key("alpha"),
            "method": "POST",
            "url": "/v1/embeddings",
            "body": {"model": "text-embedding-3-small", "input": "alpha", "dimensions": 8},
        }
    ]
    assert made(place) == {
        "input_file_id": file_id,
        "endpoint": "/v1/embeddings",
        "completion_window": "24h",
        "metadata": {"source": "memline", "agent": "main", "tag": TAG},
    }


def test_openai_itself_is_asked_for_base64_and_other_servers_are_not(open_batches: Open) -> None:
    other = open_batches("openai").api
    choice = choose(make_settings(provider="openai", environment_keys={"openai": KEY}))
    own = batch_api_of(choice)
    assert isinstance(own, OpenAIBatch) and isinstance(other, OpenAIBatch)
    assert own._row(row("alpha"))["body"]["encoding_format"] == "base64"  # type: ignore[index]
    assert "encoding_format" not in other._row(row("alpha"))["body"]  # type: ignore[operator]
    own.close()


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("token_limit_exceeded: Limit reached. Limit: 3,000,000 enqueued tokens.", "too_big"),
        ("rate_limit_exceeded: Too many batches.", "later"),
        ("insufficient_quota: You exceeded your current quota.", "stop"),
        ("billing_hard_limit_reached: Billing hard limit has been reached.", "stop"),
        ("server_error: Something went wrong.", "later"),
        ("empty_file: The file is empty.", "broken"),
    ],
)
def test_what_kind_of_failure_a_job_had_is_told(open_batches: Open, reason: str, kind: str) -> None:
    place = open_batches("openai")
    place.control(end="failed", reason=reason)

    error = finished(place).error

    assert error is not None
    assert error.kind == kind


def test_voyage_gets_texts_in_rows_and_all_else_in_the_job(open_batches: Open) -> None:
    place = open_batches("voyage", output_dimensionality=256)

    file_id = place.api.upload([row("alpha")], tag=TAG)
    place.api.create(file_id, tag=TAG, agent="main")

    assert sent(place, file_id) == [{"custom_id": key("alpha"), "body": {"input": "alpha"}}]
    assert made(place)["completion_window"] == "12h"
    assert made(place)["request_params"] == {
        "model": "voyage-4-large",
        "input_type": "document",
        "truncation": False,
        "output_dimension": 256,
    }
