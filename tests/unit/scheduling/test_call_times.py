from contextlib import closing
from pathlib import Path

from memline.shared.figures import counters
from memline.shared.index.accounts import AccountFile
from memline.shared.scheduling import call_times


def test_calls_are_counted_for_the_metrics_and_those_of_a_request_once(tmp_path: Path) -> None:
    with closing(AccountFile(tmp_path / "accounts.sqlite")) as file:
        for account in ("openai:1", "openai:2", "gemini:2", "gemini:2"):
            call_times.record(file, account, [("rate_limit", 5), ("ok", 90)], of=account)
        call_times.record(file, "openai:1", [])
        found = counters.read(file)

    asked = {(each["provider"], each["kind"]): count for each, count in found[counters.ASKED]}
    assert asked[("openai", "rate_limit")] == asked[("openai", "ok")] == 2
    assert asked[("gemini", "ok")] == 1
