import pytest
from msgspec.structs import replace

from memline.shared.index import ledger
from memline.shared.sources.tokens import grams
from tests.support.index_rows import (
    MODEL_A,
    backlog,
    file_row,
    make_job,
    paths_with,
    retarget,
    segments,
    stored_chunks,
)


@pytest.mark.parametrize(
    "late",
    [
        file_row("a.md", "old", at=1),
        file_row("a.md", at=1, outcome="removed"),
        file_row("a.md", "new", at=2),
    ],
    ids=["older", "removed", "same"],
)
def test_an_older_look_never_replaces_a_newer_one(writer, late):
    writer.store_file(file_row("a.md", "new", at=2))

    change = writer.store_file(late)

    assert change == "late"
    assert paths_with(writer, "new") == ["a.md"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain ascii", ""),
        ("café", ""),
        ("金银价格", "金银 银价 价格 格"),
        ("价", "价"),
        ("東京 と café", "東京 京 と"),
    ],
)
def test_runs_without_spaces_become_pairs(text, expected):
    assert grams(text) == expected


def test_an_unchanged_file_only_moves_its_time(writer):
    first = file_row("a.md", "apples", at=1)
    writer.store_file(first)

    change = writer.store_file(replace(first, chunks=None, observed_ns=2, mtime_ns=9))

    assert change == "unchanged"
    assert ledger.entries(writer.connection)["a.md"].mtime_ns == 9
    assert paths_with(writer, "apples") == ["a.md"]


@pytest.mark.parametrize("between", ["removed", "changed"])
def test_a_worker_that_compared_with_an_older_ledger_never_empties_a_file(writer, between):
    first = file_row("a.md", "apples", at=1)
    writer.store_file(first)
    if between == "removed":
        writer.store_file(file_row("a.md", at=2, outcome="removed"))
    else:
        writer.store_file(file_row("a.md", "pears", at=2))

    change = writer.store_file(replace(first, chunks=None, observed_ns=3))

    assert change == "unknown"
    assert paths_with(writer, "pears") == ([] if between == "removed" else ["a.md"])


def test_an_edit_after_the_clock_was_set_back_is_not_taken_for_an_old_message(writer):
    hour_ns = 3_600 * 10**9
    writer.store_file(file_row("a.md", "apples", at=2 * hour_ns))

    change = writer.store_file(file_row("a.md", "pears", at=hour_ns))

    assert change == "stored"


def test_full_text_is_written_once_for_all_files_of_a_transaction(writer):
    retarget(writer, MODEL_A)
    writer.store_files([file_row(f"{number}.md", f"word{number}", at=1) for number in range(12)])

    assert segments(writer) == [1, 1]


def test_a_file_that_comes_twice_in_a_transaction_is_in_full_text_once(writer):
    writer.store_files([file_row("a.md", "apples", at=1), file_row("a.md", "pears", at=10**12)])

    assert [text for _, text in stored_chunks(writer)] == ["pears"]
    assert (paths_with(writer, "apples"), paths_with(writer, "pears")) == ([], ["a.md"])


def test_full_text_is_merged_once_no_job_has_files_to_read_and_not_before(writer):
    """Its vectors may come for hours."""
    retarget(writer, MODEL_A)
    job = make_job(writer, *(f"{number}.md" for number in range(80)))
    for number in range(20):
        writer.store_file(file_row(f"{number}.md", f"kestrel{number}", at=number + 2), job=job.token)
    writer.tidy()
    assert segments(writer) == [20, 20]

    for number in range(20, 80):
        writer.store_file(file_row(f"{number}.md", f"kestrel{number}", at=number + 2), job=job.token)
    writer.tidy()

    assert (backlog(writer).wanted, segments(writer)) == (80, [1, 1])
    assert paths_with(writer, "kestrel5") == ["5.md"]
