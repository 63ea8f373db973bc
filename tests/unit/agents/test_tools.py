"""What agents get from the one object behind all faces: answers, refusals, and nothing of another agent."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import validate

from memline.producers.agents.tools import Caller, MemoryTools
from memline.producers.builtin import Builtin
from memline.producers.calls.arguments import answers
from memline.shared.config.load import Options, load
from memline.shared.errors import AccessDenied, BadRequest, PathNotAllowed
from tests.support.transcripts import opening, said, sessions_folder
from tests.support.workspace import until

Maker = Callable[..., MemoryTools]
MAIN = Caller(agent="main")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    workspace = tmp_path / "notes"
    (workspace / "memory").mkdir(parents=True)
    (workspace / "MEMORY.md").write_text("# Facts\n\nInvoices are whole cents.\n")
    (workspace / "memory" / "2026-02-10.md").write_text("# 2026-02-10\n\nDeploy failed with ERR_CONN_42.\n")
    return workspace


@pytest.fixture
def made(workspace: Path, tmp_path: Path) -> Iterator[Maker]:
    """Tools over a configuration: `memorySearch` of the defaults, and other keys of the file."""
    opened: list[MemoryTools] = []

    def made(search: dict[str, Any] | None = None, **keys: Any) -> MemoryTools:
        agents = {"defaults": {"workspace": str(workspace), "memorySearch": search or {}}}
        agents |= keys.pop("agents", {})
        (tmp_path / "c.json5").write_text(json.dumps({"agents": agents, **keys}))
        settings = load(Options(config=tmp_path / "c.json5", home=tmp_path / "home")).settings
        opened.append(MemoryTools(settings, tuple(settings.agents)))
        return opened[-1]

    yield made
    for tools in opened:
        tools.close()


def test_a_search_finds_notes_with_citations(made: Maker) -> None:
    answer = made().search(MAIN, {"query": "cents"})

    validate(answer, answers()["search"])
    (hit,) = answer["results"]
    assert hit["citation"] == "MEMORY.md#L1-L3"
    assert hit["snippet"].endswith("\n\nSource: MEMORY.md#L1-L3")
    assert (answer["citations"], answer["warning"]) == ("auto", "")


def test_a_note_saved_between_two_searches_is_found(made: Maker, workspace: Path) -> None:
    tools = made()
    tools.search(MAIN, {"query": "cents"})

    (workspace / "memory" / "new.md").write_text("The umbrella is in the cellar.\n")

    until(lambda: bool(tools.search(MAIN, {"query": "umbrella"})["results"]), "the note")


def test_with_sync_on_search_off_a_search_only_says_that_files_are_behind(
    made: Maker, workspace: Path
) -> None:
    made().search(MAIN, {"query": "cents"})
    (workspace / "memory" / "new.md").write_text("The umbrella is in the cellar.\n")

    answer = made({"sync": {"onSearch": False}}).search(MAIN, {"query": "umbrella"})

    assert (answer["results"], answer["stale"], answer["behind"]["files"]) == ([], True, 1)


GROUP = Caller(agent="main", session_key="agent:main:discord:group:1")


@pytest.mark.parametrize(
    ("mode", "caller", "cited"), [("auto", GROUP, False), ("on", GROUP, True), ("off", MAIN, False)]
)
def test_citations_go_by_mode_and_chat(made: Maker, mode: str, caller: Caller, cited: bool) -> None:
    answer = made(memory={"citations": mode}).search(caller, {"query": "deploy"})

    validate(answer, answers()["search"])
    (hit,) = answer["results"]
    assert ("citation" in hit, "Source:" in hit["snippet"]) == (cited, cited)


def test_a_budget_cuts_the_snippets(made: Maker) -> None:
    answer = made(memory={"maxInjectedChars": 30}).search(MAIN, {"query": "cents deploy"})

    assert sum(len(hit["snippet"]) for hit in answer["results"]) <= 30
    assert answer["truncated"] is True


def test_a_chat_out_of_scope_gets_an_answer_that_says_so_and_no_note(made: Maker) -> None:
    scope = {"default": "deny", "rules": [{"action": "allow", "match": {"chatType": "direct"}}]}
    tools = made({"append": {"enabled": True}}, memory={"scope": scope})

    answer = tools.search(GROUP, {"query": "cents"})

    validate(answer, answers()["search"])
    assert (answer["results"], answer["disabled"]) == ([], True)
    assert "channel=discord, chatType=group" in answer["warning"]
    assert "memory.scope" in answer["action"]
    for call, given in (
        (tools.get, {"path": "MEMORY.md"}),
        (tools.append, {"text": "x"}),
        (tools.context, {}),
    ):
        with pytest.raises(AccessDenied):
            call(GROUP, given)
    direct = Caller(agent="main", session_key="agent:main:main")
    assert tools.search(direct, {"query": "cents"})["results"]


def test_an_agent_whose_memory_is_switched_off_gets_an_answer_that_says_so(made: Maker) -> None:
    tools = made({"enabled": False})

    answer = tools.search(MAIN, {"query": "cents"})

    validate(answer, answers()["search"])
    assert (answer["disabled"], answer["unavailable"], answer["results"]) == (True, False, [])
    assert "disabled" in answer["warning"] and answer["action"]
    with pytest.raises(AccessDenied):
        tools.get(MAIN, {"path": "MEMORY.md"})
    assert tools.status(MAIN, {})["enabled"] is False


def test_an_index_that_cannot_be_used_is_an_answer_with_what_to_do(made: Maker, tmp_path: Path) -> None:
    (tmp_path / "home" / "memory").mkdir(parents=True)
    (tmp_path / "home" / "memory" / "main.sqlite").write_bytes(b"SQLite format 3\0" + b"garbage" * 200)

    answer = made().search(MAIN, {"query": "cents"})

    validate(answer, answers()["search"])
    assert (answer["unavailable"], answer["disabled"], answer["results"]) == (True, True, [])
    assert answer["error"] == answer["warning"] == answer["findings"][0]["what"]
    assert answer["action"] == made().status(MAIN, {})["action"] and "memline index" in answer["action"]


def test_an_index_that_was_moved_away_is_built_again_by_the_next_search(made: Maker, tmp_path: Path) -> None:
    tools = made()
    tools.search(MAIN, {"query": "cents"})
    for file in (tmp_path / "home" / "memory").iterdir():
        file.unlink()
    for memory in tools._memories.values():
        # As if a look had just been taken, and the next were not due yet.
        backend = memory._backend
        assert isinstance(backend, Builtin)
        backend._searching()[1]._looked_at = float("inf")

    assert tools.search(MAIN, {"query": "cents"})["results"][0]["path"] == "MEMORY.md"


def test_a_search_of_sessions_that_are_switched_off_says_so(made: Maker) -> None:
    answer = made().search(MAIN, {"query": "cents", "corpus": "sessions"})

    assert answer["warning"] == "the source sessions is switched off for this agent"
    assert "experimental.sessionMemory" in answer["action"]


def test_dates_and_other_parameters_are_checked_before_anything_is_searched(made: Maker) -> None:
    with pytest.raises(BadRequest, match="since is not a valid date"):
        made().search(MAIN, {"query": "q", "since": "someday"})
    with pytest.raises(BadRequest, match="maxResult"):
        made().search(MAIN, {"query": "q", "maxResult": 3})


def test_a_note_is_read_by_path_by_citation_and_by_line_number(made: Maker) -> None:
    tools = made()

    whole, cited, asked = (
        tools.get(MAIN, given)
        for given in (
            {"relPath": "MEMORY.md"},
            {"path": "MEMORY.md#L3"},
            {"path": "MEMORY.md#L3", "from": 1, "lines": 1},
        )
    )

    for answer in (whole, cited, asked):
        validate(answer, answers()["get"])
    assert (whole["lines"], cited["text"], asked["text"]) == (3, "Invoices are whole cents.", "# Facts")


def test_lines_around_a_citation_are_added(made: Maker, workspace: Path) -> None:
    (workspace / "memory" / "long.md").write_text("\n".join(f"Line {number}." for number in range(1, 31)))
    tools = made()

    read = tools.get(MAIN, {"path": "memory/long.md#L10-L11", "around": 2})
    assert (read["from"], read["lines"], read["text"].split("\n")[0]) == (8, 6, "Line 8.")
    # What was asked for is there, whatever fits around it.
    (workspace / "memory" / "wide.md").write_text("\n".join(f"Line {n} {'w' * 90}" for n in range(1, 402)))
    for line in (1, 120, 401):
        read = tools.get(MAIN, {"path": f"memory/wide.md#L{line}", "around": 200})
        assert f"Line {line} w" in read["text"] and 11_000 < len(read["text"]) <= 12_000
        assert read["from"] <= line < read["from"] + read["lines"] == (read["nextFrom"] or 402)
    # There is nothing above the first line.
    assert tools.get(MAIN, {"path": "memory/long.md#L2", "around": 5})["from"] == 1
    assert tools.get(MAIN, {"path": "memory/long.md#L2", "around": 5})["lines"] == 7


def test_several_long_notes_share_one_budget(made: Maker, workspace: Path) -> None:
    (workspace / "memory" / "a.md").write_text("word " * 10 + "\n" + ("x" * 99 + "\n") * 500)

    answer = made().get(MAIN, {"paths": ["memory/a.md", "MEMORY.md", "memory/a.md"], "lines": 500})

    validate(answer, answers()["get"])
    first, short, last = answer["excerpts"]
    assert sum(len(each["text"]) for each in answer["excerpts"]) <= 12_000
    assert (first["truncated"], short["truncated"], last["truncated"], answer["truncated"]) == (1, 0, 1, 1)
    assert len(last["text"]) > len(first["text"])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "path is missing"),
        ({"path": "a.md", "paths": ["b.md"]}, "not both"),
        ({"paths": ["a.md"], "from": 3}, "from is of one path"),
        ({"paths": []}, "paths: found an empty list, allowed: a list of 1 to 20 texts"),
        ({"paths": ["a.md"] * 21}, "paths: found 21 texts, allowed: a list of 1 to 20 texts"),
        ({"paths": ["a.md", 7]}, r"paths\[1\]: found the number 7, allowed: text"),
    ],
)
def test_a_reading_that_is_none_is_refused(made: Maker, given: dict[str, Any], said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        made().get(MAIN, given)


def test_what_was_said_is_read_around_a_hit_but_not_from_a_group(
    made: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    wide = tools.get(MAIN, {"path": hit["citation"], "around": 2})
    last = tools.get(MAIN, {"path": "sessions/s.jsonl#L14"})

    validate(wide, answers()["get"])
    assert "topic5" in alone["text"] and alone["from"] == hit["startLine"]
    assert alone["text"] in wide["text"]
    assert wide["text"].count("\n") == alone["text"].count("\n") + 4
    assert (wide["truncated"], wide["status"]) == (True, "ok")
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


def test_a_session_key_of_another_agent_is_refused_by_every_call(made: Maker) -> None:
    tools = made({"append": {"enabled": True}})
    other = Caller(agent="main", session_key="agent:work:main")

    for call, arguments in (
        (tools.search, {"query": "cents"}),
        (tools.get, {"path": "MEMORY.md"}),
        (tools.status, {}),
        (tools.context, {}),
        (tools.append, {"text": "x"}),
    ):
        with pytest.raises(AccessDenied, match="is of agent 'work', not of 'main'"):
            call(other, arguments)
    assert tools.search(Caller(agent="main", session_key="Agent:Main:main"), {"query": "cents"})["results"]


def test_the_index_and_other_files_cannot_be_read(made: Maker, tmp_path: Path) -> None:
    with pytest.raises(PathNotAllowed):
        made().get(MAIN, {"path": str(tmp_path / "home" / "memory" / "main.sqlite")})


def test_the_status_counts_files_and_says_how_questions_are_answered(made: Maker) -> None:
    tools = made()
    tools.search(MAIN, {"query": "cents"})

    status = tools.status(MAIN, {})

    validate(status, answers()["status"])
    assert (status["files"], status["mode"], status["stale"], status["append"]) == (
        2,
        "keyword",
        False,
        False,
    )


def test_nothing_is_written_unless_that_is_allowed(made: Maker, workspace: Path) -> None:
    with pytest.raises(AccessDenied, match="may not write"):
        made().append(MAIN, {"text": "x"})

    assert len(list((workspace / "memory").iterdir())) == 1


def test_an_appended_entry_is_found_at_once_and_cited(made: Maker) -> None:
    tools = made({"append": {"enabled": True}})
    tools.search(MAIN, {"query": "cents"})

    added = tools.append(MAIN, {"text": "Ada prefers tea.\n# not a heading", "heading": "People"})

    validate(added, answers()["append"])
    assert tools.search(MAIN, {"query": "Ada tea"})["results"][0]["path"] == added["path"]
    assert tools.get(MAIN, {"path": added["citation"]})["text"] == added["text"]
    assert "\\# not a heading" in added["text"]


def test_an_entry_is_appended_even_if_the_index_cannot_be_used(made: Maker, tmp_path: Path) -> None:
    tools = made({"append": {"enabled": True}})
    tools.search(MAIN, {"query": "cents"})
    (tmp_path / "home" / "memory" / "main.sqlite").unlink()
    (tmp_path / "home" / "memory" / "main.sqlite").write_bytes(b"another program's file")

    added = tools.append(MAIN, {"text": "Ada prefers tea."})

    assert tools.get(MAIN, {"path": added["citation"]})["text"] == added["text"]
    assert tools.search(MAIN, {"query": "tea"})["unavailable"] is True


def test_lasting_facts_go_into_the_long_term_note_but_not_from_a_group(made: Maker, workspace: Path) -> None:
    tools = made({"append": {"enabled": True}})

    added = tools.append(MAIN, {"text": "Ada prefers tea.", "target": "longTerm"})

    assert added["path"] == "MEMORY.md"
    assert (workspace / "MEMORY.md").read_text().startswith("# Facts\n\nInvoices are whole cents.\n- Ada ")
    with pytest.raises(AccessDenied, match="group"):
        tools.append(GROUP, {"text": "x", "target": "longTerm"})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"text": " \n#"}, "nothing to remember"),
        ({"text": "x" * 2_001}, "2,000 are allowed"),
        ({}, "text is missing"),
    ],
)
def test_an_entry_that_is_none_is_refused(made: Maker, given: dict[str, str], said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        made({"append": {"enabled": True}}).append(MAIN, given)


def test_two_agents_share_nothing(made: Maker, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "MEMORY.md").write_text("The vault code is 7341.\n")
    listed = [{"id": "main", "default": True}, {"id": "work", "workspace": str(other)}]
    tools = made(agents={"list": listed})
    work = Caller(agent="work")

    assert tools.search(work, {"query": "vault"})["results"]
    assert tools.search(MAIN, {"query": "vault"})["results"] == []
    assert tools.search(work, {"query": "cents"})["results"] == []
    assert tools.get(work, {"path": "MEMORY.md"})["text"] == "The vault code is 7341."
    with pytest.raises(PathNotAllowed):
        tools.get(MAIN, {"path": str(other / "MEMORY.md")})


@pytest.mark.parametrize("agent", ["../x", "Main", "", "nobody", "main/../work", "main\0"])
def test_an_agent_that_is_not_there_is_refused_with_those_that_are(
    made: Maker, tmp_path: Path, agent: str
) -> None:
    with pytest.raises(BadRequest) as caught:
        made().search(Caller(agent=agent), {"query": "q"})

    assert "name one of these: main" in caught.value.hint
    assert not (tmp_path / "home" / "memory").exists()


SUBAGENT = Caller(agent="main", session_key="agent:main:subagent:7")


@pytest.mark.parametrize("caller", [GROUP, SUBAGENT])
def test_outside_private_chats_the_long_term_note_is_neither_found_nor_read(
    made: Maker, workspace: Path, caller: Caller
) -> None:
    tools = made({"append": {"enabled": True}, "extraPaths": ["."]})
    (workspace / "memory" / "a.md").write_text("Cents, too.\n")

    found = tools.search(caller, {"query": "cents"})
    none = tools.search(caller, {"query": "invoices", "path": "MEMORY.md"})

    validate(none, answers()["search"])
    assert [hit["path"] for hit in found["results"]] == ["memory/a.md"]
    assert none["results"] == [] and "what is private, MEMORY.md and" in none["notice"]
    for path in (
        "MEMORY.md",
        "memory.md",
        "Memory.md",
        "memory/../MEMORY.md#L3",
        str(workspace / "MEMORY.md"),
    ):
        with pytest.raises(AccessDenied, match="private"):
            tools.get(caller, {"path": path})
    with pytest.raises(AccessDenied):
        tools.append(caller, {"text": "x", "target": "longTerm"})
    assert "cents" not in tools.context(caller, {"private": True})["text"]
    assert tools.get(caller, {"path": "memory/a.md"})["text"] == "Cents, too."


def test_the_long_term_note_is_the_owners_in_direct_chats(made: Maker) -> None:
    tools, direct = made(), Caller(agent="main", session_key="agent:main:telegram:dm:1")

    assert tools.search(direct, {"query": "cents"})["results"][0]["path"] == "MEMORY.md"
    assert "cents" in tools.get(direct, {"path": "MEMORY.md"})["text"]


def test_a_key_opens_the_long_term_note_to_groups_as_in_openclaw(made: Maker) -> None:
    tools = made(memory={"privateInGroups": True})

    assert tools.search(GROUP, {"query": "cents"})["results"][0]["path"] == "MEMORY.md"
    assert "cents" in tools.get(GROUP, {"path": "MEMORY.md"})["text"]
