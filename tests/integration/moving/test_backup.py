"""Backups: made while everything runs, checked before anything changes, and brought back."""

import os
import stat
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from memline.producers.actions.backup import back_up, restore
from memline.shared.errors import ConfigError, IndexCorrupt, IndexFault
from memline.shared.index import chunks, driver, meta, vectors
from tests.support.workspace import note, paths

pytestmark = pytest.mark.place(server={}, notes=3, is_indexed=True)


def files_of(place):
    return sorted(path.name for path in place.index_path.parent.iterdir() if "-" not in path.name)


def test_a_backup_is_the_index_again_where_that_is_missing(place, server, tmp_path):
    before, sent = place.contents(), server.texts.copy()

    (saved,) = back_up([place.agent], tmp_path / "saved")
    place.index_path.unlink()
    restored = restore(place.agent, saved.path)

    assert (saved.files, saved.chunks, saved.vectors) == (3, 9, 9)
    assert (restored.is_index, restored.vectors) == (True, 9)
    assert place.contents() == before
    assert sorted(path.name for path in saved.path.parent.iterdir()) == [
        "main.accounts.sqlite",
        "main.sqlite",
    ]
    assert {stat.S_IMODE(path.stat().st_mode) for path in saved.path.parent.iterdir()} == {0o600}
    place.index()
    assert server.texts == sent


def test_a_restore_that_is_killed_when_the_index_is_in_place_has_put_the_accounts_there(
    place, tmp_path, monkeypatch
):
    (saved,) = back_up([place.agent], tmp_path / "saved")
    place.index_path.unlink()
    place.agent.account_path.unlink()

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(vectors, "count_ready", killed)
        restore(place.agent, saved.path)

    assert place.index_path.exists() and place.agent.account_path.exists()


def test_an_index_that_is_there_takes_the_vectors_of_a_backup(place, server, tmp_path):
    (saved,) = back_up([place.agent], tmp_path / "all.sqlite")
    place.index_path.unlink()
    place.run("search", "nothing")
    sent = server.texts.copy()

    restored = restore(place.agent, saved.path)
    again = restore(place.agent, saved.path)
    place.write("memory/later.md", note(9))
    report = place.index()

    assert (restored.is_index, restored.vectors) == (False, 9)
    assert again.vectors == 0
    assert report.vectors["embedded"] == 3
    assert len(server.texts) == len(sent) + 3


def test_a_damaged_index_is_moved_aside_and_replaced(place, tmp_path):
    before = place.contents()
    (saved,) = back_up([place.agent], tmp_path / "saved")
    place.index_path.write_bytes(b"no database at all" * 500)

    assert restore(place.agent, saved.path).is_index

    assert place.contents() == before
    assert [name for name in files_of(place) if ".corrupt" in name] or list(
        place.index_path.parent.glob("*.corrupt-*")
    )


def test_the_wal_of_an_index_that_was_deleted_is_not_taken_for_that_of_the_new_one(place, tmp_path):
    before = place.contents()
    (saved,) = back_up([place.agent], tmp_path / "saved")
    with closing(driver.open_writer(place.index_path)) as connection:
        with driver.transaction(connection):
            meta.put(connection, meta.WORKSPACE, "another")
        wal = Path(f"{place.index_path}-wal").read_bytes()
    place.index_path.unlink()
    Path(f"{place.index_path}-wal").write_bytes(wal)

    restore(place.agent, saved.path)

    assert place.contents() == before


def test_a_restore_that_is_killed_leaves_no_index(place, tmp_path, monkeypatch):
    (saved,) = back_up([place.agent], tmp_path / "saved")
    place.index_path.unlink()

    def killed(part, target):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "link", killed)
    with pytest.raises(KeyboardInterrupt):
        restore(place.agent, saved.path)

    assert not place.index_path.exists()


def test_the_backup_of_another_workspace_is_not_put_in_place_and_not_replaced(place, tmp_path):
    (saved,) = back_up([place.agent], tmp_path / "saved")
    (tmp_path / "other").mkdir()
    other = replace(place.agent, workspace=tmp_path / "other", index_path=tmp_path / "other.sqlite")

    restored = restore(other, saved.path)

    assert (restored.is_index, restored.vectors) == (False, 9)
    assert restored.other_workspace == str(place.workspace)
    with driver.reading(other.index_path) as reader:
        assert chunks.count(reader) == 0
    with pytest.raises(ConfigError, match="is a backup of"):
        back_up([other], saved.path)


@pytest.mark.parametrize("harm", ["cut", "foreign", "text", "flipped", "newer", "older"])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_file_that_is_not_a_whole_backup_changes_nothing(place, tmp_path, harm, is_there):
    (saved,) = back_up([place.agent], tmp_path / "saved")
    data = bytearray(saved.path.read_bytes())
    if harm == "cut":
        saved.path.write_bytes(data[: len(data) // 2])
    elif harm == "text":
        saved.path.write_bytes(b"hello")
    elif harm == "flipped":
        data[4096 * 3 : 4096 * 3 + 64] = b"\xff" * 64
        saved.path.write_bytes(data)
    else:
        with closing(driver.library().connect(str(saved.path))) as connection:
            connection.executescript(
                {
                    "foreign": "PRAGMA application_id = 7",
                    "newer": "PRAGMA user_version = 9999",
                    "older": "PRAGMA user_version = 18",
                }[harm]
            )
    before = place.contents()
    if not is_there:
        place.index_path.unlink()

    with pytest.raises(IndexFault) as raised:
        restore(place.agent, saved.path)

    assert isinstance(raised.value, IndexCorrupt if harm in ("cut", "flipped", "older") else IndexFault)
    # Not what mends an index in use.
    assert "memline index" not in raised.value.hint
    assert "nothing was changed" in raised.value.message
    assert place.index_path.exists() == is_there
    if is_there:
        assert place.contents() == before


def test_agents_whose_indexes_have_one_name_have_a_backup_each(place, tmp_path):
    (tmp_path / "work").mkdir()
    copy = tmp_path / "work" / place.index_path.name
    copy.write_bytes(place.index_path.read_bytes())

    saved = back_up([place.agent, replace(place.agent, agent="work", index_path=copy)], tmp_path / "saved")

    assert [each.path.name for each in saved] == ["main.sqlite", "work.sqlite"]


def test_without_the_accounts_sessions_may_return_and_that_is_said(place, tmp_path):
    (saved,) = back_up([place.agent], tmp_path / "saved")
    for path in (place.index_path, place.agent.account_path, saved.accounts):
        path.unlink()
    memory = replace(place.agent.memory, sources=("memory", "sessions"))

    assert restore(replace(place.agent, memory=memory), saved.path).missing_accounts == saved.accounts


def test_a_backup_takes_no_place_of_another_programs_file(place, tmp_path):
    taken = tmp_path / "main.sqlite"
    taken.write_bytes(b"mine")

    with pytest.raises(ConfigError, match="is no backup"):
        back_up([place.agent], taken)
    with pytest.raises(ConfigError, match="the index itself"):
        back_up([place.agent], place.index_path)

    assert taken.read_bytes() == b"mine"


def test_the_command_backs_up_and_restores(place, tmp_path):
    inside = place.run("backup", "--json")
    outside = place.run("backup", str(tmp_path / "saved" / "mine.sqlite"))
    place.index_path.unlink()
    restored = place.run("backup", "restore", str(tmp_path / "saved" / "mine.sqlite"), "--json")

    assert Path(inside.json[0]["path"]) == place.home / "backups" / "main.sqlite"
    assert "3 files, 9 chunks, 9 vectors" in outside.stdout
    assert "mine.sqlite, and mine.accounts.sqlite beside it" in outside.stdout
    assert restored.json == {
        "agentId": "main",
        "path": str(tmp_path / "saved" / "mine.sqlite"),
        "isIndex": True,
        "vectors": 9,
        "otherWorkspace": "",
        "missingAccounts": None,
    }
    assert paths(place.search("word1x1x5"))[0] == "memory/note-1.md"
    missing = place.run("backup", "restore", str(tmp_path / "none.sqlite"))
    assert missing.status == 1 and "none.sqlite: no such file; nothing was changed" in missing.stderr
    elsewhere = place.run("--workspace", str(tmp_path / "saved"), "backup", "restore", inside.json[0]["path"])
    assert f"is a backup of {place.workspace}, so main took only vectors, 9 that" in elsewhere.stdout
