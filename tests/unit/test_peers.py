"""The comparison with peers as a program: its table can be read, the job by hand is done. No peer runs."""

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request

import numpy as np
import pytest

from benchmarks import children, corpus, floor, peer_questions, peers
from benchmarks.children import ROOT
from benchmarks.peer_programs import PEERS, Absent, Peer
from benchmarks.peers import Measured
from benchmarks.provider import running
from tests.support.embedding_server import EmbeddingServer
from tests.support.local_model import MODEL, needs_model

#: Sends back what it is sent.
_SERVES = """
from http.server import BaseHTTPRequestHandler, HTTPServer
class Echo(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)
HTTPServer(("127.0.0.1", PORT), Echo).serve_forever()
"""


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

    assert found == peers.labelled(tmp_path, 3) and len({name for _, (name,) in found}) == 3
    for question, (name,) in found:
        (file,) = tmp_path.rglob(name)
        sections = file.read_text().lower().replace(".", "").split("## ")
        assert any(set(question.split()) <= set(section.split()) for section in sections)


def test_a_file_counts_at_its_first_place_and_all_that_answer_count() -> None:
    questions = [("one", {"b"}), ("two", {"a", "x"}), ("three", {"x"})]

    scores = peer_questions.scores([["a", "a", "b"], [*"bcdef", "a"], ["a"]], questions)

    assert scores["recall@5"] == pytest.approx(1 / 3)
    assert scores["recall@10"] == pytest.approx((1 + 1 / 2) / 3)
    assert scores["recall_any@10"] == pytest.approx(2 / 3)
    assert scores["MRR"] == pytest.approx((1 / 2 + 1 / 6) / 3)


def test_questions_are_those_that_the_notes_which_are_written_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, notes = tmp_path / "out", tmp_path / "notes"
    for number in range(3):
        (folder / f"w{number}").mkdir(parents=True)
        (folder / f"w{number}" / "s0.md").write_text(f"note {number}")
    asked = [
        {"query_id": f"q{number}", "query": f'"{number}"?', "workspace": f"w{number}", "category": "c"}
        | {"evidence": [[{"path": "s0.md", "line": 1}]]}
        for number in range(3)
    ]
    (folder / "questions.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in asked))
    monkeypatch.setattr(peer_questions, "NOTES", 2)

    questions = peer_questions.write(folder, notes)

    assert {question: [*wanted] for question, wanted in questions} == {"0?": ["w0-s0.md"], "1?": ["w1-s0.md"]}
    assert (notes / "memory/w1-s0.md").read_text() == "note 1"
    assert not (notes / "memory/w2-s0.md").exists()


def test_what_each_found_is_a_row_a_peer() -> None:
    found = dict.fromkeys(peers.FOUND, 0.5)
    all_measured = [
        Measured(name="memline", version="1", found=found, found_by="the same server"),
        Measured(name="other", reason="npm is not installed"),
    ]

    assert peers.table_of_found(all_measured).splitlines()[2:] == [
        f"| memline 1 | {' | '.join(['0.500'] * len(found))} | the same server |"
    ]


@needs_model
def test_the_server_of_the_real_model_answers_by_meaning() -> None:
    with running("benchmarks.model_server", str(MODEL), "--dims", 384) as url:
        texts = ["A cat sleeps.", "The kitten is asleep.", "Invoices are due in May."]
        one, other, far = (np.frombuffer(vector, "<f4") for vector in floor.embed(url, texts))

    assert one @ one == pytest.approx(1, abs=0.01)
    assert one @ other > one @ far + 0.3


@pytest.mark.parametrize("is_up", [True, False])
def test_a_peer_is_asked_by_http_once_it_answers_or_said_to_be_absent(tmp_path: Path, is_up: bool) -> None:
    class Served(Peer):
        warm = "HTTP, its server"

        def server(self) -> list[str]:
            return [sys.executable, "-c", _SERVES.replace("PORT", str(port)) if is_up else ""]

        def request(self, question: str) -> Request:
            return Request(f"http://127.0.0.1:{port}/", json.dumps({"paths": [question]}).encode())

        def found(self, result: dict[str, Any]) -> list[str]:
            return [str(path) for path in result["paths"]]

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    peer = Served(tmp_path, tmp_path / "home", tmp_path, "")

    if is_up:
        with peers.asking(peer) as ask:
            assert ask("quokka") == ["quokka"]
    else:
        with pytest.raises(Absent, match="does not answer"), peers.asking(peer):
            pass


def test_a_command_that_fails_says_its_last_words(tmp_path: Path) -> None:
    peer = Peer(tmp_path, tmp_path / "home", tmp_path, "")

    with pytest.raises(Absent, match=r"ended with 3: \['no model'\]"):
        peer.run([sys.executable, "-c", "import sys; print('no model', file=sys.stderr); sys.exit(3)"])


def test_what_a_command_uses_and_holds_counts_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, seen = Peer(tmp_path, tmp_path / "home", tmp_path, ""), tmp_path / "seen"
    resident_mb = children.resident_mb

    def look(pid: int) -> float:
        if (found := resident_mb(pid)) > 200:
            seen.touch()
        return found

    monkeypatch.setattr(children, "resident_mb", look)
    # It holds them until they were seen.
    held = f"held = bytearray(200_000_000); import os\nwhile not os.path.exists({str(seen)!r}): pass"
    inner = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {held!r}], check=True); print(1)"

    cost = peer.cost([sys.executable, "-c", "pass"], [sys.executable, "-c", inner])

    assert cost.stdout == "1\n"
    assert cost.peak_mb > 200 and cost.cpu_s > peer.cost([sys.executable, "-c", "pass"]).cpu_s


def test_a_command_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    peer = Peer(tmp_path, tmp_path / "home", tmp_path, "")
    peer.within_s = 0.2

    with pytest.raises(Absent, match=r"-c took over 0\.2 s"):
        peer.run([sys.executable, "-c", "import time; time.sleep(600)"])


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

    assert all(option in ran.stdout for option in ("--files", "--peers", "--keep", "--questions"))
