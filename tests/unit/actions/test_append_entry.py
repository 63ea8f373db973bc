"""An entry in a note, and where it is."""

import pytest

from memline.producers.actions.append_entry import append
from memline.producers.chats import chat_of
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import AccessDenied
from memline.shared.sources.paths import MemoryPaths
from memline.shared.sources.writing import AppendRefused
from tests.support.clock import ManualClock


@pytest.fixture
def settings(tmp_path):
    return AgentSettings(
        agent="main", workspace=tmp_path, index_path=tmp_path / "i.sqlite", state_dir=tmp_path
    )


def test_an_entry_goes_into_the_log_of_today_and_cites_its_lines(settings):
    first = append(settings, "Ada prefers tea.", clock=ManualClock())
    second = append(settings, "Bob\nprefers coffee.", clock=ManualClock())

    note = (settings.workspace / first.path).read_text()
    lines = note.splitlines()
    assert note.count("# 20") == 1
    assert lines[first.start_line - 1] == first.text
    assert lines[second.start_line - 1 : second.end_line] == second.text.splitlines()
    assert second.citation == f"{second.path}#L{second.start_line}-L{second.end_line}"
    assert second.to_json()["bytes"] == len(note.encode())


def test_the_long_term_note_keeps_the_spelling_that_is_there(settings):
    (settings.workspace / "memory.md").write_text("# Facts\n")

    assert append(settings, "x", target="longTerm", clock=ManualClock()).path == "memory.md"


def test_a_group_does_not_write_the_long_term_note(settings):
    chat = chat_of("agent:main:discord:group:1")

    with pytest.raises(AccessDenied, match="group"):
        append(settings, "x", target="longTerm", chat=chat, clock=ManualClock())


@pytest.mark.parametrize("target", ["daily", "longTerm"])
def test_in_a_folder_that_is_read_as_a_whole_an_entry_is_at_its_root(settings, target):
    (settings.workspace / "boat.md").write_text("# Boat\n")

    entry = append(settings, "x", target=target, clock=ManualClock())

    assert "/" not in entry.path and entry.path != "MEMORY.md" and (settings.workspace / entry.path).exists()
    assert MemoryPaths.of(settings).is_whole


def test_a_log_with_nul_bytes_is_not_added_to(settings):
    path = append(settings, "x", clock=ManualClock()).path
    (settings.workspace / path).write_bytes(b"# d\n\n- old\0\n")

    with pytest.raises(AppendRefused, match="NUL bytes"):
        append(settings, "y", clock=ManualClock())
