"""What runs on a push and on a tag: every supported Python, the script of a checkout, no secret of ours."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def workflow(name: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows" / name).read_text("utf-8"))
    return read


def test_every_python_that_the_package_names_runs_all_tests() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    job = workflow("test.yml")["jobs"]["test"]

    assert job["strategy"]["matrix"]["python-version"] == named
    (step,) = (each for each in job["steps"] if "run" in each)
    assert step["run"] == "bash .ci/run"
    # The script takes the first interpreter that this names.
    assert step["env"] == {"PYTHON": "python${{ matrix.python-version }}"}
    assert "${PYTHON:-" in (ROOT / ".ci/run").read_text("utf-8")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_needs_no_secret_of_the_repository(path: Path) -> None:
    secrets = set(re.findall(r"secrets\.(\w+)", path.read_text("utf-8")))

    assert secrets <= {"GITHUB_TOKEN"}


def test_a_release_tries_what_it_has_built_before_anything_is_published() -> None:
    release = workflow("release.yml")
    # YAML 1.1 reads `on` as true.
    assert release[True]["push"]["tags"] == ["v*"]
    jobs = release["jobs"]
    runs = "\n".join(step.get("run", "") for step in jobs["packages"]["steps"])

    assert runs.index("python -m build") < runs.index("twine check") < runs.index("pip install dist/*.whl")
    assert jobs["publish"]["needs"] == jobs["image"]["needs"] == "packages"
    (built,) = (step["with"] for step in jobs["image"]["steps"] if "build-push" in step.get("uses", ""))
    assert (ROOT / built["file"]).is_file()


def test_the_bot_looks_at_everything_that_has_versions() -> None:
    updates = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text("utf-8"))["updates"]

    places = {(each["package-ecosystem"], each["directory"]) for each in updates}

    assert places == {("pip", "/"), ("github-actions", "/"), ("docker", "/deploy")}
