"""What agents get from the one object behind all faces: answers, refusals, and nothing of another agent."""

import json

import pytest

from memline.producers.api.arguments import check
from memline.producers.api.calls import Caller, Calls
from memline.shared.config.load import Options, load
from memline.shared.errors import AccessDenied, BadRequest, PathNotAllowed
from tests.support.transcripts import opening, said, sessions_folder


class Checked:
    """The calls with arguments as a client sends them."""

    def __init__(self, calls):
        self._calls = calls

    def __getattr__(self, name):
        call = getattr(self._calls, name)
        return lambda caller, given: call(caller, **check(getattr(Calls, name), given))


MAIN = Caller(agent="main")


@pytest.fixture
def workspace(tmp_path):
    workspace = tmp_path / "notes"
    (workspace / "memory").mkdir(parents=True)
    (workspace / "MEMORY.md").write_text("# Facts\n\nInvoices are whole cents.\n")
    (workspace / "memory" / "2026-02-10.md").write_text("# 2026-02-10\n\nDeploy failed with ERR_CONN_42.\n")
    return workspace


@pytest.fixture
def made(workspace, tmp_path):
    """Tools over a configuration: `memorySearch` of the defaults, and other keys of the file."""
    opened = []

    def made(search=None, **keys):
        agents = {"defaults": {"workspace": str(workspace), "memorySearch": search or {}}}
        agents |= keys.pop("agents", {})
        (tmp_path / "c.json5").write_text(json.dumps({"agents": agents, **keys}))
        settings = load(Options(config=tmp_path / "c.json5", home=tmp_path / "home"))
        opened.append(Calls(settings, tuple(settings.agents)))
        return Checked(opened[-1])

    yield made
    for tools in opened:
        tools.close()


def test_an_index_that_cannot_be_used_is_an_answer_with_what_to_do(made, tmp_path):
    (tmp_path / "home" / "memory").mkdir(parents=True)
    (tmp_path / "home" / "memory" / "main.sqlite").write_bytes(b"SQLite format 3\0" + b"garbage" * 200)

    answer = made().search(MAIN, {"query": "cents"})

    assert (answer["unavailable"], answer["disabled"], answer["results"]) == (True, True, [])
    assert answer["error"] == answer["warning"] == answer["findings"][0]["what"]
    assert answer["action"] == made().status(MAIN, {})["action"] and " index   (moves" in answer["action"]


def test_several_long_notes_share_one_budget(made, workspace):
    (workspace / "memory" / "a.md").write_text("word " * 10 + "\n" + ("x" * 99 + "\n") * 500)

    answer = made().get(MAIN, {"paths": ["memory/a.md", "MEMORY.md", "memory/a.md"], "lines": 500})

    first, short, last = answer["excerpts"]
    assert sum(len(each["text"]) for each in answer["excerpts"]) <= 12_000
    assert (first["truncated"], short["truncated"], last["truncated"], answer["truncated"]) == (1, 0, 1, 1)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "path is missing"),
        ({"path": "a.md", "paths": ["b.md"]}, "not both"),
        ({"paths": []}, "path is missing"),
        ({"paths": ["a.md"] * 21}, "a list of length <= 20"),
        ({"paths": ["a.md", {}]}, "paths: "),
    ],
)
def test_a_reading_that_is_none_is_refused(made, given, said):
    with pytest.raises(BadRequest, match=said):
        made().get(MAIN, given)


def test_what_was_said_is_read_by_its_citation_but_not_from_a_group(made, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENCLAW_STATE_DIR", str(tmp_path / "state"))
    folder = sessions_folder(tmp_path / "state")
    key = "sk-" + "a1B2" * 12
    said_there = [f"We spoke of topic{number} for a while, {'at length ' * 30}." for number in range(12)]
    (folder / "s.jsonl").write_text(
        opening()
        + "".join(said("user" if n % 2 == 0 else "assistant", text) for n, text in enumerate(said_there))
        + said("user", f"My key is {key}.")
    )
    sources = {"sources": ["memory", "sessions"], "experimental": {"sessionMemory": True}}
    tools = made({**sources, "chunking": {"tokens": 200, "overlap": 40}})
    (hit,) = tools.search(MAIN, {"query": "topic5", "maxResults": 1})["results"]

    alone = tools.get(MAIN, {"path": hit["citation"]})
    last = tools.get(MAIN, {"path": "sessions/s.jsonl#L14"})

    assert "topic5" in alone["text"] and alone["from"] == hit["startLine"]
    # Every turn once, in its order, however chunks overlap.
    whole, at = "", 1
    while at:
        read = tools.get(MAIN, {"path": "sessions/s.jsonl", "from": at, "lines": 4})
        whole, at = f"{whole}\n{read['text']}", read["nextFrom"]
    assert all(f"topic{number} " in whole for number in range(12))
    assert key not in last["text"] and "My key is" in last["text"]

    with pytest.raises(AccessDenied, match="private"):
        tools.get(Caller(agent="main", session_key="agent:main:discord:group:1"), {"path": hit["citation"]})
    with pytest.raises(PathNotAllowed, match="no such past conversation"):
        tools.get(MAIN, {"path": "sessions/none.jsonl#L1-L2"})
    with pytest.raises(PathNotAllowed, match="no such past conversation"):
        made({"sources": ["memory"]}).get(MAIN, {"path": hit["citation"]})


def test_an_entry_is_appended_even_if_the_index_cannot_be_used(made, tmp_path):
    tools = made({"append": {"enabled": True}})
    tools.search(MAIN, {"query": "cents"})
    (tmp_path / "home" / "memory" / "main.sqlite").unlink()
    (tmp_path / "home" / "memory" / "main.sqlite").write_bytes(b"another program's file")

    added = tools.append(MAIN, {"text": "Ada prefers tea."})

    assert tools.get(MAIN, {"path": added["citation"]})["text"] == added["text"]
    assert tools.search(MAIN, {"query": "tea"})["unavailable"] is True
