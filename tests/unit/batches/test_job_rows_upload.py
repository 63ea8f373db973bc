"""The file of a batch: its caps, its disk, and the bodies that carry it."""

import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from memline.shared.batches import job_rows
from memline.shared.batches.job_rows import multipart, spooled
from memline.shared.errors import ProviderBrokenAnswer, ProviderLater, ProviderTooBig
from tests.unit.batches.providers import TAG, Place, row

#: Its line is 11 bytes.
ROW = {"k": "xx"}


@pytest.fixture
def _caps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_rows, "MAX_ROWS", 3)
    monkeypatch.setattr(job_rows, "MAX_BYTES", 40)


@pytest.mark.usefixtures("_caps")
@pytest.mark.parametrize("rows", [[{}] * 4, [{"k": "x" * 20}] * 2, [{"k": "x" * 40}]])
def test_what_is_above_a_cap_is_not_sent(rows: list[dict[str, object]]) -> None:
    with pytest.raises(ProviderTooBig), spooled(iter(rows), "openai"):
        pass


@pytest.mark.usefixtures("_caps")
def test_what_is_at_the_caps_is_kept_and_can_be_read_twice() -> None:
    with spooled([{"k": "x" * 9}, ROW, ROW], "openai") as file:
        assert file.tell() == 40
        upload = multipart("mixed", "a: b\r\n\r\nabout", file)
        bodies = [b"".join(upload.pieces()) for _ in range(2)]

    assert bodies[0] == bodies[1]
    assert len(bodies[0]) == upload.size
    assert b'{"k":"xxxxxxxxx"}\n{"k":"xx"}\n{"k":"xx"}\n' in bodies[0]


def test_a_job_without_rows_is_none() -> None:
    with pytest.raises(ProviderBrokenAnswer, match="without rows"), spooled([], "openai"):
        pass


def test_a_full_disk_says_where_to_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    full = open("/dev/full", "w+b", buffering=0)  # noqa: PTH123, SIM115 - the block below closes it
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: full)

    with pytest.raises(ProviderLater) as caught, spooled([ROW], "openai"):
        pass

    assert "No space left" in caught.value.message
    assert "TMPDIR" in caught.value.hint


def test_a_cap_of_the_provider_stops_before_anything_is_sent(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_rows, "MAX_ROWS", 2)
    taken: list[int] = []

    def many() -> Iterator[Any]:
        for number in range(1000):
            taken.append(number)
            yield row(str(number))

    with pytest.raises(ProviderTooBig):
        place.api.upload(many(), tag=TAG)

    assert place.calls == {}
    assert len(taken) == 3


def test_a_line_is_one_line_whatever_the_text_holds() -> None:
    with spooled([{"text": "one\ntwo\r\u2028\0 \ud800 漢"}], "openai") as file:
        file.seek(0)
        line = file.read()

    assert line.count(b"\n") == 1
    assert line.decode() == '{"text":"one\\ntwo\\r\u2028\\u0000 ? 漢"}\n'
