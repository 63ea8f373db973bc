"""Conversations of exports are memory: found, cited, kept by a reindex, moved along, forgotten for good."""

import json
import shutil
from pathlib import Path

import pytest

from memline.producers.actions.backup import back_up, backups_at, restore
from memline.producers.actions.forget import forget, listed, undo
from memline.producers.actions.forget_targets import Target, targets_before, targets_of_path, targets_of_query
from memline.producers.bridges.export import export, take_in
from memline.shared.sources.dates import day_of_time
from tests.integration.moving.test_forget import files_with
from tests.support.chat_exports import T0, claude, claude_said, claude_zip, gpt, gpt_zip
from tests.support.transcripts import opening, said, sessions_folder
from tests.support.workspace import Place, paths

pytestmark = pytest.mark.place(files={"MEMORY.md": "# Notes\n\nThe attic is empty.\n"}, provider="none")

#: Its words are in no other text, and `files_with` looks for them.
SECRET = "the quixotzalp dinghy has a frobnitz rudder"
CHAT = "sessions/chatgpt/c-1.jsonl"


@pytest.fixture
def zip_file(tmp_path: Path) -> Path:
    boats = gpt("c-1", ("user", "Which dinghy?"), ("assistant", f"Surely {SECRET}."), title="Boats")
    return gpt_zip(tmp_path / "gpt.zip", boats, gpt("c-2", ("user", "marmalade is made of quinces")))


def imported(place: Place, zip_file: Path) -> None:
    assert place.call("import", "chatgpt", str(zip_file)).status == 0
    place.index()


def forget_all(place: Place, targets: list[Target], **options: bool) -> None:
    forget(place.agent, targets, **options)  # type: ignore[arg-type]


def test_to_import_is_to_allow_and_the_zip_is_not_needed_any_more(
    place: Place, zip_file: Path, tmp_path: Path
) -> None:
    own = sessions_folder(place.agent.state_dir, "main") / "own.jsonl"
    own.write_text("\n".join([opening(), said("user", "the marzipan of another program")]) + "\n")

    done = place.call("import", "chatgpt", str(zip_file), "--json")
    tea = claude("u-1", claude_said("human", "Ada drinks oolong."), title="Tea")
    told = place.call("import", "claude", str(claude_zip(tmp_path / "claude.zip", tea)))
    zip_file.unlink()
    place.index()

    assert done.json["new"] == 2 and done.json["messages"] == 3 and done.json["agentId"] == "main"
    assert told.stdout.startswith("Imported into main: 1 new conversation of Claude, 1 message\n")
    assert "memline" in told.stderr and " index" in told.stderr
    (hit,) = place.search("frobnitz").hits
    assert (hit.citation, hit.source) == (f"{CHAT}#L2-L3", "sessions")
    assert paths(place.search("oolong")) == ["sessions/claude-ai/u-1.jsonl"]
    assert paths(place.search("marzipan")) == []
    read = place.run("get", hit.citation)
    assert read.stdout == f"User: Which dinghy?\nAssistant: Surely {SECRET}.\n"
    # Everything is made again of what is kept.
    for file in place.home.rglob("main.sqlite*"):
        file.unlink()
    place.index()
    assert paths(place.search("frobnitz")) == [CHAT]
    assert place.status()["sources"] == ["memory", "sessions"]


def test_what_is_allowed_otherwise_stays_allowed(place: Place, zip_file: Path) -> None:
    own = sessions_folder(place.agent.state_dir, "main") / "own.jsonl"
    own.write_text("\n".join([opening(), said("user", "the marzipan of another program")]) + "\n")
    place.configure(sources=["sessions"], experimental={"sessionMemory": True})

    imported(place, zip_file)

    assert paths(place.search("marzipan")) == ["sessions/own.jsonl"]
    assert paths(place.search("quinces")) == ["sessions/chatgpt/c-2.jsonl"]
    assert place.agent.memory.sources == ("sessions",)


def test_a_wrong_source_or_file_is_refused_with_what_to_type(place: Place, zip_file: Path) -> None:
    said = {
        args: place.call("import", *args)
        for args in [("chatgpt",), ("claude", str(zip_file)), (str(zip_file),), ("chatgp", str(zip_file))]
    }

    assert [ran.status for ran in said.values()] == [2, 1, 2, 2]
    hints = [ran.stderr.partition("Try: ")[2] for ran in said.values()]
    assert [hint.partition(" import ")[2].strip() for hint in hints] == [
        "chatgpt FILE.zip",
        f"chatgpt {zip_file}",
        f"chatgpt {zip_file}   (or: claude)",
        f"chatgpt {zip_file}",
    ]
    assert not list(place.home.rglob("*.imports"))


@pytest.mark.parametrize("way", ["path", "query", "before"])
def test_what_is_forgotten_is_in_no_file_and_does_not_come_back(
    place: Place, zip_file: Path, tmp_path: Path, way: str
) -> None:
    imported(place, zip_file)
    (saved,) = back_up([place.agent], place.home / "kept")
    export(place.agent, place.home / "all.memline")
    export(place.agent, tmp_path / "outside.memline")
    assert len(files_with(place.home)) >= 4
    targets = {
        "path": lambda: targets_of_path(place.agent, CHAT),
        "query": lambda: targets_of_query(place.agent, "quixotzalp rudders"),
        "before": lambda: targets_before(place.agent, day_of_time(T0 + 86_400)),
    }[way]()

    forget_all(place, targets, keep_note=True)

    assert files_with(place.home) == []
    assert (place.home / "memory" / "main.imports" / "chatgpt" / "c-1.jsonl").read_bytes() == b""
    again = place.call("import", "chatgpt", str(zip_file), "--json").json
    take_in(place.agent, tmp_path / "outside.memline")
    restore(saved, place.agent)
    place.index()
    assert again["forgotten"] == (2 if way == "before" else 1)
    assert paths(place.search("frobnitz")) == []
    assert paths(place.search("marmalade")) == ([] if way == "before" else ["sessions/chatgpt/c-2.jsonl"])


def test_taken_off_the_list_it_may_be_imported_again(place: Place, zip_file: Path) -> None:
    imported(place, zip_file)
    forget_all(place, targets_of_path(place.agent, CHAT))
    assert place.status()["files"] == 2

    undo(place.agent, listed(place.agent)[0])
    imported(place, zip_file)

    assert paths(place.search("frobnitz")) == [CHAT]


def test_a_backup_and_an_export_take_conversations_along(
    place: Place, zip_file: Path, tmp_path: Path
) -> None:
    imported(place, zip_file)
    forget_all(place, targets_of_path(place.agent, "sessions/chatgpt/c-2.jsonl"))

    told = place.call("backup", str(tmp_path / "saved"))
    export(place.agent, tmp_path / "all.memline")
    shutil.rmtree(place.home)
    place.index()
    assert paths(place.search("frobnitz")) == []
    (saved,) = backups_at(tmp_path / "saved", [place.agent], place.agent)
    restore(saved, place.agent)
    place.index()
    restored = paths(place.search("frobnitz"))
    shutil.rmtree(place.home)
    moved = take_in(place.agent, tmp_path / "all.memline")
    place.index()

    assert "1 imported conversation (" in told.stdout and saved.conversations == 1
    assert restored == paths(place.search("frobnitz")) == [CHAT]
    assert (moved.notes, moved.known_notes) == (1, 1)
    modes = {oct(file.stat().st_mode & 0o777) for file in place.home.rglob("*.jsonl")}
    assert modes == {"0o600"}


def test_a_backup_forgets_what_its_index_has_forgotten_since(
    place: Place, zip_file: Path, tmp_path: Path
) -> None:
    imported(place, zip_file)
    back_up([place.agent], tmp_path / "saved")
    forget_all(place, targets_of_path(place.agent, CHAT))

    back_up([place.agent], tmp_path / "saved")

    assert files_with(tmp_path / "saved") == []


def test_a_damaged_conversation_in_an_export_of_memline_is_left_out_of_nothing_else(
    place: Place, zip_file: Path, tmp_path: Path
) -> None:
    imported(place, zip_file)
    (place.home / "memory" / "main.imports" / "chatgpt" / "c-1.jsonl").write_bytes(b"\xff not JSON\n" * 3)

    place.index()

    assert paths(place.search("frobnitz")) == []
    assert paths(place.search("marmalade")) == ["sessions/chatgpt/c-2.jsonl"]


def test_conversations_stay_with_the_workspace_that_they_were_imported_into(
    place: Place, zip_file: Path, tmp_path: Path
) -> None:
    imported(place, zip_file)
    other = tmp_path / "other"
    other.mkdir()
    (other / "MEMORY.md").write_text("# Other\n\nAnother attic.\n")

    def searched(workspace: Path) -> list[str]:
        ran = place.call("--workspace", str(workspace), "search", "frobnitz", "--json")
        return [hit["path"] for hit in ran.json["results"]]

    place.call("--workspace", str(other), "index")
    assert searched(other) == [] and searched(place.workspace) == [CHAT]
    # Another workspace becomes the agent's; the index of before keeps its conversations.
    (place.config).write_text(json.dumps({"agents": {"defaults": {"workspace": str(other)}}}))
    place.call("index")
    place.call("--workspace", str(place.workspace), "index")
    assert searched(other) == [] and searched(place.workspace) == [CHAT]
    # The folder of the notes moves, and takes its index over.
    place.workspace.rename(tmp_path / "moved")
    place.call("--workspace", str(tmp_path / "moved"), "index", "--adopt", str(place.workspace))
    assert searched(tmp_path / "moved") == [CHAT]


def test_another_agent_has_none_of_it(place: Place, zip_file: Path) -> None:
    imported(place, zip_file)
    agents = {"defaults": {"workspace": str(place.workspace)}, "list": [{"id": "main"}, {"id": "work"}]}
    place.config.write_text(json.dumps({"agents": agents}))
    (place.workspace.parent / f"{place.workspace.name}-work").mkdir()
    place.call("index")

    ran = place.call("search", "frobnitz", "--agent", "work", "--json")

    assert ran.json["results"] == []
    assert [hit["path"] for hit in place.call("search", "frobnitz", "--json").json["results"]] == [CHAT]
