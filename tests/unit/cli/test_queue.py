import json

import pytest

from memline.producers.cli import run
from memline.shared.queue import dead_letters
from memline.shared.queue.dead_letters import DeadLetter
from tests.support.workspace import remote

pytestmark = pytest.mark.place(**remote("http://127.0.0.1:9/v1"))


def letter(name, error="no", *, actor="store_files", age_s=60):
    return DeadLetter(
        id=name,
        queue="store",
        actor=actor,
        agent="main",
        error=error,
        age_s=age_s,
        content=b"",
    )


LETTERS = [letter("m1", "no 'a'", age_s=600), letter("m2", "no 'b'"), letter("1", "disk is full")]


@pytest.fixture
def fleet(place, monkeypatch):
    """A fleet whose Redis is not asked."""
    monkeypatch.setenv("MEMLINE_QUEUE_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("MEMLINE_CONFIG", str(place.config))

    def listed(_url, *, error=None, **_):
        return [each for each in LETTERS if not error or error in each.error]

    monkeypatch.setattr(dead_letters, "listed", listed)
    monkeypatch.setattr(dead_letters, "remove", lambda _url, chosen, **_: len(chosen))


def output(capsys, *args, status=0):
    assert run(args) == status
    return capsys.readouterr().out


@pytest.mark.usefixtures("fleet")
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--fail-if", "age>3"), "is not a valid condition"),
        (("--fail-if", "oldest=3"), "is not a valid condition"),
        (("--fail-if", "oldst>3"), "Did you mean oldest?"),
        (("drop",), "name the messages"),
        (("drop", "--actor", "store_files"), "--actor"),
    ],
)
def test_options_that_make_no_sense_are_wrong_usage(capsys, args, words):
    assert run(["queue", *args]) == 2

    assert words in capsys.readouterr().err


def test_without_a_queue_it_says_what_to_look_at_instead(place, capsys):
    assert run(place.arguments("queue")) == 1

    assert f"Try: {place.typed('status')}" in capsys.readouterr().err


@pytest.mark.usefixtures("fleet")
def test_dead_messages_are_listed_by_their_errors(capsys):
    assert output(capsys, "queue", "dead") == (
        "2 messages, 60 s to 10 min ago: no 'a'\n"
        "    m1  store/store_files  main\n"
        "    m2  store/store_files  main\n"
        "1 message, 60 s ago: disk is full\n"
        "    1  store/store_files  main\n"
    )
    (found,) = json.loads(output(capsys, "queue", "dead", "--error", "disk", "--json"))
    assert (found["id"], found["queue"], found["error"], found["ageSeconds"]) == (
        "1",
        "store",
        "disk is full",
        60,
    )
    assert output(capsys, "queue", "dead", "--error", "nothing") == "No dead letters.\n"


@pytest.mark.usefixtures("fleet")
def test_dead_messages_are_put_back_or_removed(capsys):
    assert json.loads(output(capsys, "queue", "requeue", "--json")) == {"requeued": 3}
    assert output(capsys, "queue", "drop", "--error", "disk") == "1 message removed.\n"


def test_pausing_and_resuming_say_what_changed(place, capsys):
    shown = output(capsys, *place.arguments("queue", "pause", "--provider", "openai"))
    resumed = json.loads(output(capsys, *place.arguments("queue", "resume", "--json")))

    assert shown == "main: embedding with openai is paused.\n"
    assert (resumed[0]["agentId"], resumed[0]["paused"]) == ("main", False)
