"""What a newcomer sees: the tour of `make demo`, and the lines of the README typed as they stand."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTES = ROOT / "examples" / "workspace"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A PATH on which `memline` is the one of these sources, run by this interpreter."""
    folder = tmp_path_factory.mktemp("bin")
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); from memline.producers.start import main; main()"
    )
    command = folder / "memline"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(script)} "$@"\n')
    command.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A checkout with a space in its path, as far as the tour needs one."""
    folder = tmp_path_factory.mktemp("a clone")
    shutil.copytree(ROOT / "examples", folder / "examples")
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    return folder


def run(command, *, path, home, cwd, **more):
    """Run shell text with nothing of our own environment; what it printed, and no error."""
    done = subprocess.run(
        ["sh", "-euc", command],
        env={"PATH": path, "HOME": str(home), "LC_ALL": "C.UTF-8", **more},
        cwd=cwd,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def tour(copy, path, tmp_path_factory):
    """What the tour printed, by the command line it printed before; run by a user who has other settings."""
    home = tmp_path_factory.mktemp("home")
    printed = run(
        "sh scripts/demo.sh",
        path=path,
        home=home,
        cwd=copy,
        MEMLINE_WORKSPACE="/nowhere",
        MEMLINE_QUEUE_URL="redis://127.0.0.1:1/0",
        OPENAI_API_KEY="a-key-that-is-not-used",
    )
    assert list(home.iterdir()) == []
    parts = re.split(r"^\$ (.+)\n", printed, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def answer(tour, words):
    """What the command whose line holds `words` printed."""
    (found,) = [text for line, text in tour.items() if words in line]
    return found


def test_the_tour_indexes_every_sample_note(tour):
    notes = len(list(NOTES.rglob("*.md")))

    assert notes == 14
    assert f"{notes} added, 0 changed, 0 removed, 0 unchanged" in answer(tour, "memline index")
    assert f"{notes}/{notes} files" in answer(tour, "memline status")
    assert re.search(r"Stale:\s+no", answer(tour, "memline status"))


@pytest.mark.parametrize(
    ("words", "first_hit", "shown"),
    [
        ("why did we choose Redis", "memory/decisions/2026-01-14-queue.md", "**We choose Redis**"),
        ("a828e60", "memory/2026-02-03.md", "Commit `a828e60`"),
        ("ERR_CONN_42", "memory/2026-02-0", "ERR_CONN_42"),
        ("磁盘为什么满了", "memory/2026-02-06.md", "214 GB"),
        ("2026-02-10", "memory/2026-02-10.md", "Restore drill"),
    ],
)
def test_each_question_of_the_tour_is_answered_by_the_right_note(tour, words, first_hit, shown):
    printed = answer(tour, words)

    citation = re.search(r"^\d\.\d+ (\S+)#L(\d+)-L(\d+) ", printed, re.MULTILINE)
    assert citation and citation[1].startswith(first_hit)
    assert shown in printed


def test_the_tour_reads_the_lines_of_a_citation(tour):
    lines = (NOTES / "memory/runbooks/restore.md").read_text("utf-8").splitlines()

    assert answer(tour, "memline get").startswith("\n".join(lines[4:12]))


def readme_lines():
    """The lines of the README that are said to work, without their comments."""
    text = (ROOT / "README.md").read_text("utf-8").partition("## Ten lines that work")[2]
    block = text.partition("```sh\n")[2].partition("```")[0]
    for line in block.splitlines():
        if line.strip():
            yield line


def test_the_lines_of_the_readme_work_as_they_stand(path, tmp_path):
    lines = list(readme_lines())
    commands = [line for line in lines if line.startswith("memline ")]
    assert len(lines) == 10 and len(commands) == 7

    script = "\n".join(f"echo '=== {number}'\n{line}" for number, line in enumerate(lines))
    printed = run(script, path=path, home=tmp_path, cwd=tmp_path).split("=== ")

    by_line = {lines[int(part.partition("\n")[0])]: part.partition("\n")[2] for part in printed[1:]}
    init, ask, ask_json, since, get, index, status = (by_line[line] for line in commands)
    assert "2 added, " in init
    assert "2 unchanged" in index
    assert "MEMORY.md#L1" in ask
    assert json.loads(ask_json)["results"][0]["citation"] == "memory/2026-02-10.md#L1"
    assert "memory/2026-02-10.md#L1" in since
    assert get == (tmp_path / "notes/memory/2026-02-10.md").read_text("utf-8")
    assert "2/2 files" in status
