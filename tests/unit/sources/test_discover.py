"""Every file of a memory is found, or reported with what keeps it out; none is opened."""

import os
from contextlib import contextmanager

import pytest

from memline.shared.config.schema import ExtraPath
from memline.shared.sources.discover import discover, markdown_beside
from memline.shared.sources.paths import MemoryPaths


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "ws"
    write(folder / "memory/a.md")
    return folder


def write(path, text="x"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def look(workspace, *extra):
    entries = [ExtraPath(path=one) if isinstance(one, str) else one for one in extra]
    return discover(MemoryPaths(workspace, entries))


def paths(discovery):
    return [found.path for found in discovery.files if found.problem is None]


def problems(discovery):
    return {found.path: found.problem.outcome for found in discovery.files if found.problem}


@contextmanager
def denied(monkeypatch, folder):
    """`folder` cannot be listed, as without permission; permissions do not bind the user of some machines."""

    def refusing(real):
        def call(path=".", *flags):
            if path == str(folder):
                raise PermissionError(13, "Permission denied", path)
            return real(path, *flags)

        return call

    with monkeypatch.context() as patch:
        for name in ("open", "scandir"):
            patch.setattr(os, name, refusing(getattr(os, name)))
        yield


def test_files_come_in_the_order_of_their_rules_with_size_and_time(workspace):
    for name in ("memory/b/c.md", "memory/B.md", "notes/z.md", "memory.md", "README.md", "memory/d.txt"):
        write(workspace / name)
    write(workspace / "MEMORY.md", "four")
    os.utime(workspace / "MEMORY.md", ns=(1, 1_700_000_000_123_456_789))

    discovery = look(workspace, "notes")

    assert paths(discovery) == [
        "MEMORY.md",
        "memory.md",
        "memory/B.md",
        "memory/a.md",
        "memory/b/c.md",
        "notes/z.md",
    ]
    first = discovery.files[0]
    assert (first.size, first.mtime_ns) == (4, 1_700_000_000_123_456_789)
    assert first.absolute == str(workspace / "MEMORY.md")
    assert discovery.issues == ()


def test_a_file_that_several_entries_name_is_listed_once(workspace):
    discovery = look(workspace, ".", "memory", "memory/a.md", str(workspace / "memory"))

    assert paths(discovery) == ["memory/a.md"]


def test_links_are_reported_and_never_followed(workspace, tmp_path):
    write(tmp_path / "secret/s.md")
    (workspace / "memory/file.md").symlink_to(tmp_path / "secret/s.md")
    (workspace / "memory/dangling.md").symlink_to(tmp_path / "nothing.md")
    (workspace / "memory/folder").symlink_to(tmp_path / "secret")
    (workspace / "memory/self").symlink_to(workspace / "memory")
    (workspace / "memory/data.json").symlink_to(tmp_path / "secret/s.md")
    (workspace / "MEMORY.md").symlink_to(tmp_path / "secret/s.md")
    (workspace / "docs").symlink_to(tmp_path / "secret")

    discovery = look(workspace, "docs", "docs/s.md")

    assert paths(discovery) == ["memory/a.md"]
    assert problems(discovery) == dict.fromkeys(
        ["MEMORY.md", "memory/dangling.md", "memory/file.md", "memory/folder", "memory/self", "docs"],
        "symlink",
    )
    assert discovery.issues == (
        "additional memory path is a symbolic link and not followed (docs)",
        "additional memory path is a symbolic link and not followed (docs/s.md)",
    )


def test_names_that_are_not_utf_8_are_one_issue(workspace):
    memory = os.fsencode(workspace / "memory")
    with open(memory + b"/caf\xe9.md", "w"):  # noqa: PTH123 (bytes)
        pass
    os.mkdir(memory + b"/\xff")

    discovery = look(workspace, "memory")

    assert paths(discovery) == ["memory/a.md"]
    (issue,) = discovery.issues
    assert issue.endswith("memory/\\xff is not valid UTF-8 (and 1 more)")


def test_a_folder_that_cannot_be_listed_is_reported_and_what_it_holds_stays_known(workspace, monkeypatch):
    write(workspace / "memory/private/b.md")

    with denied(monkeypatch, workspace / "memory/private"):
        discovery = look(workspace)

    assert paths(discovery) == ["memory/a.md"]
    assert discovery.issues == ("the folder memory/private is not readable (EACCES)",)
    assert discovery.is_unlisted("memory/private/b.md")
    assert not discovery.is_unlisted("memory/private2/b.md")


def test_missing_files_and_folders_are_reported(workspace, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "bare/memory").mkdir(parents=True)

    assert look(workspace, "gone").issues == ("additional memory path missing (gone)",)
    assert look(tmp_path / "empty").issues == (f"no memory files found in {tmp_path}/empty",)
    assert look(tmp_path / "bare").issues == (f"no memory files found in {tmp_path}/bare",)
    missing = look(tmp_path / "none")
    assert missing.issues == (f"workspace missing ({tmp_path}/none)",)
    assert missing.is_unlisted("memory/a.md")
    assert not missing.is_unlisted("/vault/a.md")


def test_markdown_beside_the_memory_is_what_no_rule_reads_or_leaves_out(place):
    files = ["MEMORY.md", "README.MD", "docs/a.md", "docs/deep/b.mdx", "wiki/c.md", "docs/d.txt", "SOUL.md"]
    files += ["node_modules/p/README.md", ".git/x.md", "build/z.md", "docs/no.md"]
    rules = {".gitignore": "build/\nno.md\n"}
    place.furnish(files=dict.fromkeys(files, "x") | rules, extraPaths=["wiki"])
    (place.workspace / "link.md").symlink_to("MEMORY.md")

    assert markdown_beside(place.agent) == ["README.MD", "docs/a.md", "docs/deep/b.mdx"]
    place.configure(extraPaths=["."])
    assert markdown_beside(place.agent) == []
