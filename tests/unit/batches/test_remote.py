"""The life of a job at each provider: what is sent, what is found again, what comes back."""

import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from memline.shared.batches.remote import batch_api_of
from memline.shared.embedders.choice import choose
from memline.shared.errors import ProviderStop
from tests.support.embedding_faults import digest_of
from tests.unit.batches.providers import (
    CLIENTS,
    PROVIDERS,
    TAG,
    TEXTS,
    Open,
    Place,
    client,
    finished,
    key,
    row,
)
from tests.unit.embedders.conftest import KEY, make_settings


def test_a_job_brings_the_vectors_of_ordinary_requests(place: Place) -> None:
    place.control(looks=2)

    file_id = place.api.upload(map(row, TEXTS), tag=TAG)
    looks = [place.api.create(file_id, tag=TAG, agent="main")]
    while looks[-1].state == "running":
        looks.append(place.api.get_job(looks[-1].id))
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
    assert place.calls == {"upload": 1, "create": 1, "look": 3, "output": 1}
    assert dict(place.server.texts) == {digest_of(text): 1 for text in TEXTS}


def vector_of(place: Place, text: str) -> bytes:
    """What an ordinary request for a text brings, without asking the server."""
    from tests.support.fake_embedder import FakeEmbedder

    return FakeEmbedder(dims=place.server.dims).embed_documents([text])[0]


def test_jobs_are_found_again_by_their_tag_on_any_page(place: Place) -> None:
    place.control(page_rows=2)
    tags = [f"job-{number}" for number in range(7)]
    files = {tag: place.api.upload([row(tag)], tag=tag) for tag in tags}
    jobs = {tag: place.api.create(files[tag], tag=tag, agent="main") for tag in tags}

    for tag in tags:
        assert place.api.find(tag, file_id="") == jobs[tag]
    assert place.api.find("job-7", file_id="") is None
    assert place.api.find("job", file_id="") is None


def test_a_list_that_begins_anew_on_every_page_is_read_no_further(place: Place) -> None:
    place.control(page_rows=1, pages=False)
    for tag in ("job-1", "job-2"):
        place.api.create(place.api.upload([row(tag)], tag=tag), tag=tag, agent="main")

    assert place.api.find("job-1", file_id="") is None
    assert place.calls["list"] == 2


def test_of_several_jobs_with_a_tag_the_one_that_is_good_is_found(place: Place) -> None:
    place.control(looks=-1)
    file_id = place.api.upload([row("alpha")], tag=TAG)
    good = place.api.create(file_id, tag=TAG, agent="main")
    place.control(end="failed")
    place.api.create(file_id, tag=TAG, agent="main")

    assert place.api.find(TAG, file_id="") == good


def test_nothing_is_found_where_there_is_nothing(place: Place) -> None:
    assert place.api.find(TAG, file_id="") is None


def test_a_job_that_failed_says_why(place: Place) -> None:
    place.control(end="failed", reason="invalid_file: the file sk-test-0123456789abcdef is odd")

    look = finished(place)

    assert look.state == "failed"
    assert look.reason == "the file *** is odd"
    assert look.error is not None
    assert look.error.kind == "broken"
    assert list(place.api.results(look)) == []


@pytest.mark.parametrize("end", ["expired", "cancelled"])
def test_rows_that_were_done_before_a_job_ended_early_are_kept(end: str, place: Place) -> None:
    place.control(end=end, done=3)

    look = finished(place)
    results = list(place.api.results(look))

    assert look.state == end
    assert [result.key for result in results if result.vector] == [key(text) for text in TEXTS[:3]]
    assert {result.error.kind for result in results if result.error} <= {"later"}


def test_a_job_can_be_cancelled_once_and_again(place: Place) -> None:
    place.control(looks=1)
    job = place.api.create(place.api.upload(map(row, TEXTS), tag=TAG), tag=TAG, agent="main")

    first = place.api.cancel(job.id)
    second = place.api.get_job(job.id)
    third = place.api.cancel(job.id)

    assert (first.state, second.state, third.state) == ("running", "cancelled", "cancelled")


def test_all_files_are_removed_and_removing_them_again_is_fine(place: Place) -> None:
    place.control(rows="refused:beta")
    look = finished(place)

    place.api.clean_up(look, file_id=look.input_file)
    place.api.clean_up(look, file_id=look.input_file)
    place.api.clean_up(None, file_id=look.input_file)

    assert place.server.log()["batch"]["files"] == 0


def test_the_size_of_a_file_is_known_beforehand(place: Place) -> None:
    rows = [row(text) for text in (*TEXTS, "ünïcode 漢字", 'quote " backslash \\', "nul \0", "lone \ud800")]

    file_id = place.api.upload(rows, tag=TAG)

    stored = place.server.batches.jobs.files[file_id.removeprefix("files/")]
    assert sum(len(line) for line in stored.lines()) == stored.size


def test_the_rows_are_read_one_by_one(place: Place) -> None:
    def rows() -> Iterator[Any]:
        yield row("alpha")
        raise sqlite3.OperationalError("the index is gone")

    with pytest.raises(sqlite3.OperationalError, match="the index is gone"):
        place.api.upload(rows(), tag=TAG)

    assert place.calls == {}


@pytest.mark.parametrize("provider", ["mistral", "ollama"])
def test_there_is_no_batch_api_where_none_is_known(provider: str) -> None:
    choice = choose(make_settings(provider=provider, remote={"api_key": KEY}))

    assert choice.identity is not None
    with pytest.raises(ProviderStop, match="no Batch API") as caught:
        batch_api_of(choice)
    assert "remote.batch.enabled" in caught.value.hint


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_choice_of_a_provider_builds_its_batch_api(provider: str) -> None:
    choice = choose(make_settings(provider=provider, remote={"api_key": KEY}))

    api = batch_api_of(choice)

    assert isinstance(api, CLIENTS[provider])
    api.close()


def test_query_words_of_the_address_go_with_every_call(
    open_batches: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = open_batches("openai")
    url = f"{place.server.url}?api-version=7"
    api = client("openai", url, clock=None, timeout_s=10)
    paths: list[str] = []
    handle = place.server.batches.handle
    monkeypatch.setattr(
        place.server.batches, "handle", lambda request: (paths.append(request.path), handle(request))[1]
    )

    api.find("nothing", file_id="")

    assert paths == ["/v1/batches?api-version=7&limit=100"]
    api.close()
