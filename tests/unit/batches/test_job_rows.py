"""What a row of the results can be: good, an error, nothing that can be read; never the end of the rest."""

import json
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from memline.shared.batches import job_rows
from memline.shared.batches.job_rows import MAX_LINE_BYTES, BatchResult, lines
from tests.support.batch_jobs import FOREIGN_KEY
from tests.unit.batches.providers import PROVIDERS, TEXTS, Place, client, key, row
from tests.unit.embedders.conftest import KEY

#: What is wrong with the row of `beta`, the kind of its error at OpenAI and Voyage, and words of it.
BAD_ROWS = {
    "refused": ("refused", "cannot be processed"),
    "error": ("refused", "cannot be processed"),
    "429": ("later", "Rate limit"),
    "500": ("later", "The server had an error"),
    "nan": ("broken", "not finite"),
    "zero": ("broken", "a vector is zero"),
    "empty": ("broken", "a vector is empty"),
    "wrong-dims": ("broken", "15 dimensions; expected 16"),
}


def good(results: dict[str, BatchResult]) -> list[str]:
    return [text for text, result in results.items() if result.vector is not None]


def the_others() -> list[str]:
    """The texts of the good rows."""
    return [text for text in TEXTS if "beta" not in text]


@pytest.mark.parametrize("fault", BAD_ROWS)
def test_a_bad_row_is_an_error_of_its_own_kind_and_the_others_are_good(
    provider: str, fault: str, place: Place
) -> None:
    place.control(rows=f"{fault}:beta")
    kind, words = BAD_ROWS[fault]

    results = place.run()

    assert good(results) == the_others()
    error = results["beta plan"].error
    assert error is not None
    assert error.kind == kind
    assert words in error.message
    assert error.message.startswith(f"{provider} batch row failed: ")
    assert len(results) == len(TEXTS)


@pytest.mark.parametrize("fault", ["not-json", "nul", "no-object", "huge", "huge:20", "blank", "permuted"])
def test_lines_that_are_no_rows_disturb_nothing(fault: str, place: Place) -> None:
    place.control(rows=fault)

    results = place.run()

    assert sorted(good(results)) == sorted(TEXTS)
    others = [result for text, result in results.items() if text not in TEXTS]
    assert all(result.error is not None and result.error.kind == "broken" for result in others)
    assert len(others) == (0 if fault in ("blank", "permuted") else 1)


def test_missing_rows_are_missing_and_foreign_ones_come_with_their_key(place: Place) -> None:
    place.control(rows="missing:beta,foreign")

    results = place.run()

    assert sorted(good(results)) == sorted([*the_others(), FOREIGN_KEY])
    assert "beta plan" not in results


def test_a_row_that_comes_twice_is_two_results(place: Place) -> None:
    place.control(rows="duplicate:beta")
    file_id = place.api.upload((row(text) for text in TEXTS), tag="twice")
    look = place.api.get_job(place.api.create(file_id, tag="twice", agent="main").id)

    results = [result.key for result in place.api.results(look)]

    assert results.count(key("beta plan")) == 2
    assert len(results) == len(TEXTS) + 1


def test_a_row_that_does_not_say_whose_it_is_has_no_key(place: Place) -> None:
    place.control(rows="no-key:beta")

    assert results_keys(place.run()) == {*map(key, the_others()), ""}


def test_half_a_last_line_still_says_whose_it_was(place: Place) -> None:
    place.control(rows="half")

    results = place.run()

    assert good(results) == list(TEXTS[:-1])
    error = results[TEXTS[-1]].error
    assert error is not None
    assert error.kind == "broken"
    assert "not JSON" in error.message


def test_known_dimensions_are_asked_of_the_first_row_on(place: Place) -> None:
    place.api._dims = 17

    results = place.run()

    assert good(results) == []
    assert all("expected 17" in str(result.error) for result in results.values())


def test_one_odd_row_that_comes_first_does_not_spoil_the_others(place: Place) -> None:
    place.control(rows="wrong-dims:alpha")

    results = place.run()

    assert good(results) == [text for text in TEXTS if "alpha" not in text]


def test_everything_wrong_at_once_is_sorted_out(place: Place) -> None:
    texts = [f"{word} text {number}" for word in ("good", *BAD_ROWS, "missing") for number in range(3)]
    faults = ",".join(f"{word}:{word}" for word in (*BAD_ROWS, "missing"))
    place.control(rows=f"{faults},foreign,not-json,nul,huge,blank,permuted,duplicate:good")

    results = place.run(texts)

    kinds = {text: result.error.kind if result.error else "good" for text, result in results.items()}
    for text in texts:
        word = text.split()[0]
        assert kinds.get(text, "missing") == (BAD_ROWS[word][0] if word in BAD_ROWS else word)


def read(given: Any, provider: str = "openai") -> BatchResult:
    line = given if isinstance(given, bytes) else json.dumps(given).encode()
    with closing(client(provider, "http://127.0.0.1:9/v1", clock=None, timeout_s=1)) as api:
        (result,) = api._results([line + b"\n"])
    return result


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"response": {"status_code": 400, "body": {"error": {"message": "odd", "code": "x"}}}}, "refused"),
        ({"response": {"status_code": 400, "body": "odd"}}, "refused"),
        ({"response": {"status_code": 400}}, "refused"),
        ({"response": {"status_code": 401, "body": {"error": {"message": f"bad key {KEY}"}}}}, "stop"),
        ({"response": {"status_code": 404, "body": {"error": {"message": "no such model"}}}}, "stop"),
        ({"response": {"status_code": 429, "body": {"error": {"code": "insufficient_quota"}}}}, "stop"),
        ({"response": {"status_code": 429, "message": "slow down"}}, "later"),
        ({"response": {"status_code": 500, "message": "Internal Server Error"}, "error": None}, "later"),
        ({"response": {"status_code": 400, "body": {"error": "input length is 9 tokens"}}}, "too_big"),
        ({"error": {"code": "batch_expired", "message": "not executed"}, "response": None}, "later"),
        ({"error": {"code": "batch_cancelled", "message": "not executed"}}, "later"),
        ({"error": {"code": "429", "message": "slow down"}}, "later"),
        ({"error": {"code": 503, "message": "overloaded"}}, "later"),
        ({"error": {"message": "odd"}}, "refused"),
        ({"error": "odd"}, "refused"),
        ({"error": ["odd"]}, "refused"),
        ({"error": {"message": "odd"}, "response": {"status_code": 500}}, "later"),
        ({"response": {"status_code": 200, "body": {"data": []}}}, "broken"),
        ({"response": {"status_code": 200, "body": {"data": [1]}}}, "broken"),
        ({"response": {"status_code": 200, "body": {"data": [{"embedding": "%%%"}]}}}, "broken"),
        ({"response": {"status_code": 200, "body": {"data": [{"embedding": "AAA="}]}}}, "broken"),
        ({"response": {"status_code": 200, "body": {"data": [{"embedding": ["x"]}]}}}, "broken"),
        ({"response": {"status_code": 200, "body": {"data": [{"embedding": [1e999]}]}}}, "broken"),
        ({"response": {"status_code": 200, "body": None}}, "broken"),
        ({"response": "odd"}, "broken"),
        ({"response": None, "error": None}, "broken"),
        ({}, "broken"),
    ],
)  # fmt: skip
def test_each_shape_of_a_row_of_openai_has_its_kind(given: dict[str, Any], kind: str) -> None:
    result = read({"custom_id": "k", **given})

    assert result.key == "k"
    assert result.vector is None
    assert result.error is not None
    assert result.error.kind == kind
    assert KEY not in result.error.message


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"error": {"code": 3, "message": "odd"}}, "refused"),
        ({"error": {"code": 8, "message": "slow down"}}, "later"),
        ({"error": {"code": 13, "message": "oops"}}, "later"),
        ({"error": {"code": 1, "message": "The operation was cancelled."}}, "later"),
        ({"error": {"code": 16, "message": "who are you?"}}, "stop"),
        ({"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "odd"}}, "refused"),
        ({"error": {"status": "UNAVAILABLE", "message": "later"}}, "later"),
        ({"response": {"error": {"code": 3, "message": "odd"}}}, "refused"),
        ({"response": {"embedding": {"values": []}}}, "broken"),
        ({"response": {"embedding": None}}, "broken"),
        ({"response": None}, "broken"),
        ({}, "broken"),
    ],
)
def test_each_shape_of_a_row_of_gemini_has_its_kind(given: dict[str, Any], kind: str) -> None:
    result = read({"key": "k", **given}, "gemini")

    assert result.key == "k"
    assert result.error is not None
    assert result.error.kind == kind


@pytest.mark.parametrize(
    "given",
    [
        {"key": "k", "response": {"embedding": {"values": [3, 4]}}},
        {"key": "k", "embedding": {"values": [3, 4]}},
        {"custom_id": "k", "response": {"embedding": {"values": [3, 4]}}},
        {"request_id": "k", "response": {"embedding": {"values": [3, 4]}}},
    ],
)
def test_older_rows_of_gemini_are_read_as_well(given: dict[str, Any]) -> None:
    result = read(given, "gemini")

    assert result.key == "k"
    assert result.vector is not None


@pytest.mark.parametrize(
    ("line", "whose"),
    [
        (b'\xef\xbb\xbf{"custom_id": "k"}', "k"),
        (b'{"custom_id": "k", "x": "\xff\xfe"}', "k"),
        (b'{"custom_id" : "k", "response": {"body": {"da', "k"),
        (b'{"custom_id": 17}', ""),
        (b'{"custom_id": ["k"]}', ""),
        (b"[" * 100_000, ""),
        (b'["k"]', ""),
        (b"null", ""),
        (b"\0\0\0", ""),
        (b'{"custom_id": "k", "response": ' + b"9" * 5000 + b"}", "k"),
    ],
)
def test_lines_of_any_bytes_are_results(line: bytes, whose: str) -> None:
    result = read(line)

    assert (result.key, result.vector) == (whose, None)
    assert result.error is not None
    assert result.error.kind == "broken"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_row_that_is_nested_as_deeply_as_can_just_be_read_ends_no_reading(provider: str) -> None:
    depths = range(1, sys.getrecursionlimit() + 1)
    lines = [b'{"key": "k", "error": ' + b"[" * depth + b"]" * depth + b"}\n" for depth in depths]

    with closing(client(provider, "http://127.0.0.1:9/v1", clock=None, timeout_s=1)) as api:
        results = list(api._results(lines))

    assert {result.key for result in results} == {"k"}
    assert len(results) == len(lines)


def split_at(data: bytes, size: int) -> Iterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_lines_do_not_depend_on_how_they_arrive(size: int) -> None:
    data = b"one\n\ntwo\r\nthree\n" + b"x" * 50 + b"\nlast"

    assert list(lines(split_at(data, size))) == data.split(b"\n")


def test_of_a_line_that_is_too_long_only_the_beginning_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_rows, "MAX_LINE_BYTES", 10_000)
    data = b"short\n" + b"x" * 20_000 + b"\nafter\n" + b"y" * 20_000

    got = list(lines(split_at(data, 4096)))

    assert got == [b"short", b"x" * 10_001, b"after", b"y" * 10_001]
    assert MAX_LINE_BYTES > 10_000_000


def results_keys(results: dict[str, BatchResult]) -> set[str]:
    return {result.key for result in results.values()}
