import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memline.shared.flush.transcript import SessionSize, measure, recent_turns
from memline.shared.sources.safe_open import FileRefused


def message(role: str, text: str, **more: Any) -> str:
    content = [{"type": "text", "text": text}]
    return json.dumps({"type": "message", "message": {"role": role, "content": content, **more}}) + "\n"


def compaction(summary: str) -> str:
    return json.dumps({"type": "compaction", "summary": summary}) + "\n"


class Transcript:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "s.jsonl"
        self.size = SessionSize()

    def add(self, *lines: str) -> SessionSize:
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(lines)
        return self.measure()

    def measure(self) -> SessionSize:
        self.size = measure(str(self.path.parent), self.path.name, self.size)
        return self.size


@pytest.fixture
def transcript(tmp_path: Path) -> Transcript:
    return Transcript(tmp_path)


def test_text_is_estimated_with_thinking_and_tools_until_the_provider_has_counted(
    transcript: Transcript,
) -> None:
    noise = [{"type": "thinking", "thinking": "t" * 400}, {"type": "toolCall", "arguments": {"a": "x" * 40}}]
    line = json.dumps({"type": "message", "message": {"role": "assistant", "content": noise}}) + "\n"

    assert transcript.add(message("user", "u" * 400), line).tokens == 100 + 100 + 10

    counted = message("assistant", "a" * 40, usage={"input": 900, "output": 60, "cacheRead": 40})
    assert transcript.add(counted).tokens == 1_000
    assert transcript.add(message("toolResult", "r" * 400)).tokens == 1_100


def test_only_what_was_added_is_read_again(transcript: Transcript) -> None:
    before = transcript.add(message("user", "u" * 400))
    # Same length, other text: it would be seen if it were read.
    content = transcript.path.read_text("utf-8")
    transcript.path.write_text(content[:1_024] + content[1_024:].replace("u", "w"), encoding="utf-8")

    after = transcript.add(message("user", "v" * 40))

    assert after.tokens == before.tokens + 10
    assert after.offset == transcript.path.stat().st_size


def test_a_compaction_begins_a_new_cycle_with_its_summary(transcript: Transcript) -> None:
    transcript.add(message("assistant", "a", usage={"totalTokens": 150_000}))

    size = transcript.add(compaction("s" * 800))

    assert (size.compactions, size.tokens, size.bytes_since_compaction) == (1, 200, 0)


def test_a_half_written_line_waits_for_its_end(transcript: Transcript) -> None:
    line = message("user", "u" * 400)

    assert transcript.add(line[:50]).tokens == 0
    assert transcript.add(line[50:]).tokens == 100


def test_a_transcript_that_shrank_or_was_rewritten_is_counted_anew(transcript: Transcript) -> None:
    transcript.add(message("user", "u" * 4_000), compaction("s"))
    transcript.path.write_text(message("user", "new " * 100), encoding="utf-8")

    assert (transcript.measure().tokens, transcript.size.compactions) == (100, 0)

    transcript.path.write_text(message("user", "other" * 2_000), encoding="utf-8")
    assert transcript.measure().tokens == 2_500


def test_odd_records_count_nothing_and_break_nothing(transcript: Transcript) -> None:
    deep = "[" * 100_000
    odd = [
        "not json\n",
        "[]\n",
        '{"type": "message", "message": 5}\n',
        '{"type": "message", "message": {"role": "assistant", "usage": {"totalTokens": "many"}}}\n',
        '{"type": "message", "message": {"role": "user", "content": {"type": "image", "data": "'
        + "x" * 9_000
        + '"}}}\n',
        message("assistant", "", usage={"totalTokens": 99}, stopReason="aborted"),
        deep + "\n",
        "\0\n",
        "x" * (9 << 20) + "\n",
    ]

    assert transcript.add(*odd, message("user", "u" * 40)).tokens == 1_200 + 10
    assert transcript.size.offset == transcript.path.stat().st_size


def test_a_link_is_not_a_transcript(tmp_path: Path) -> None:
    (tmp_path / "real.jsonl").write_text("{}\n", encoding="utf-8")
    (tmp_path / "s.jsonl").symlink_to("real.jsonl")

    with pytest.raises(FileRefused):
        measure(str(tmp_path), "s.jsonl", SessionSize())


def test_a_transcript_that_is_cut_at_its_compaction_begins_a_new_cycle_all_the_same(
    transcript: Transcript,
) -> None:
    header = '{"type": "session", "id": "x"}\n'
    first = transcript.add(header, message("user", "u" * 4_000)).cycle
    one = transcript.add(compaction("one")).cycle

    transcript.path.write_text(header + compaction("two") + message("user", "kept"), encoding="utf-8")
    two = transcript.measure()

    assert two.compactions == 1
    assert len({first, one, two.cycle}) == 3
    # Growth, and a start after a crash, are the same cycle.
    assert transcript.add(message("user", "more")).cycle == two.cycle
    assert measure(str(transcript.path.parent), transcript.path.name, SessionSize()).cycle == two.cycle


def test_the_model_that_answered_last_and_the_time_of_the_last_record_are_known(
    transcript: Transcript,
) -> None:
    answer = message("assistant", "a", usage={"totalTokens": 9}, provider="anthropic", model="opus")
    mirrored = message("assistant", "a", usage={"totalTokens": 0}, provider="openclaw", model="mirror")

    assert transcript.add(answer, mirrored).model == "anthropic/opus"

    change = {"type": "model_change", "provider": "openai", "modelId": "gpt-\ud800"}
    stamped = {**change, "timestamp": "2026-02-03T09:00:00.000Z"}
    assert transcript.add(json.dumps(stamped) + "\n", '{"timestamp": "soon"}\n').model == "openai/gpt-?"
    assert transcript.size.last_at == datetime(2026, 2, 3, 9, tzinfo=UTC).timestamp()


def test_metadata_does_not_fill_the_window_and_other_shown_records_do(transcript: Transcript) -> None:
    block = {"type": "thinking", "thinking": "t" * 40, "thinkingSignature": "s" * 40_000}
    record = {"type": "message", "message": {"role": "assistant", "content": [block]}}
    custom = {"type": "custom_message", "content": "c" * 40}
    branch = {"type": "branch_summary", "summary": "b" * 40}

    lines = [json.dumps(each) + "\n" for each in (record, custom, branch)]
    assert transcript.add(*lines).tokens == 30


def test_a_long_transcript_is_measured_piece_by_piece(transcript: Transcript) -> None:
    transcript.path.write_text(message("user", "u" * 100_000) * 30, encoding="utf-8")

    sizes = [SessionSize()]
    while not sizes[-1].changed_ns:
        sizes.append(measure(str(transcript.path.parent), "s.jsonl", sizes[-1], max_bytes=1 << 20))

    assert len(sizes) == 4
    assert sizes[-1] == transcript.measure()


@pytest.mark.parametrize("value", [["x"], {"a": 1}, None, True, 1e400, 10**30, "\ud800", []])
@pytest.mark.parametrize("field", ["type", "timestamp", "message", "summary", "provider", "modelId"])
@pytest.mark.parametrize("kind", ["message", "compaction", "model_change", "custom_message"])
def test_an_odd_record_is_measured_like_any_other(
    transcript: Transcript, value: object, field: str, kind: str
) -> None:
    before = transcript.add(message("user", "u" * 400))

    after = transcript.add(json.dumps({"type": kind, field: value}) + "\n", message("user", "u" * 400))

    assert after.offset == transcript.path.stat().st_size
    assert after.tokens >= 100 or after.compactions > before.compactions


NAME = "s.jsonl"
COMPACTED = '{"type": "compaction", "summary": "they spoke"}\n'


def said(text: str) -> str:
    return json.dumps({"type": "message", "message": {"role": "user", "content": text}}) + "\n"


def turns(
    folder: Path, size: SessionSize, *, start: int = 0, max_tokens: int = 1_000
) -> tuple[list[str], bool]:
    return recent_turns(folder, NAME, size, start=start, max_tokens=max_tokens, now=1_750_000_000.0)


def test_a_cycle_ends_at_the_next_compaction_that_may_have_come_before_the_turn(tmp_path: Path) -> None:
    before = said("first") + COMPACTED
    (tmp_path / NAME).write_text(before + said("second") + COMPACTED + said("third"), encoding="utf-8")
    size = measure(str(tmp_path), NAME, SessionSize())

    assert turns(tmp_path, size) == (["User: first"], False)
    assert turns(tmp_path, size, start=len(before)) == (["User: second"], False)
    assert turns(tmp_path, size, start=size.compacted_at) == (["User: third"], False)


def test_a_transcript_that_was_written_anew_is_read_from_its_beginning(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(said("old " * 500), encoding="utf-8")
    size = measure(str(tmp_path), NAME, SessionSize())
    (tmp_path / NAME).write_text(COMPACTED + said("kept"), encoding="utf-8")

    assert turns(tmp_path, size, start=1_900) == (["User: kept"], False)


def test_the_newest_are_kept_and_one_that_is_too_long_is_cut(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(said("a" * 40) + said("b" * 40), encoding="utf-8")
    size = measure(str(tmp_path), NAME, SessionSize())

    assert turns(tmp_path, size, max_tokens=15) == (["User: " + "b" * 40], True)
    (cut,), is_cut = turns(tmp_path, size, max_tokens=5)
    assert is_cut and cut.startswith("User: bbb") and len(cut) <= 20


def test_a_transcript_that_is_gone_has_no_turns(tmp_path: Path) -> None:
    assert turns(tmp_path, SessionSize()) == ([], False)
