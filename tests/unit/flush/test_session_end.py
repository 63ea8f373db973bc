import json
from collections.abc import Callable

import pytest

from memline.shared.flush import session_end
from memline.shared.flush.session_end import SessionEnd, newest, read_end, turns_of
from memline.shared.sessions.openclaw import FORMAT

Write = Callable[..., SessionEnd]

COMPACTED = {"type": "compaction", "summary": "they spoke", "timestamp": "2026-02-10T10:00:00Z"}


def said(role, text, **more):
    message = {"role": role, "content": [{"type": "text", "text": text}], **more}
    return {"type": "message", "timestamp": "2026-02-10T09:00:00Z", "message": message}


@pytest.fixture
def write(tmp_path):
    def write(*records, half=""):
        path = tmp_path / "s.jsonl"
        path.write_text("".join(json.dumps(each) + "\n" for each in records) + half, encoding="utf-8")
        return read_end(path)

    return write


def turns(end):
    return turns_of(end, FORMAT, now=1_800_000_000.0)


def test_the_last_count_of_the_provider_and_an_estimate_of_what_came_after_it(write):
    usage = {"input": 900, "output": 60, "cacheRead": 40}
    counted = said("assistant", "a" * 40, usage=usage, provider="openai", model="m")
    thought = {"type": "thinking", "thinking": "t " * 2_000, "thinkingSignature": "s" * 40_000}
    after = [said("toolResult", "r " * 2_000), {"type": "message", "message": {"content": [thought]}}]

    end = write(said("user", "u " * 9_000), counted, *after)

    assert 1_000 + 2_000 <= end.tokens <= 1_000 + 2_150 and end.model == "openai/m"
    # An answer that was broken off has no usable count.
    assert write(said("assistant", "a" * 40, usage=usage, stopReason="error")).tokens < 100


def test_what_a_compaction_left_out_does_not_count(write):
    before = [said("user", "old"), said("assistant", "x", usage={"totalTokens": 9_000})]

    end = write(*before, COMPACTED, said("user", "new"), half='{"type": "mess')

    assert turns(end) == ["User: new"]
    assert end.tokens < 50 and end.began == 1_770_717_600.0
    assert end.size == len(json.dumps(said("user", "new"))) + 1
    assert turns(write(*before)) == ["User: old", "Assistant: x"]
    assert write(*before).began == 1_770_714_000.0


def test_of_a_long_transcript_the_end_is_read(write, monkeypatch):
    monkeypatch.setattr(session_end, "END_BYTES", 1_000)

    end = write(*(said("user", f"number {number}") for number in range(100)))

    assert turns(end)[-1] == "User: number 99" and 3 < len(turns(end)) < 10 and end.size <= 1_000


@pytest.mark.parametrize("value", [["x"], {"a": 1}, None, True, 1e400, 10**30, "\ud800", []])
@pytest.mark.parametrize("field", ["type", "timestamp", "message", "summary"])
def test_an_odd_record_is_measured_like_any_other(write, field, value):
    end = write(
        {"type": "message", field: value}, said("user", "u" * 400), {"type": "compaction", field: value}
    )

    assert end.tokens < 300


def test_the_newest_are_kept_and_one_that_is_too_long_is_cut():
    long, short = "User: " + "a" * 40, "User: " + "b" * 40

    assert newest([long, short], 1_000) == ([long, short], False)
    assert newest([long, short], 15) == ([short], True)
    (cut,), is_cut = newest([long, short], 5)
    assert is_cut and cut.startswith("User: bbb") and len(cut) <= 20
