import json
import re
import sys
import time
from contextlib import closing
from typing import Any

import msgspec
import pytest

from memline.producers.cli import run
from memline.producers.cli.queue import SHOWN
from memline.shared.index_writer import IndexWriter
from memline.shared.queue import message_changes, message_list
from memline.shared.queue.message_list import DEAD, Filter, StoredMessage
from memline.shared.scheduling import ceilings
from memline.shared.scheduling.ceilings import Refusal
from tests.support.workspace import Place, remote

REPORT: dict[str, Any] = {
    "queues": [
        {
            "name": "embed",
            "role": "embed",
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
            "findings": [],
            "jobs": [{"id": "5f3a", "agentId": "main", "name": "reindex", "progress": "3 of 10 files read"}],
        }
    ],
    "findings": [
        {"level": "warning", "agent": None, "what": "no worker is alive", "action": "memline worker store"},
        {"level": "warning", "agent": "main", "what": "no quota", "action": "memline queue resume"},
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

pytestmark = pytest.mark.place(**remote("http://127.0.0.1:9/v1"))


def letter(name: str, error: str = "no", **fields: Any) -> StoredMessage:
    about = {"agent": "main", "paths": ("a.md", "b.md"), "dead_s": 60.0, "age_s": 90.0}
    return StoredMessage(
        id=name, queue="store", actor="store_files", state=DEAD, error=error, **{**about, **fields}
    )


LETTERS = [letter("1", "disk is full")]


@pytest.fixture
def fleet(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fleet whose Redis is not asked."""
    monkeypatch.setenv("MEMLINE_QUEUE_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("MEMLINE_CONFIG", str(place.config))
    monkeypatch.setattr("memline.producers.cli.queue.fleet_state", lambda *_: REPORT)

    def listed(_url: str, where: Filter) -> list[StoredMessage]:
        return [each for each in LETTERS if where.means(each)]

    monkeypatch.setattr(message_list, "listed", listed)


def output(capsys: pytest.CaptureFixture[str], *args: str, status: int = 0) -> str:
    assert run(args) == status
    return capsys.readouterr().out


@pytest.mark.usefixtures("fleet")
def test_the_report_is_a_table_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    shown = " ".join(output(capsys, "queue").split())

    assert "Backlog: 7 files to read, 9 wanted, 4 leased, 1 failed, 2 paused, ETA 13 s" in shown
    assert "Job 5f3a (main), reindex: 3 of 10 files read" in shown
    assert "embed_texts" in shown and "50 MiB" in shown and "drains" in shown
    assert "warn no worker is alive try: memline worker store warn agent main: no quota" in shown
    assert "Provider openai (main): paused" in shown
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
        (("--fail-if", "oldst>3"), "Did you mean oldest?"),
        # Which messages are meant is said in one way.
        (("drop",), "name the messages"),
        (("drop", "--state", "waiting"), "name the messages"),
        (("messages", "--path", "a.md"), "--path"),
        (("requeue", "--error", "disk"), "--error"),
        (("drop", "--actor", "store_files"), "--actor"),
        (("dead", "--page", "2"), "--page"),
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
def test_dead_messages_are_listed_by_their_errors(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [letter(f"m{number}", f"no '{number}'", dead_s=600.0 - number) for number in range(SHOWN + 2)]
    monkeypatch.setattr(sys.modules[__name__], "LETTERS", [*LETTERS, *found])
    group = found[0].group

    shown = output(capsys, "queue", "dead")

    assert (
        f"group {group}: 7 messages, 10 min ago\n    no '0'\nm0  store/store_files  main  a.md and 1 more"
        in shown
    )
    assert re.findall(r"^m\d", shown, re.MULTILINE) == [f"m{number}" for number in range(SHOWN)]
    assert f"and 2 more: memline queue dead --group {group}\n" in shown
    assert shown.endswith(
        "1 message, 60 s ago\n    disk is full\n1  store/store_files  main  a.md and 1 more  60 s ago\n"
    )
    assert "m6  store" in output(capsys, "queue", "dead", "--group", group)
    assert output(capsys, "queue", "dead", "--limit", "2").count("m1") == 1
    assert output(capsys, "queue", "dead", "--match", "nothing") == "No dead messages.\n"


@pytest.mark.usefixtures("fleet")
def test_dead_messages_as_json_are_all_of_them_with_their_group(capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = json.loads(output(capsys, "queue", "dead", "--json"))

    assert found["group"] == LETTERS[0].group
    assert (found["id"], found["error"], found["ageSeconds"], found["path"]) == (
        "1",
        "disk is full",
        60,
        "a.md",
    )


@pytest.mark.usefixtures("fleet")
def test_messages_are_counted_and_come_in_pages(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = message_list.Page(messages=tuple(LETTERS), cursor="store.1", counts={"store": 7, "chunk": 0})
    monkeypatch.setattr(message_list, "page", lambda _url, _where, *, cursor, limit: page)

    assert run(["queue", "messages", "--state", "dead"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("store: 7 dead\n1  store/store_files  main  a.md and 1 more  60 s ago")
    assert captured.err == "There are more: --after store.1\n"
    found = json.loads(output(capsys, "queue", "messages", "--json"))
    assert (found["counts"], found["after"], found["messages"][0]["id"]) == ({"store": 7}, "store.1", "1")


@pytest.mark.usefixtures("fleet")
def test_dead_messages_are_put_back_or_removed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_changes, "requeue", lambda _url, _state, chosen: len(chosen))
    monkeypatch.setattr(message_changes, "drop", lambda _url, _state, chosen: len(chosen))

    assert json.loads(output(capsys, "queue", "requeue", "--json")) == {"requeued": 1}
    assert output(capsys, "queue", "drop", "--match", "*disk*") == "1 message removed.\n"


@pytest.mark.usefixtures("fleet")
def test_who_drops_an_answer_that_is_paid_for_hears_that_it_is_lost(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    paid = msgspec.structs.replace(LETTERS[0], id="paid", actor="store_vectors")
    monkeypatch.setattr(sys.modules[__name__], "LETTERS", [*LETTERS, paid])
    monkeypatch.setattr(message_changes, "drop", lambda _url, _state, chosen: len(chosen))

    assert output(capsys, "queue", "drop", "--match", "*disk*") == (
        "2 messages removed.\nLost with them: 1 paid answer. Texts that have no vector yet are sent, and paid"
        " for, again.\n"
    )
    dropped = json.loads(output(capsys, "queue", "drop", "--match", "*disk*", "--json"))
    assert dropped == {"dropped": 2, "paidAnswers": 1}


@pytest.mark.place(**remote("http://127.0.0.1:9/v1"))
def test_resuming_at_a_ceiling_of_the_day_says_that_texts_wait_all_the_same(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.config.write_text(
        json.dumps(json.loads(place.config.read_text()) | {"limits": {"maxTokensPerDay": 5}})
    )
    met = Refusal(
        key="maxTokensPerDay", limit=5, spent=5, model="a", period="Day", day=ceilings.day_of(time.time())
    )
    with closing(IndexWriter.of(place.agent)) as writer, writer.transaction() as (connection, _):
        ceilings.record_refusal(connection, met)

    shown = output(capsys, *place.arguments("queue", "resume"))

    assert shown.startswith(
        "main: embedding is not paused, but the ceiling limits.maxTokensPerDay is reached: 5 tokens of 5"
    )
    assert "embedding goes on at" in shown


def test_pausing_and_resuming_say_what_changed(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    shown = output(capsys, *place.arguments("queue", "pause", "--provider", "openai", "--mode", "batch"))
    resumed = json.loads(output(capsys, *place.arguments("queue", "resume", "--json")))

    assert shown == (
        "main: embedding by batches with openai is paused; texts go out in requests, at full price.\n"
    )
    assert (resumed[0]["agentId"], resumed[0]["paused"]) == ("main", False)
    # While requests are held as well, none goes out.
    output(capsys, *place.arguments("queue", "pause", "--provider", "openai", "--mode", "requests"))
    again = output(capsys, *place.arguments("queue", "pause", "--provider", "openai", "--mode", "batch"))
    assert again == "main: embedding by batches with openai is paused.\n"
