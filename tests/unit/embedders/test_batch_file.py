"""The file of a batch on its way out: its caps, its disk, and the bodies that carry it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from shared.embedders.batch import BatchCaps
from shared.embedders.batch_fields import moment
from shared.embedders.batch_file import collected, line_of
from shared.embedders.batch_remote import RemoteBatchApi, file_name
from shared.errors import ProviderBrokenAnswer, ProviderLater, ProviderTooBig
from tests.unit.embedders.batches import PROVIDERS, TAG, Open, row

CAPS = BatchCaps(max_rows=3, max_bytes=40)


@pytest.mark.parametrize(
    ("lines", "rows"),
    [([b"a\n"] * 4, 3), ([b"x" * 19 + b"\n"] * 3, 2), ([b"x" * 41], 1)],
)
def test_what_is_above_a_cap_is_not_sent(lines: list[bytes], rows: int) -> None:
    with pytest.raises(ProviderTooBig) as caught, collected(iter(lines), caps=CAPS, provider="openai"):
        pass

    assert caught.value.max_rows == rows


def test_what_is_at_the_caps_is_kept_and_can_be_read_twice() -> None:
    with collected([b"x" * 12 + b"\n"] * 3, caps=CAPS, provider="openai") as file:
        assert (file.rows, file.size) == (3, 39)
        assert b"".join(file.pieces()) == b"".join(file.pieces()) == (b"x" * 12 + b"\n") * 3


def test_a_job_without_rows_is_none() -> None:
    with (
        pytest.raises(ProviderBrokenAnswer, match="without rows"),
        collected([], caps=CAPS, provider="openai"),
    ):
        pass


def test_a_full_disk_says_where_to_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    full = open("/dev/full", "w+b", buffering=0)  # noqa: PTH123, SIM115 - the block below closes it
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: full)

    with pytest.raises(ProviderLater) as caught, collected([b"x\n"], caps=CAPS, provider="openai"):
        pass

    assert "No space left" in caught.value.message
    assert "TMPDIR" in caught.value.hint


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_cap_of_the_provider_stops_before_anything_is_sent(
    provider: str, open_batches: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = open_batches(provider)
    monkeypatch.setattr(RemoteBatchApi, "caps", BatchCaps(max_rows=2, max_bytes=10**6))
    taken: list[int] = []

    def rows() -> Iterator[Any]:
        for number in range(1000):
            taken.append(number)
            yield row(str(number))

    with pytest.raises(ProviderTooBig):
        place.api.upload(rows(), tag=TAG)

    assert place.calls == {}
    assert len(taken) == 3


def test_a_line_is_one_line_whatever_the_text_holds() -> None:
    line = line_of({"text": "one\ntwo\r\u2028\0 \ud800 漢"})

    assert line.count(b"\n") == 1
    assert line.decode() == '{"text":"one\\ntwo\\r\u2028\\u0000 ? 漢"}\n'


@pytest.mark.parametrize("tag", ["", "a b", 'a"b', "a/b", "a\nb", "ü", "x" * 101])
def test_a_tag_that_cannot_stand_in_a_name_is_refused(tag: str) -> None:
    with pytest.raises(ValueError, match="tag"):
        file_name(tag)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (1_700_000_000, 1_700_000_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000),
        ("2023-11-14T22:13:20.000000+00:00", 1_700_000_000),
        ("2023-11-14T22:13:20.123456789Z", 1_700_000_000.123456),
        (None, 0),
        ("yesterday", 0),
    ],
)
def test_the_time_of_a_job_is_read_in_any_spelling(value: object, seconds: float) -> None:
    assert moment(value) == pytest.approx(seconds)
