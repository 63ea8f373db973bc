"""Gemini's requests for jobs, and its operations, old and new."""

from array import array
from collections.abc import Iterator
from typing import Any

import pytest

from memline.shared.batches.remote import STATUS, BatchApi
from tests.unit.batches.providers import TAG, Open, client, key, made, row, sent

_OUTPUT = {"responsesFile": "files/out"}


@pytest.fixture
def api() -> Iterator[BatchApi]:
    opened = client("gemini", "http://127.0.0.1:9/v1", clock=None, timeout_s=1)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("model", "text", "task"),
    [
        ("gemini-embedding-001", "alpha", {"taskType": "RETRIEVAL_DOCUMENT"}),
        ("gemini-embedding-2", "title: none | text: alpha", {}),
    ],
)
def test_gemini_gets_task_types_or_prompts_as_in_ordinary_requests(
    open_batches: Open, model: str, text: str, task: dict[str, str]
) -> None:
    place = open_batches("gemini", model=model, output_dimensionality=8)

    file_id = place.api.upload([row("alpha")], tag=TAG)
    place.api.create(file_id, tag=TAG, agent="an agent")

    assert sent(place, file_id) == [
        {
            "key": key("alpha"),
            "request": {
                "model": f"models/{model}",
                **task,
                "content": {"parts": [{"text": text}]},
                "outputDimensionality": 8,
            },
        }
    ]
    assert made(place)["batch"]["displayName"] == f"memline an agent {TAG}"


def test_shortened_vectors_of_gemini_come_with_unit_length(open_batches: Open) -> None:
    place = open_batches("gemini", output_dimensionality=8)

    result = place.run(["alpha"])["alpha"]

    assert result.vector is not None
    assert abs(sum(x * x for x in array("f", result.vector)) - 1) < 1e-5
    assert len(result.vector) == 4 * 8


@pytest.mark.parametrize(
    ("job", "state", "output"),
    [
        ({"metadata": {"state": "BATCH_STATE_PENDING"}}, "running", ""),
        ({"metadata": {"state": "BATCH_STATE_RUNNING"}}, "running", ""),
        ({"metadata": {"state": "BATCH_STATE_UNSPECIFIED"}}, "running", ""),
        (
            {"done": True, "metadata": {"state": "BATCH_STATE_SUCCEEDED"}, "response": _OUTPUT},
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
    api: BatchApi, job: dict[str, Any], state: str, output: str
) -> None:
    found = api._read_job({"name": "batches/b", **job}, STATUS)

    assert (found.id, found.state, found.output) == ("batches/b", state, output)
    assert (found.state == "failed") <= (found.error is not None)


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
def test_failures_of_gemini_have_their_kind(api: BatchApi, failure: Any, kind: str) -> None:
    found = api._read_job({"name": "batches/b", "done": True, "error": failure}, STATUS)

    assert found.error is not None
    assert found.error.kind == kind
    assert found.reason == (failure if isinstance(failure, str) else failure["message"])
