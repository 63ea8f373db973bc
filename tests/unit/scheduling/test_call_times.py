from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from memline.shared.figures import counters
from memline.shared.index.accounts import AccountFile
from memline.shared.scheduling import call_times

NOW = 1_750_000_000.0
DAY_S = 86_400.0


@pytest.fixture
def file(tmp_path: Path) -> Iterator[AccountFile]:
    with closing(AccountFile(tmp_path / "accounts.sqlite")) as opened:
        yield opened


def test_latency_is_that_of_good_answers_and_errors_are_counted_by_kind(file: AccountFile) -> None:
    calls = [("ok", ms) for ms in range(10, 1_010, 10)]
    call_times.record(file, "openai:1", [*calls, ("rate_limit", 3), ("rate_limit", 9_000), ("stop", 1)], NOW)

    report = call_times.of_account(file, "openai:1", NOW)

    assert (report["calls"], report["errors"]) == (103, {"rate_limit": 2, "stop": 1})
    assert 450 <= report["p50Ms"] <= 550 and 855 <= report["p95Ms"] <= 1_045


def test_the_counters_of_the_home_keep_what_is_older_than_a_day(file: AccountFile) -> None:
    for account, at in (("openai:1", NOW - DAY_S - 3_600), ("openai:2", NOW), ("gemini:2", NOW)):
        call_times.record(file, account, [("rate_limit", 5), ("ok", 90)], at)

    found = counters.read(file)
    asked = {(each["provider"], each["kind"]): count for each, count in found[counters.ASKED]}
    assert asked[("openai", "rate_limit")] == asked[("openai", "ok")] == 2
    assert asked[("gemini", "ok")] == 1


def test_accounts_are_apart_and_only_a_day_is_kept(file: AccountFile) -> None:
    call_times.record(file, "openai:1", [("ok", 100)], NOW - DAY_S - 3_600)
    call_times.record(file, "openai:2", [("ok", 100)], NOW)

    assert call_times.of_account(file, "openai:1", NOW)["calls"] == 0
    with file.reading() as connection:
        assert connection is not None
        assert connection.execute("SELECT count(*) FROM calls").fetchone() == (1,)


@pytest.mark.parametrize("took_ms", [-5, 0, 10**12])
def test_a_clock_that_was_set_gives_a_time_all_the_same(file: AccountFile, took_ms: int) -> None:
    call_times.record(file, "a", [("ok", took_ms)], NOW)

    assert 1 <= call_times.of_account(file, "a", NOW)["p95Ms"] <= 4_000_000


def test_without_calls_nothing_is_written_and_nothing_is_said(file: AccountFile) -> None:
    call_times.record(file, "a", [], NOW)

    assert not file.path.exists()
    assert call_times.of_account(file, "a", NOW) == {"calls": 0, "errors": {}, "p50Ms": None, "p95Ms": None}
