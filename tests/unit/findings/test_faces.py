"""Every face says the words of the table, in its order, and nothing beside them."""

import json
from contextlib import closing

import pytest

from memline.producers.actions import verbs
from memline.producers.api.calls import Caller, Calls
from memline.producers.cli import run
from memline.shared.finding import NOTE, PROBLEM, WARNING, Finding, worst
from tests.support.index_rows import file_row
from tests.unit.findings.conftest import found, writing


@pytest.fixture
def paused(place):
    """A place whose three vectors wait for a person."""
    place.configure(sync={"onSearch": False})
    place.index_path.parent.mkdir(parents=True)
    with writing(place) as writer:
        writer.store_file(file_row("a.md", "redis", "apples", "pears"))
    verbs.pause(place.agent)
    return place


def shown(capsys, place, *words):
    run(place.arguments(*words))
    output = capsys.readouterr()
    return output.out, output.err


def test_every_face_says_the_words_of_the_table(paused, capsys):
    words = [each.what for each in found(paused)]
    trouble = [each.what for each in found(paused) if each.is_trouble]
    what, action = worst(found(paused))

    answered = json.loads(shown(capsys, paused, "search", "redis", "--json")[0])
    _, told = shown(capsys, paused, "search", "redis")
    status = json.loads(shown(capsys, paused, "status", "--json")[0])[0]
    lines = shown(capsys, paused, "status")[0].splitlines()
    doctor = json.loads(shown(capsys, paused, "doctor", "--json")[0])
    with closing(Calls(paused.settings, ("main",))) as tools:
        called = tools.search(Caller(agent="main"), query="redis")
        summary = tools.status(Caller(agent="main"))

    assert (what, action) == ("embedding is paused; 3 vectors are pending", "memline queue resume")
    for face in (answered, called, summary):
        assert face["warning"] == what
        assert face["action"].endswith("queue resume")
    for findings in (status["findings"], doctor, summary["findings"]):
        assert [each["what"] for each in findings if each["agent"] and each["level"] != "ok"] == words
    # An answer says what is wrong; what is worth knowing is for a status.
    for findings in (answered["findings"], called["findings"]):
        assert [each["what"] for each in findings] == trouble
    assert [line for line in told.splitlines() if not line.startswith("Try: ")] == trouble
    assert lines[1:3] == [f"  warn {what}", f"       try: {paused.typed('queue resume')}"]
    assert all(each["fix"] == each["action"] for each in doctor)


def test_the_report_of_a_run_says_the_same(paused, capsys):
    _, told = shown(capsys, paused, "index")
    body = json.loads(shown(capsys, paused, "index", "--json")[0])[0]

    words = [each.what for each in found(paused)]
    assert body["warning"] == words[0] == "embedding is paused; 1 vector is pending"
    assert [each["what"] for each in body["findings"]] == words
    assert f"  {words[0]}\nTry: {paused.typed('queue resume')}\n" in told


def test_problems_come_before_warnings_and_these_before_notes():
    levels = (NOTE, WARNING, PROBLEM)
    made = [Finding(code=level, level=level, what=level) for level in levels]

    assert worst(made) == (WARNING, "")
    assert worst(made[:1]) == ("", "")


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        ("", "none"),
        ("memline queue resume", "command"),
        ("chmod u+w /x", "command"),
        ("mv '/my notes/Memory.md' '/my notes/MEMORY.md'", "command"),
        ("memline index   (moves the damaged file aside and builds the index again)", "sentence"),
        ("export OPENAI_API_KEY=…", "sentence"),
    ],
)
def test_an_action_is_a_command_a_sentence_or_nothing(action, kind):
    finding = Finding(code="c", level=NOTE, what="w", action=action)

    assert finding.to_json() == {
        "code": "c",
        "level": "note",
        "agent": None,
        "subject": "",
        "what": "w",
        "action": action,
        "actionKind": kind,
    }
