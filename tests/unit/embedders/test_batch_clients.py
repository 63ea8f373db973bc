"""The life of a job at each provider: what is sent, what is found again, what comes back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from shared.embedders.batch import BatchLook
from shared.embedders.choice import choose
from tests.support.embedding_faults import digest_of
from tests.unit.embedders.batches import PROVIDERS, TAG, TEXTS, Open, Place, client, key, row
from tests.unit.embedders.conftest import KEY, make_settings

MODELS = {"openai": "text-embedding-3-small", "voyage": "voyage-4-large", "gemini": "gemini-embedding-001"}


def sent(place: Place, file_id: str) -> list[dict[str, Any]]:
    """The rows of a file as the provider got them."""
    file = place.server.batches.jobs.files[file_id.removeprefix("files/")]
    return [json.loads(line) for line in file.lines()]


def made(place: Place) -> dict[str, Any]:
    """The last request for a job."""
    return list(place.server.batches.jobs.jobs.values())[-1].request


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_job_brings_the_vectors_of_ordinary_requests(provider: str, open_batches: Open) -> None:
    place = open_batches(provider)
    place.control(looks=2)

    file_id = place.api.upload(map(row, TEXTS), tag=TAG)
    looks = [place.api.create(file_id, tag=TAG, agent="main")]
    while looks[-1].state == "running":
        looks.append(place.api.look(looks[-1].id))
    results = list(place.api.results(looks[-1]))

    vectors = [vector_of(place, text) for text in TEXTS]
    assert [(result.key, result.vector, result.error) for result in results] == [
        (key(text), vector, None) for text, vector in zip(TEXTS, vectors, strict=True)
    ]
    assert [look.state for look in looks] == ["running", "running", "running", "done"]
    assert looks[-1].rows_done == len(TEXTS)
    assert looks[-1].rows_failed == 0
    assert looks[-1].tag == TAG
    assert looks[-1].input_file == file_id
    assert looks[-1].created_at > 1_600_000_000
    assert place.calls == {"upload": 1, "create": 1, "look": 3, "output": 1}
    assert dict(place.server.texts) == {digest_of(text): 1 for text in TEXTS}


def vector_of(place: Place, text: str) -> bytes:
    """What an ordinary request for a text brings, without asking the server."""
    from shared.embedders.fake import FakeEmbedder

    return FakeEmbedder(dims=place.server.dims).embed_documents([text])[0]


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
    own = choice.build_batch()
    assert own is not None

    assert own.row_bytes(row("alpha")) - other.row_bytes(row("alpha")) == len(',"encoding_format":"base64"')
    own.close()


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

    from array import array

    assert result.vector is not None
    assert abs(sum(x * x for x in array("f", result.vector)) - 1) < 1e-5
    assert len(result.vector) == 4 * 8


@pytest.mark.parametrize("provider", PROVIDERS)
def test_jobs_and_files_are_found_again_by_their_tag_on_any_page(provider: str, open_batches: Open) -> None:
    place = open_batches(provider)
    place.control(page_rows=2)
    tags = [f"job-{number}" for number in range(7)]
    files = {tag: place.api.upload([row(tag)], tag=tag) for tag in tags}
    jobs = {tag: place.api.create(files[tag], tag=tag, agent="main") for tag in tags}

    for tag in tags:
        assert place.api.find_upload(tag) == files[tag]
        assert place.api.find(tag) == jobs[tag]
    assert place.api.find_upload("job-7") is None
    assert place.api.find("job-7") is None
    assert place.api.find("job") is None


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_list_that_begins_anew_on_every_page_is_read_no_further(provider: str, open_batches: Open) -> None:
    place = open_batches(provider)
    place.control(page_rows=1, pages=False)
    for tag in ("job-1", "job-2"):
        place.api.create(place.api.upload([row(tag)], tag=tag), tag=tag, agent="main")

    assert place.api.find("job-1") is None
    assert place.calls["list"] == 2


@pytest.mark.parametrize("provider", PROVIDERS)
def test_of_several_jobs_with_a_tag_the_one_that_is_good_is_found(provider: str, open_batches: Open) -> None:
    place = open_batches(provider)
    place.control(looks=-1)
    file_id = place.api.upload([row("alpha")], tag=TAG)
    good = place.api.create(file_id, tag=TAG, agent="main")
    place.control(end="failed")
    place.api.create(file_id, tag=TAG, agent="main")

    assert place.api.find(TAG) == good


@pytest.mark.parametrize("provider", PROVIDERS)
def test_nothing_is_found_where_there_is_nothing(provider: str, open_batches: Open) -> None:
    place = open_batches(provider)

    assert place.api.find_upload(TAG) is None
    assert place.api.find(TAG) is None


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_job_that_failed_says_why(provider: str, open_batches: Open) -> None:
    place = open_batches(provider)
    place.control(end="failed", reason="invalid_file: the file sk-test-0123456789abcdef is odd")

    look = finished(place)

    assert look.state == "failed"
    assert look.reason == "the file *** is odd"
    assert look.error is not None
    assert look.error.kind == "broken"
    assert list(place.api.results(look)) == []


@pytest.mark.parametrize(
    ("reason", "kind", "cap"),
    [
        ("token_limit_exceeded: Limit reached. Limit: 3,000,000 enqueued tokens.", "too_big", 3_000_000),
        ("rate_limit_exceeded: Too many batches.", "later", None),
        ("insufficient_quota: You exceeded your current quota.", "stop", None),
        ("billing_hard_limit_reached: Billing hard limit has been reached.", "stop", None),
        ("server_error: Something went wrong.", "later", None),
        ("empty_file: The file is empty.", "broken", None),
    ],
)
def test_what_kind_of_failure_a_job_had_is_told(
    open_batches: Open, reason: str, kind: str, cap: int | None
) -> None:
    place = open_batches("openai")
    place.control(end="failed", reason=reason)

    error = finished(place).error

    assert error is not None
    assert error.kind == kind
    assert getattr(error, "max_tokens", None) == cap


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("end", ["expired", "cancelled"])
def test_rows_that_were_done_before_a_job_ended_early_are_kept(
    provider: str, end: str, open_batches: Open
) -> None:
    place = open_batches(provider)
    place.control(end=end, done=3)

    look = finished(place)
    results = list(place.api.results(look))

    assert look.state == end
    assert [result.key for result in results if result.vector] == [key(text) for text in TEXTS[:3]]
    assert {result.error.kind for result in results if result.error} <= {"later"}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_job_can_be_cancelled_once_and_again(provider: str, open_batches: Open) -> None:
    place = open_batches(provider)
    place.control(looks=1)
    job = place.api.create(place.api.upload(map(row, TEXTS), tag=TAG), tag=TAG, agent="main")

    first = place.api.cancel(job.id)
    second = place.api.look(job.id)
    third = place.api.cancel(job.id)

    assert (first.state, second.state, third.state) == ("running", "cancelled", "cancelled")


@pytest.mark.parametrize("provider", PROVIDERS)
def test_all_files_are_removed_and_removing_them_again_is_fine(provider: str, open_batches: Open) -> None:
    place = open_batches(provider)
    place.control(rows="refused:beta")
    look = finished(place)

    place.api.clean_up(look, file_id=look.input_file)
    place.api.clean_up(look, file_id=look.input_file)
    place.api.clean_up(None, file_id=look.input_file)

    assert place.server.log()["batch"]["files"] == 0


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_size_of_a_file_is_known_beforehand(provider: str, open_batches: Open) -> None:
    place = open_batches(provider)
    rows = [row(text) for text in (*TEXTS, "ünïcode 漢字", 'quote " backslash \\', "nul \0", "lone \ud800")]

    file_id = place.api.upload(rows, tag=TAG)

    stored = place.server.batches.jobs.files[file_id.removeprefix("files/")]
    assert stored.size == sum(place.api.row_bytes(each) for each in rows)
    assert sum(len(line) for line in stored.lines()) == stored.size


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_rows_are_read_one_by_one(provider: str, open_batches: Open) -> None:
    place = open_batches(provider)

    def rows() -> Iterator[Any]:
        yield row("alpha")
        raise OSError("the index is gone")

    with pytest.raises(OSError, match="the index is gone"):
        place.api.upload(rows(), tag=TAG)

    assert place.calls == {}


@pytest.mark.parametrize("provider", ["mistral", "ollama"])
def test_there_is_no_batch_api_where_none_is_known(provider: str) -> None:
    choice = choose(make_settings(provider=provider, remote={"api_key": KEY}))

    assert choice.identity is not None
    assert choice.build_batch() is None


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_choice_of_a_provider_builds_its_batch_api(provider: str) -> None:
    choice = choose(make_settings(provider=provider, remote={"api_key": KEY}))

    api = choice.build_batch()

    assert api is not None
    assert api.identity == choice.identity
    assert api.caps.max_rows == 50_000
    api.close()


def test_query_words_of_the_address_go_with_every_call(
    open_batches: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = open_batches("openai")
    url = f"{place.server.url}?api-version=7"
    api = client("openai", url, clock=None, timeout_s=10, vector_dims=0)
    paths: list[str] = []
    handle = place.server.batches.handle
    monkeypatch.setattr(
        place.server.batches, "handle", lambda request: (paths.append(request.path), handle(request))[1]
    )

    api.find("nothing")

    assert paths == ["/v1/batches?api-version=7&limit=100"]
    api.close()


def finished(place: Place) -> BatchLook:
    """A job over `TEXTS` at its end."""
    file_id = place.api.upload(map(row, TEXTS), tag=TAG)
    return place.api.look(place.api.create(file_id, tag=TAG, agent="main").id)
