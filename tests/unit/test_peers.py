"""The comparison with peers as a program: its table can be read, the job by hand is done. No peer runs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import corpus, floor, peers
from benchmarks.children import ROOT
from benchmarks.peer_programs import PEERS, Absent, Peer
from benchmarks.peers import Measured
from tests.support.embedding_server import EmbeddingServer


def test_each_cell_has_the_ratio_to_memline_and_the_figure_and_an_absent_peer_its_reason() -> None:
    all_measured = [
        Measured(name="memline", version="1", figures={"disk": 50.0, "MRR": 0.9, "first index": 2}),
        Measured(name="other", version="2", vectors="none", figures={"disk": 125.0, "MRR": 0.5}),
        Measured(name="third", reason="npm is not installed"),
    ]

    head, _, *rows, said = peers.table(all_measured).splitlines()

    assert head == "| | memline 1 | other 2 |"
    assert "| disk, MB | **1 ×** (50) | **2.5 ×** (125) |" in rows
    assert "| MRR | 0.9 | 0.5 |" in rows
    assert "| first index, s CPU | **1 ×** (2) | - |" in rows
    assert said == "- third: npm is not installed"


def test_a_peer_that_is_not_known_is_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        peers.main(["--peers", "memline,unknown"])

    assert "openclaw" in capsys.readouterr().err


def test_a_question_stands_in_one_section_of_the_note_that_answers(tmp_path: Path) -> None:
    corpus.write(tmp_path, files=4, sections=2)

    found = peers.labelled(tmp_path, 3)

    assert found == peers.labelled(tmp_path, 3) and len({name for _, name in found}) == 3
    for question, name in found:
        (file,) = tmp_path.rglob(name)
        sections = file.read_text().lower().replace(".", "").split("## ")
        assert any(set(question.split()) <= set(section.split()) for section in sections)


def test_a_file_counts_at_its_first_place() -> None:
    assert [peers.place_of(name, ["a", "a", "b"]) for name in "abc"] == [1, 2, 0]


def test_a_command_that_fails_says_its_last_words(tmp_path: Path) -> None:
    peer = Peer(tmp_path, tmp_path / "home", tmp_path, "")

    with pytest.raises(Absent, match=r"ended with 3: \['no model'\]"):
        peer.run([sys.executable, "-c", "import sys; print('no model', file=sys.stderr); sys.exit(3)"])


def test_the_job_by_hand_indexes_what_changed_and_finds_it(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    corpus.write(notes, files=5, sections=2)
    with EmbeddingServer() as server:
        peer = PEERS["by-hand"](tmp_path, tmp_path / "home", notes, server.url)

        def run(*commands: list[str]) -> Any:
            return json.loads(peer.run(*commands))

        assert run(*peer.indexing())["chunks"] == len(list(notes.rglob("*.md"))) * 2
        assert run(*peer.indexing())["chunks"] == 0
        (first, *_) = sorted(notes.rglob("*.md"))
        first.write_text("The quokka sleeps.")
        assert run(*peer.indexing())["chunks"] == 1
        assert peer.files(peer.run(peer.searching("quokka")))[0] == first.name
        with peers.asking(peer) as ask:
            assert ask("quokka")[0] == first.name


def test_a_piece_is_whole_lines_and_shares_some_with_the_one_before() -> None:
    lines = [f"{number:03} {'x' * 60}" for number in range(60)]

    found = list(floor.pieces("\n".join(lines)))

    assert list(dict.fromkeys("\n".join(found).split("\n"))) == lines
    assert all(len(each) <= 1_700 for each in found)
    assert set(found[0].split("\n")) & set(found[1].split("\n"))


def test_the_help_names_the_options() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.peers", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    assert all(option in ran.stdout for option in ("--files", "--peers", "--keep"))
