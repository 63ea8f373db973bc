"""Jobs as providers describe them, old and new, whole and odd."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from shared.embedders.batch import BatchLook
from shared.embedders.batch_remote import LOOK, RemoteBatchApi
from shared.errors import ProviderBrokenAnswer
from tests.unit.embedders.batches import TAG, Open, client, row

_OUTPUT = {"responsesFile": "files/out"}


@pytest.fixture(params=["openai", "gemini"])
def api(request: pytest.FixtureRequest) -> Iterator[RemoteBatchApi]:
    made = client(request.param, "http://127.0.0.1:9/v1", clock=None, timeout_s=1, vector_dims=0)
    yield made
    made.close()


def look(api: RemoteBatchApi, job: Any) -> BatchLook:
    return api._look(job, LOOK)


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
def test_states_of_openai(api: RemoteBatchApi, status: str, state: str) -> None:
    found = look(api, {"id": "b", "status": status})

    assert (found.id, found.state, found.said) == ("b", state, status)


@pytest.mark.parametrize("api", ["openai"], indirect=True)
def test_empty_names_of_files_are_none(api: RemoteBatchApi) -> None:
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
def test_reasons_of_openai_are_shown_in_any_shape(api: RemoteBatchApi, errors: Any, reason: str) -> None:
    found = look(api, {"id": "b", "status": "failed", "errors": errors})

    assert found.reason == reason
    assert found.error is not None


@pytest.mark.parametrize("api", ["gemini"], indirect=True)
@pytest.mark.parametrize(
    ("job", "state", "output"),
    [
        ({"metadata": {"state": "BATCH_STATE_PENDING"}}, "running", ""),
        ({"metadata": {"state": "BATCH_STATE_RUNNING"}}, "running", ""),
        ({"metadata": {"state": "BATCH_STATE_UNSPECIFIED"}}, "running", ""),
        (
            {
                "done": True,
                "metadata": {"state": "BATCH_STATE_SUCCEEDED"},
                "response": _OUTPUT,
            },
            "done",
            "files/out",
        ),
        ({"metadata": {"state": "JOB_STATE_SUCCEEDED", "output": _OUTPUT}}, "done", "files/out"),
        ({"state": "SUCCEEDED", "outputConfig": {"file": "files/out"}}, "done", "files/out"),
        ({"state": "COMPLETED", "outputConfig": {"fileId": "out"}}, "done", "files/out"),
        ({"state": "DONE", "dest": {"fileName": "files/out"}}, "done", "files/out"),
        ({"done": True, "response": _OUTPUT}, "done", "files/out"),
        ({"done": True, "response": {"output": _OUTPUT}}, "done", "files/out"),
        (
            {
                "done": True,
                "response": {"responsesFile": "https://example.com/v1beta/files/out:download?alt=media"},
            },
            "done",
            "files/out",
        ),
        ({"done": True, "metadata": {"state": "BATCH_STATE_RUNNING"}, "error": {"code": 13}}, "failed", ""),
        ({"done": True, "error": {"code": 8, "message": "slow down"}}, "failed", ""),
        ({"metadata": {"state": "BATCH_STATE_FAILED"}}, "failed", ""),
        ({"metadata": {"state": "BATCH_STATE_EXPIRED", "output": _OUTPUT}}, "expired", "files/out"),
        ({"done": True, "state": "BATCH_STATE_CANCELLED", "error": {"code": 1}}, "cancelled", ""),
    ],
)
def test_operations_of_gemini_old_and_new(
    api: RemoteBatchApi, job: dict[str, Any], state: str, output: str
) -> None:
    found = look(api, {"name": "batches/b", **job})

    assert (found.id, found.state, found.output) == ("batches/b", state, output)
    assert (found.state == "failed") <= (found.error is not None)


@pytest.mark.parametrize("api", ["gemini"], indirect=True)
@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        ({"code": 8, "message": "Too many enqueued tokens."}, "later"),
        ({"code": 3, "message": "The file is odd."}, "broken"),
        ({"code": 7, "message": "Not for you."}, "stop"),
        ({"code": 13, "message": "Oops."}, "later"),
        ("odd", "broken"),
    ],
)
def test_failures_of_gemini_have_their_kind(api: RemoteBatchApi, failure: Any, kind: str) -> None:
    found = look(api, {"name": "batches/b", "done": True, "error": failure})

    assert found.error is not None
    assert found.error.kind == kind
    assert found.reason == (failure if isinstance(failure, str) else failure["message"])


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
def test_what_is_no_job_is_a_broken_answer(api: RemoteBatchApi, job: Any) -> None:
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
def test_odd_fields_are_taken_for_missing(api: RemoteBatchApi, fields: dict[str, Any]) -> None:
    job = {"id": "b", "status": "in_progress", "name": "batches/b", "state": "BATCH_STATE_RUNNING", **fields}

    found = look(api, job)

    assert (found.state, found.tag, found.output) == ("running", "", "")


@pytest.mark.parametrize("provider", ["openai", "voyage"])
def test_a_job_whose_server_forgot_its_tag_is_found_by_its_file(provider: str, open_batches: Open) -> None:
    place = open_batches(provider)
    place.control(metadata=False)
    file_id = place.api.upload([row("alpha")], tag=TAG)
    other = place.api.upload([row("beta")], tag="job-2")
    made = place.api.create(file_id, tag=TAG, agent="main")
    place.api.create(other, tag="job-2", agent="main")

    found = place.api.find(TAG)

    assert found is not None
    assert (found.id, found.tag) == (made.id, TAG)
    assert place.api.find("job-3") is None
