"""Build the wheel and use it beside packages that are named like our folders."""

import subprocess
import sys
import zipfile

import pytest

from tests.support.process import ROOT, Ran

#: What a package of another project does when it is imported.
FOREIGN = 'raise RuntimeError("a foreign package was imported")\n'


#: What a build reads beside the package; the three names are links, in a checkout that has links.
BESIDE = ("pyproject.toml", "README.md", "LICENSE", "producers", "shared", "workers")


def build(checkout, folder):
    """Build the wheel of a checkout into the folder."""
    code = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    built = subprocess.run(
        [sys.executable, "-c", code, str(folder)], cwd=checkout, capture_output=True, text=True, check=True
    )
    return folder / built.stdout.split()[-1]


def modules(wheel):
    """The modules in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if name.endswith(".py")}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this checkout."""
    return build(ROOT, tmp_path_factory.mktemp("wheel"))


def test_a_checkout_without_links_builds_the_same_wheel(wheel, tmp_path):
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "memline", *BESIDE],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        source, target = ROOT / name, tmp_path / "checkout" / name
        if source.is_symlink() or source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            # What git writes for a link where links are off: a file that holds its target.
            target.write_bytes(
                str(source.readlink()).encode() if source.is_symlink() else source.read_bytes()
            )

    rebuilt = build(tmp_path / "checkout", tmp_path)

    assert modules(rebuilt) == modules(wheel)
    assert "memline/producers/start.py" in modules(rebuilt)


@pytest.fixture
def project(wheel, tmp_path):
    """Make a project with packages named like our folders, and unpack the wheel beside it."""
    folder = tmp_path / "project"
    for name in ("shared", "producers", "workers"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(FOREIGN)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    return folder


def run(project, code, *arguments):
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


def test_a_wheel_puts_one_name_on_the_import_path_and_is_typed(wheel):
    names = zipfile.ZipFile(wheel).namelist()

    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"memline"}
    assert "memline/py.typed" in names


def test_a_wheel_has_every_file_of_the_three_packages(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}

    tracked = subprocess.run(
        ["git", "ls-files", "memline"], cwd=ROOT, capture_output=True, text=True
    ).stdout.split()

    assert {*tracked} <= names


def test_foreign_packages_with_the_names_of_our_folders_are_never_imported(project):
    (project / "MEMORY.md").write_text("Invoices are whole cents.\n")
    code = "from memline.producers.start import main; main()"

    indexed = run(project, code, "--workspace", ".", "index")
    searched = run(project, code, "--workspace", ".", "search", "cents", "--json")

    # `index` runs the workers in its own process: `memline.workers` was loaded, and no foreign `workers`.
    assert (indexed.status, searched.status) == (0, 0), indexed.stderr + searched.stderr
    assert searched.json["results"][0]["path"] == "MEMORY.md"
