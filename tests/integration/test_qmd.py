"""The real qmd, where it is installed: keyword search needs no model. `QMD_PROGRAM` or the PATH names it."""

import json

import pytest

from memline.producers.memory import Memory
from memline.shared.config.load import Options, load
from tests.support.qmd import needs_qmd, real_qmd
from tests.support.transcripts import opening, said, sessions_folder

pytestmark = needs_qmd


@pytest.fixture
def memory(tmp_path):
    notes = tmp_path / "notes"
    (notes / "memory").mkdir(parents=True)
    (notes / "MEMORY.md").write_text("# Facts\n\nInvoices are whole cents.\n")
    (notes / "memory" / "2026-02-10 My Note.md").write_text(
        "one\ntwo\nDeploy failed with ERR_CONN_42.\nfour\n"
    )
    (notes / "memory" / "copy.md").write_text("one\ntwo\nDeploy failed with ERR_CONN_42.\nfour\n")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "plan.md").write_text("The zeppelin is painted in autumn.\n")
    return opened(tmp_path)


def opened(folder, **qmd):
    own = {
        "command": f"'{real_qmd()[0]}'",
        "searchMode": "search",
        "paths": [{"path": "../work", "name": "work"}],
        "limits": {"timeoutMs": 180_000},
        "update": {"commandTimeoutMs": 180_000, "updateTimeoutMs": 180_000},
        **qmd,
    }
    agents = {"defaults": {"workspace": str(folder / "notes")}}
    (folder / "c.json5").write_text(json.dumps({"agents": agents, "memory": {"backend": "qmd", "qmd": own}}))
    settings = load(Options(config=folder / "c.json5", home=folder / "home"))
    return Memory.of(settings, settings.agents["main"])


def test_words_are_found_with_files_and_lines(memory, tmp_path):
    answer = memory.search("ERR_CONN_42")

    assert (answer.backend, answer.fallback) == ("qmd", None)
    # Both files have one document in qmd.
    assert sorted(hit.path for hit in answer.hits) == ["memory/2026-02-10 My Note.md", "memory/copy.md"]
    assert all("ERR_CONN_42" in hit.snippet and hit.start_line <= 3 <= hit.end_line for hit in answer.hits)
    (plan,) = memory.search("zeppelin").hits
    assert plan.path == str(tmp_path / "work/plan.md")
    assert memory.get(plan.citation).text == "The zeppelin is painted in autumn."
    assert memory.search("nothing-of-the-kind").notice == "qmd found nothing for this question"
    # A question is no option, whatever it begins with.
    assert memory.search("--version").backend == "qmd"


def test_changes_sessions_and_other_folders_are_followed(memory, tmp_path, home):
    memory.index()
    (tmp_path / "notes" / "memory" / "copy.md").write_text("A quokka was seen.\n")
    sessions = sessions_folder(home / ".openclaw")
    (sessions / "s1.jsonl").write_text(opening() + said("user", "we talked about the wombat"))
    changed = opened(tmp_path, paths=[], sessions={"enabled": True})

    changed.index()

    assert [hit.path for hit in changed.search("quokka").hits] == ["memory/copy.md"]
    (hit,) = changed.search("wombat").hits
    assert (hit.path, hit.source) == ("qmd/sessions/s1.md", "sessions")
    assert changed.search("zeppelin").hits == ()
    assert changed.status()["status"]["qmd"]["collections"] == [
        *("memory-dir-main", "memory-root-main", "sessions-main")
    ]
