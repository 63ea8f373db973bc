"""Which folders are watched: all that matter, none that are ignored, no links."""

from pathlib import Path

import pytest

from memline.shared.config.schema import ExtraPath
from memline.shared.sources.paths import MemoryPaths
from memline.shared.sync.folders import WatchedFolder, are_local, folders_of


def watched(workspace, *extra):
    folders = folders_of(MemoryPaths(workspace, [ExtraPath(path=path) for path in extra]))
    return {
        Path(folder.path).relative_to(workspace.parent).as_posix(): folder.recursive for folder in folders
    }


def noted(workspace):
    workspace.mkdir()
    (workspace / "MEMORY.md").write_text("x")


def test_the_workspace_alone_and_memory_with_all_below(tmp_path):
    (tmp_path / "ws/memory/a/b").mkdir(parents=True)
    (tmp_path / "ws/src").mkdir()

    assert watched(tmp_path / "ws") == {"ws": False, "ws/memory": True}


def test_without_memory_the_workspace_is_watched_as_a_whole(tmp_path):
    (tmp_path / "ws/journals").mkdir(parents=True)

    assert watched(tmp_path / "ws") == {"ws": True}


def test_a_missing_workspace_is_awaited_in_the_nearest_folder(tmp_path):
    folders = folders_of(MemoryPaths(tmp_path / "not/yet"))

    assert folders == {WatchedFolder(path=str(tmp_path), recursive=False)}


def test_a_tree_with_an_ignored_folder_is_watched_folder_by_folder(tmp_path):
    for folder in ("vault/.obsidian", "vault/work/x", "vault/code/app/node_modules/p", "vault/code/lib"):
        (tmp_path / folder).mkdir(parents=True)
    noted(tmp_path / "ws")

    assert watched(tmp_path / "ws", "../vault") == {
        "ws": False,
        "vault": False,
        "vault/work": True,
        "vault/code": False,
        "vault/code/app": False,
        "vault/code/lib": True,
    }


def test_a_tree_with_too_many_ignored_folders_is_watched_as_a_whole(tmp_path):
    for number in range(120):
        (tmp_path / f"vault/{number}/node_modules").mkdir(parents=True)
    noted(tmp_path / "ws")

    assert watched(tmp_path / "ws", "../vault") == {"ws": False, "vault": True}


def test_links_are_not_watched(tmp_path):
    (tmp_path / "ws/memory").mkdir(parents=True)
    (tmp_path / "elsewhere/.git").mkdir(parents=True)
    (tmp_path / "ws/memory/link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "ws/notes").symlink_to(tmp_path / "elsewhere")

    assert watched(tmp_path / "ws", "notes") == {"ws": False, "ws/memory": True}


MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:21 / /proc rw,nosuid - proc proc rw
30 22 0:30 / /srv/team rw - nfs4 server:/team rw
31 22 0:31 / /srv/with\\040space rw shared:9 - virtiofs notes rw
32 22 0:32 / /srv/team/here rw - xfs /dev/vdb rw
33 22 0:33 / /late rw - ext4 /dev/vdc rw
34 22 0:34 / /late rw - fuse.sshfs host: rw
"""


@pytest.mark.parametrize(
    "path, recursive, local",
    [
        ("/home/me/notes", True, True),
        ("/srv/team/notes", True, False),
        ("/srv/team/here/notes", True, True),
        ("/srv/with space/notes", True, False),
        ("/srv", True, False),
        ("/srv", False, True),
        ("/srv/teams", True, True),
        ("/late", False, False),
    ],
)
def test_only_the_disks_of_this_host_tell_of_every_change(tmp_path, path, recursive, local):
    table = tmp_path / "mountinfo"
    table.write_text(MOUNTS)

    assert are_local([WatchedFolder(path=path, recursive=recursive)], str(table)) is local


def test_where_the_system_does_not_list_its_mounts_no_folder_counts_as_local(tmp_path):
    assert not are_local([WatchedFolder(path="/", recursive=False)], str(tmp_path / "missing"))
