from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from memline.producers.cli import run
from memline.producers.cli.queue import PAGE, _backlog_lines
from memline.producers.reports import fleet_state
from memline.shared.queue import dead_letters, message_list
from memline.shared.queue.dead_letters import DeadLetter
from tests.support.workspace import Place, remote

REPORT: dict[str, Any] = {
    "queues": [
        {
            "name": "embed",
            "role": "embed",
            "indexHost": "",
            "waiting": 3,
            "inFlight": 2,
            "delayed": 0,
            "dead": 1,
            "oldestSeconds": 400.0,
            "ratePerMinute": 60.0,
        }
    ],
    "backlog": {"files": 7, "wanted": 9, "leased": 4, "failed": 1, "paused": 2, "etaSeconds": 13.0},
    "agents": [
        {
            "agentId": "main",
            "ceiling": {"reason": "the ceiling is reached", "action": "raise it"},
            "jobs": [{"id": "5f3a", "agentId": "main", "name": "reindex", "progress": "3 of 10 files read"}],
        }
    ],
    "spending": {
        "today": {"requests": 3, "tokens": 2_000_000, "cost": 0.04, "unpricedTokens": 0},
        "thirtyDays": {"requests": 9, "tokens": 4_000_000, "cost": 0.06, "unpricedTokens": 1_000_000},
        "models": [{"provider": "openai", "model": "small"}],
    },
    "workerFailure": None,
    "workers": [
        {
            "role": "embed",
            "queues": ["embed"],
            "host": "one",
            "indexHost": "",
            "pid": 7,
            "version": "1",
            "lastSeenSeconds": 2.0,
            "threads": 4,
            "threadsBusy": 1,
            "current": [{"actor": "embed_texts", "ageSeconds": 3.0}],
            "memoryBytes": 52_428_800,
            "draining": True,
        }
    ],
    "providers": [
        {
            "name": "openai",
            "agentId": "main",
            "state": "paused",
            "reason": "no quota",
            "action": "memline queue resume",
            "modes": [],
        }
    ],
}

LETTERS = [
    DeadLetter(id="1", queue="store", actor="store_files", agent="main", error="disk is full", age_s=60.0)
]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(folder=tmp_path / "user", memory=remote("http://127.0.0.1:9/v1"))


@pytest.fixture
def fleet(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fleet whose Redis is not asked."""
    monkeypatch.setenv("MEMLINE_QUEUE_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("MEMLINE_CONFIG", str(place.config))
    monkeypatch.setattr(fleet_state, "fleet_state", lambda *_: REPORT)

    def letters(_url: str, *, match: str, first: int, count: int | None) -> list[DeadLetter]:
        found = LETTERS if match in "*disk*" else []
        return found[first:] if count is None else found[first : first + count]

    monkeypatch.setattr(dead_letters, "letters", letters)


def output(capsys: pytest.CaptureFixture[str], *args: str, status: int = 0) -> str:
    assert run(args) == status
    return capsys.readouterr().out


@pytest.mark.usefixtures("fleet")
def test_the_report_is_a_table_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    shown = " ".join(output(capsys, "queue").split())

    assert "Backlog: 7 files to read, 9 wanted, 4 leased, 1 failed, 2 paused, about 13 s left" in shown
    assert "Job 5f3a (main), reindex: 3 of 10 files read" in shown
    assert "embed_texts" in shown and "50 MiB" in shown and "drains" in shown
    assert "Provider openai (main): paused, no quota (try: memline queue resume)" in shown
    assert json.loads(output(capsys, "queue", "--json")) == REPORT


@pytest.mark.usefixtures("fleet")
@pytest.mark.parametrize(
    ("condition", "is_met"),
    [
        ("oldest>300", True),
        ("oldest < 300", False),
        ("waiting>2", True),
        ("dead>1", False),
        ("backlog>12", True),
        ("failed>0.5", True),
        ("workers<2", True),
        ("paused>0", True),
        ("open>0", False),
    ],
)
def test_a_condition_that_holds_is_named_and_fails(
    capsys: pytest.CaptureFixture[str], condition: str, is_met: bool
) -> None:
    assert run(["queue", "--fail-if", condition]) == int(is_met)

    assert (f"{condition} holds" in capsys.readouterr().err) is is_met


@pytest.mark.usefixtures("fleet")
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--fail-if", "age>3"), "is not a valid condition"),
        (("--fail-if", "oldest=3"), "is not a valid condition"),
        (("--watch", "--json"), "without --json and --fail-if"),
        (("--watch", "--fail-if", "dead>0"), "without --json and --fail-if"),
    ],
)
def test_options_that_make_no_sense_are_wrong_usage(
    capsys: pytest.CaptureFixture[str], args: tuple[str, ...], words: str
) -> None:
    assert run(["queue", *args]) == 2

    assert words in capsys.readouterr().err


def test_without_a_queue_it_says_what_to_look_at_instead(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(place.arguments("queue")) == 1

    assert f"Try: {place.typed('status')}" in capsys.readouterr().err


@pytest.mark.usefixtures("fleet")
def test_dead_messages_are_listed_with_their_errors(capsys: pytest.CaptureFixture[str]) -> None:
    listed = output(capsys, "queue", "dead")

    assert "store/store_files  main  60 s ago\n    disk is full" in listed
    assert output(capsys, "queue", "dead", "--match", "nothing") == "No dead messages.\n"


@pytest.mark.usefixtures("fleet")
def test_dead_messages_come_in_pages_and_json_is_whole_unless_a_page_is_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = [
        DeadLetter(id=f"m{number}", queue="store", error="no", age_s=1.0) for number in range(PAGE + 5)
    ]
    monkeypatch.setattr(sys.modules[__name__], "LETTERS", letters)

    def shown(*args: str) -> tuple[list[str], str]:
        assert run(["queue", "dead", *args]) == 0
        captured = capsys.readouterr()
        if "--json" in args:
            return [each["id"] for each in json.loads(captured.out)], captured.err
        return re.findall(r"^m\d+", captured.out, re.MULTILINE), captured.err

    names = [letter.id for letter in letters]
    assert shown() == (names[:PAGE], "There are more: --page 2\n")
    assert shown("--page", "2") == (names[PAGE:], "")
    assert shown("--limit", "10", "--page", "3", "--json") == (names[20:30], "There are more: --page 4\n")
    assert shown("--json") == (names, "")
    assert output(capsys, "queue", "dead", "--page", "9") == "No dead messages on page 9.\n"


@pytest.mark.usefixtures("fleet")
def test_dead_messages_are_put_back_or_removed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_list, "requeue", lambda _url, _state, chosen: len(chosen))
    monkeypatch.setattr(message_list, "drop", lambda _url, _state, chosen: len(chosen))

    assert json.loads(output(capsys, "queue", "requeue", "--json")) == {"requeued": 1}
    assert output(capsys, "queue", "drop", "--match", "*disk*") == "1 message removed.\n"


@pytest.mark.usefixtures("fleet")
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("drop",), "name the messages"),
        (("drop", "--match", "*", "--path", "a.md"), "use it alone"),
        (("requeue", "--match", "*", "--state", "delayed"), "use it alone"),
    ],
)
def test_which_messages_are_meant_is_said_in_one_way(
    capsys: pytest.CaptureFixture[str], args: tuple[str, ...], words: str
) -> None:
    assert run(["queue", *args]) == 2

    assert words in capsys.readouterr().err


def test_pausing_and_resuming_say_what_changed(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    shown = output(capsys, *place.arguments("queue", "pause", "--provider", "openai", "--mode", "batch"))
    resumed = json.loads(output(capsys, *place.arguments("queue", "resume", "--json")))

    assert shown == "main: embedding by batches with openai is paused.\n"
    assert (resumed[0]["agentId"], resumed[0]["paused"]) == ("main", False)


def test_a_queue_without_a_worker_is_named() -> None:
    report = {**REPORT, "workers": []}

    host = {**REPORT["queues"][0], "name": "store-two", "role": "store", "indexHost": "two"}
    old = {**host, "name": "store", "indexHost": ""}
    of_hosts = {**REPORT, "queues": [host, old]}
    assert [line for line in _backlog_lines(of_hosts) if "queue store" in line] == [
        "No worker takes messages from the queue store-two (memline worker store, with queue.host two)",
        "Messages wait on the queue store since before the index hosts had names; none takes them",
    ]
    missing = "No worker takes messages from the queue embed (memline worker embed)"
    assert missing in list(_backlog_lines(report))
    assert missing not in list(_backlog_lines(REPORT))
