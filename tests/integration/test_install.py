"""Build the wheel and use it beside packages that are named like our folders."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.process import ROOT, Ran

#: What a package of another project does when it is imported.
FOREIGN = 'raise RuntimeError("a foreign package was imported")\n'


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    code = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    built = subprocess.run(
        [sys.executable, "-c", code, str(folder)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return folder / built.stdout.split()[-1]


@pytest.fixture
def project(wheel: Path, tmp_path: Path) -> Path:
    """Make a project with packages named like our folders, and unpack the wheel beside it."""
    folder = tmp_path / "project"
    for name in ("shared", "producers", "workers"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(FOREIGN)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    return folder


def run(project: Path, code: str, *arguments: str) -> Ran:
    """Run code in the project as `PYTHONPATH=.` does, with the unpacked wheel behind it."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=project,
        env={"PATH": "/usr/bin:/bin", "HOME": str(project), "PYTHONPATH": f".:{project.parent / 'site'}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return Ran(status=done.returncode, stdout=done.stdout, stderr=done.stderr)


def test_a_wheel_puts_one_name_on_the_import_path_and_is_typed(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()

    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"memline"}
    assert "memline/py.typed" in names


def test_a_wheel_has_every_file_of_the_three_packages(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}

    tracked = subprocess.run(
        ["git", "ls-files", "shared", "producers", "workers"], cwd=ROOT, capture_output=True, text=True
    ).stdout.split()

    assert {f"memline/{name}" for name in tracked} <= names


def test_foreign_packages_with_the_names_of_our_folders_are_never_imported(project: Path) -> None:
    (project / "MEMORY.md").write_text("Invoices are whole cents.\n")
    code = "from memline.producers.start import main; main()"

    indexed = run(project, code, "--workspace", ".", "index")
    searched = run(project, code, "--workspace", ".", "search", "cents", "--json")

    # `index` runs the workers in its own process: `memline.workers` was loaded, and no foreign `workers`.
    assert (indexed.status, searched.status) == (0, 0), indexed.stderr + searched.stderr
    assert searched.json["results"][0]["path"] == "MEMORY.md"
