"""What rules leave out: a walk and a single path agree, and rules above what is read do not count."""

import pytest

from memline.shared.sources.discover import discover
from memline.shared.sources.paths import MemoryPaths
from tests.support.process import python


@pytest.fixture
def folder(tmp_path):
    workspace = tmp_path / "ws"
    write(workspace, "a.md", "docs/b.md", "docs/build/c.md", "docs/build/keep.md")
    return workspace


def write(folder, *names, text="x"):
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def found(folder, *, exclude=(), uses=True):
    """The paths of a walk; each is located alone as well, and nothing that is left out is."""
    paths = MemoryPaths(folder, exclude=exclude, uses_ignore_files=uses)
    names = [file.path for file in discover(paths).files]
    everything = [file.relative_to(folder).as_posix() for file in folder.rglob("*.md")]
    again = MemoryPaths(folder, exclude=exclude, uses_ignore_files=uses)
    assert sorted(names) == sorted(path for path in everything if again.locate(path))
    return sorted(names)


def left_out(folder):
    return dict(discover(MemoryPaths(folder)).left_out)


def test_a_workspace_without_memory_is_read_as_a_whole(folder):
    write(folder, ".obsidian/x.md", "node_modules/y.md", "long.markdown", "data.txt")

    names = [file.path for file in discover(MemoryPaths(folder)).files]

    assert names == ["a.md", "long.markdown", "docs/b.md", "docs/build/c.md", "docs/build/keep.md"]
    write(folder, "memory/d.md")
    assert found(folder) == ["memory/d.md"]


def test_ignore_files_leave_out_as_git_does(folder):
    write(folder, ".gitignore", text="# notes\nbuild/\n/a.md\n")

    assert found(folder) == ["docs/b.md"]
    assert left_out(folder) == {"a.md": ".gitignore", "docs/build/": ".gitignore"}
    write(folder, "docs/.ignore", text="b.md\n")
    assert found(folder) == []
    assert left_out(folder)["docs/b.md"] == ".ignore"
    write(folder, "docs/.ignore", text="!build/\n")
    assert found(folder) == ["docs/b.md", "docs/build/c.md", "docs/build/keep.md"]
    assert len(found(folder, uses=False)) == 4


def test_the_first_rule_of_a_file_from_windows_counts(folder):
    write(folder, ".gitignore", text="\ufeffdocs/\r\nb.md\r\n")

    assert found(folder) == ["a.md"]


def test_a_pattern_can_take_back_what_another_left_out(folder):
    assert found(folder, exclude=("docs/build/*", "!keep.md")) == ["a.md", "docs/b.md", "docs/build/keep.md"]
    assert found(folder, exclude=("*.md", "!/a.md")) == ["a.md"]


def test_an_ignore_file_above_the_memory_does_not_count(folder):
    write(folder, "MEMORY.md", "memory/a.md", "memory/drafts/b.md")
    write(folder, ".gitignore", text="memory/\nMEMORY.md\n")
    write(folder, "memory/.gitignore", text="drafts/\n")

    assert found(folder) == ["MEMORY.md", "memory/a.md"]
    assert found(folder, exclude=("MEMORY.md",)) == ["memory/a.md"]
    assert found(folder, exclude=("memory/",)) == ["MEMORY.md"]


def test_odd_ignore_files_do_no_harm(folder, tmp_path):
    write(folder, ".gitignore", text="*a*a*a*a*a*a*a*a*\n[z-a].md\n!\n\\\n/a.md\n")
    (folder / "docs/.gitignore").mkdir()
    (tmp_path / "rules").write_text("*\n")
    (folder / "docs/build/.ignore").symlink_to(tmp_path / "rules")

    assert found(folder) == ["docs/b.md", "docs/build/c.md", "docs/build/keep.md"]


def test_without_rules_the_library_is_not_loaded(folder):
    script = """
import sys
from pathlib import Path
from memline.shared.sources.discover import discover
from memline.shared.sources.paths import MemoryPaths
assert len(discover(MemoryPaths(Path(sys.argv[1]))).files) == 4
assert "pathspec" not in sys.modules
"""
    ran = python(script, str(folder))

    assert (ran.status, ran.stderr) == (0, "")
