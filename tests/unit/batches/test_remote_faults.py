"""Every fault at every call of a job's life at every provider: the kind of error, and the words of it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

import pytest

from memline.shared.batches.remote import BatchJob
from memline.shared.clock import ManualClock, SystemClock
from memline.shared.errors import ProviderError
from tests.support.voyage_server import VoyageServer
from tests.support.workspace import until
from tests.unit.batches.providers import DIMS, PROVIDERS, SERVERS, TAG, TEXTS, Place, client, row
from tests.unit.embedders.conftest import KEY

#: Seconds that a client waits here for an answer that never comes.
PATIENCE_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """A job that is finished, with what every call of its life needs."""

    place: Place
    file_id: str
    look: BatchJob
    #: Of a job that is not finished.
    open_id: str = ""


#: What each call is named in errors, and how it is made.
CALLS: dict[str, tuple[str, Callable[[Life], object]]] = {
    "upload": ("batch file upload", lambda life: life.place.api.upload(map(row, TEXTS), tag="job-2")),
    "create": ("batch create", lambda life: life.place.api.create(life.file_id, tag="job-2", agent="main")),
    "list": ("batch list", lambda life: life.place.api.find(TAG, file_id="")),
    "look": ("batch status", lambda life: life.place.api.get_job(life.look.id)),
    "output": ("batch file content", lambda life: list(life.place.api.results(life.look))),
    "cancel": ("batch cancel", lambda life: life.place.api.cancel(life.open_id)),
    "delete": ("batch file delete", lambda life: life.place.api.clean_up(life.look, file_id=life.file_id)),
}

MAKING = ("upload", "create")

#: Fault -> kind of error, and words of message and hint.
FAULTS: dict[str, tuple[str, str]] = {
    "429:60": ("later", "429"),
    "500": ("later", "500"),
    "503:30": ("later", "503"),
    "500-after": ("later", "500"),
    "reset": ("later", "a server is running at http://127.0.0.1"),
    "reset-after": ("later", "a server is running at"),
    "hang": ("later", "no answer within 0.1 s"),
    "hang-after": ("later", "no answer within 0.1 s"),
    "truncated": ("later", "a server is running at"),
    "html": ("broken", "remote.baseUrl"),
    "empty": ("broken", "200, but"),
    "half": ("broken", "200, but no JSON"),
    "no-id": ("broken", "200, but"),
    "bad-gzip": ("broken", "cannot be unpacked"),
    "401": ("stop", "key"),
    "403-quota": ("stop", "then run: memline index"),
    "429-quota": ("stop", "then run: memline index"),
    "redirect:http://127.0.0.1:9/v1": ("stop", "remote.baseUrl"),
    "400:Your request is odd.": ("broken", "Your request is odd."),
    "413": ("too_big", "413"),
}

#: What says nothing here: nobody needs the answer to a deletion or a cancellation, and files are no JSON.
NO_ERROR = {
    "delete": {"html", "empty", "half", "no-id", "truncated", "500-after", "reset-after"},
    "cancel": {"html", "empty", "half", "no-id", "400:Your request is odd."},
    # A file may be anywhere, so it is asked for there.
    "output": {"half", "no-id", "redirect:http://127.0.0.1:9/v1"},
}

CASES = [
    (provider, call, fault)
    for provider in PROVIDERS
    for call in CALLS
    for fault in FAULTS
    if fault not in NO_ERROR.get(call, ())
    # Google leaves an empty list out of its answer.
    and (provider, call[:4], fault) != ("gemini", "list", "no-id")
    # Voyage's calls are OpenAI's; its errors are not.
    and (provider != "voyage" or fault in ("429:60", "500", "401", "429-quota", "400:Your request is odd."))
    # What happened meanwhile makes a difference only there.
    and (fault != "hang-after" or call in MAKING)
]


@pytest.fixture
def life(place: Place) -> Life:
    file_id = place.api.upload(map(row, TEXTS), tag=TAG)
    look = place.api.get_job(place.api.create(file_id, tag=TAG, agent="main").id)
    place.control(looks=99)
    other = place.api.create(file_id, tag="other", agent="main")
    return Life(place=place, file_id=file_id, look=look, open_id=other.id)


@pytest.fixture
def impatient() -> Iterator[Callable[[Place], Place]]:
    """The same place, asked by somebody who soon gives up."""
    with ExitStack() as opened:

        def made(place: Place) -> Place:
            url = place.server.url
            clock = SystemClock()
            api = client(place.provider, url, clock=clock, timeout_s=PATIENCE_S)
            opened.callback(api.close)
            return replace(place, api=api)

        yield made


@pytest.mark.parametrize(("provider", "call", "fault"), CASES)
def test_a_fault_that_stays_is_told_with_its_kind_and_what_to_do(
    provider: str, call: str, fault: str, life: Life, impatient: Callable[[Place], Place]
) -> None:
    if fault.startswith("hang"):
        life = replace(life, place=impatient(life.place))
    kind, words = FAULTS[fault]
    name, make = CALLS[call]
    before = life.place.calls.get(call, 0)
    life.place.control(faults={call: fault})

    with pytest.raises(ProviderError) as caught:
        make(life)

    error = caught.value
    assert error.kind == kind, error
    assert words in f"{error.message} {error.hint}"
    assert error.message.startswith(f"{provider} {name} failed: ")
    assert KEY not in f"{error.message} {error.hint}"
    if ":" in fault and fault[:3] in ("429", "503") and provider != "gemini":
        assert error.retry_after_s == int(fault[4:])
    # One that hangs may be given up before the server has counted it.
    until(lambda: life.place.calls.get(call, 0) > before, "the call at the server")
    tries = life.place.calls[call] - before
    assert tries == 1 if call in MAKING else tries <= 3 * 2, "three tries, of two files"
    assert error.maybe_done == (call in MAKING and fault not in CERTAIN)


#: Faults after which nothing was made for sure.
CERTAIN = {
    "429:60",
    "401",
    "403-quota",
    "429-quota",
    "redirect:http://127.0.0.1:9/v1",
    "400:Your request is odd.",
    "413",
}


@pytest.mark.parametrize("call", [call for call in CALLS if call not in MAKING])
@pytest.mark.parametrize("fault", ["500", "500-after", "reset", "reset-after"])
def test_a_passing_fault_of_a_call_that_may_be_repeated_is_not_noticed(
    call: str, fault: str, life: Life
) -> None:
    life.place.control(faults={call: [fault]})

    CALLS[call][1](life)


@pytest.mark.parametrize(
    "fault", ["reset-after", "hang-after", "500-after", "html", "empty", "half", "truncated"]
)
def test_what_was_made_although_the_answer_was_lost_is_found_and_not_made_twice(
    fault: str, place: Place, impatient: Callable[[Place], Place]
) -> None:
    place.control(faults={"upload": fault, "create": fault})
    asked = impatient(place) if "hang" in fault else place

    with pytest.raises(ProviderError):
        asked.api.upload(map(row, TEXTS), tag=TAG)
    # The file of the lost answer goes with its provider's time; it is sent again.
    place.control(faults={"create": fault})
    file_id = place.api.upload(map(row, TEXTS), tag=TAG)
    with pytest.raises(ProviderError):
        asked.api.create(file_id, tag=TAG, agent="main")
    look = place.api.find(TAG, file_id="")

    assert look is not None
    assert look.input_file == file_id
    assert place.calls["create"] == 1
    assert [job["tag"] for job in place.jobs] == [TAG]


@pytest.mark.parametrize("call", MAKING)
def test_where_there_is_no_batch_api_the_setting_to_change_is_named(call: str, life: Life) -> None:
    life.place.control(enabled=False)

    with pytest.raises(ProviderError) as caught:
        CALLS[call][1](life)

    assert caught.value.kind == "stop"
    assert caught.value.status == 404
    assert "remote.batch.enabled to false" in caught.value.hint


@pytest.mark.parametrize("call", ["look", "output"])
def test_a_job_or_results_that_the_provider_does_not_know_are_told_by_their_status(
    call: str, life: Life
) -> None:
    life.place.control(faults={call: "404"})

    with pytest.raises(ProviderError) as caught:
        CALLS[call][1](life)

    assert caught.value.status == 404


def test_jobs_that_cannot_be_listed_are_not_taken_for_none(life: Life) -> None:
    life.place.control(faults={"list": "404"})

    with pytest.raises(ProviderError):
        # A job costs money: not to know is not the same as to know that there is none.
        life.place.api.find(TAG, file_id="")


def test_a_connection_that_ends_in_the_middle_leaves_the_rows_before(life: Life) -> None:
    # Where dimensions are not known, the first rows wait for each other.
    life.place.api._dims = DIMS
    life.place.control(faults={"output": "truncated"})
    results = life.place.api.results(life.look)

    got = [next(results)]
    with pytest.raises(ProviderError) as caught:
        got.extend(results)

    assert caught.value.kind == "later"
    assert got[0].vector is not None


def test_half_a_file_is_good_rows_and_one_that_is_cut(life: Life) -> None:
    life.place.control(faults={"output": "half"})

    results = list(life.place.api.results(life.look))

    assert len([result for result in results if result.vector]) in (1, 2)
    assert all(result.error.kind == "broken" for result in results if result.error)


@pytest.mark.parametrize("provider", ["openai", "voyage"])
@pytest.mark.parametrize("fault", ["404", "html", "400:Odd."])
def test_a_file_of_errors_that_is_not_there_takes_nothing_from_the_good_rows(
    provider: str, fault: str, place: Place
) -> None:
    place.control(rows="refused:beta", faults={"errors": fault})

    results = place.run()

    assert [text for text, result in results.items() if result.vector] == [TEXTS[0], *TEXTS[2:]]
    error = results[""].error
    assert error is not None
    assert "the file of the errors is not available" in error.message


@pytest.mark.parametrize("provider", ["openai", "voyage"])
def test_a_file_of_errors_that_may_come_later_is_waited_for(provider: str, place: Place) -> None:
    place.control(rows="refused:beta", faults={"errors": "429:60"})

    with pytest.raises(ProviderError) as caught:
        place.run()

    assert caught.value.retry_after_s == 60


@pytest.mark.parametrize("provider", PROVIDERS)
def test_nothing_is_sent_where_nobody_listens_and_that_is_certain(provider: str, clock: ManualClock) -> None:
    with SERVERS[provider]() as gone:
        api = client(provider, gone.url, clock=clock, timeout_s=10)

    with pytest.raises(ProviderError) as upload:
        api.upload(map(row, TEXTS), tag=TAG)
    with pytest.raises(ProviderError) as create:
        api.create("file-1", tag=TAG, agent="main")
    api.close()

    for caught in (upload, create):
        assert caught.value.kind == "later"
        assert not caught.value.maybe_done


def test_a_removal_goes_on_after_one_that_failed(life: Life) -> None:
    life.place.control(faults={"delete": ["429:60"]})

    with pytest.raises(ProviderError):
        life.place.api.clean_up(life.look, file_id=life.file_id)

    assert life.place.server.log()["batch"]["files"] == 1


def test_a_trickle_is_no_answer(life: Life, impatient: Callable[[Place], Place]) -> None:
    life.place.control(faults={"look": "trickle", "output": "trickle"})
    api = impatient(life.place).api

    with pytest.raises(ProviderError) as caught:
        api.get_job(life.look.id)
    with pytest.raises(ProviderError) as in_the_middle:
        list(api.results(life.look))

    assert caught.value.kind == in_the_middle.value.kind == "later"


def test_an_answer_that_is_packed_is_unpacked(life: Life) -> None:
    life.place.control(faults=dict.fromkeys(CALLS, "gzip"))

    assert len(list(life.place.api.results(life.look))) == len(TEXTS)
    assert life.place.api.find(TAG, file_id="") is not None


def test_results_that_lie_elsewhere_are_fetched_there_without_the_key(place: Place) -> None:
    file_id = place.api.upload(map(row, TEXTS), tag=TAG)
    look = place.api.get_job(place.api.create(file_id, tag=TAG, agent="main").id)
    seen: list[dict[str, str]] = []
    with VoyageServer() as storage:
        content = place.server.batches.jobs.files[look.output.removeprefix("files/")]
        storage.batches.jobs.files["file-x"] = content
        storage.admits = lambda headers: seen.append(dict(headers)) or True  # type: ignore[func-returns-value,method-assign]
        target = f"{storage.url}/files/file-x/content"
        place.control(faults={"output": f"redirect:{target}"})

        results = list(place.api.results(look))

    assert len([result for result in results if result.vector]) == len(TEXTS)
    (headers,) = seen
    assert not {"authorization", "x-goog-api-key", "x-team"} & headers.keys()
    assert KEY not in str(headers)
