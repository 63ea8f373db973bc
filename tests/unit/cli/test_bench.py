import json
from pathlib import Path

import pytest

from memline.producers import cli
from memline.producers.cli.bench import LabelledQuestion, Place, published_score
from memline.shared.search.results import Hit
from memline.shared.values import replace
from tests.support.embedding_server import EmbeddingServer
from tests.support.transcripts import opening, said

NOTES = {
    "MEMORY.md": "# What holds\n\nThe standup is at nine.\n",
    "memory/2026-02-10.md": "# Redis\n\nThe timeout was raised to thirty seconds.\n",
    "docs/birds.md": "Kestrels nest in the old barn.\n",
}


@pytest.fixture
def labelled(tmp_path: Path) -> tuple[str, str]:
    """A file of two questions, one with evidence that no word leads to, and the folder of the notes."""
    root = tmp_path / "workspaces"
    for path, text in NOTES.items():
        file = root / "home" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    rows = [
        ("q1", "where do kestrels nest", "birds", "docs/birds.md", 1),
        ("q2", "why are we quicker now", "work", "memory/2026-02-10.md", 3),
    ]
    queries = tmp_path / "questions.jsonl"
    queries.write_text(
        "\n".join(
            json.dumps(
                {
                    "query_id": row_id,
                    "query": query,
                    "workspace": "home",
                    "category": category,
                    "evidence": [[{"view": "memory", "path": path, "line": line}]],
                }
            )
            for row_id, query, category, path, line in rows
        ),
        encoding="utf-8",
    )
    return str(queries), str(root)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("MEMLINE_HOME", str(home / "memline"))
    return home


def test_it_says_how_much_of_the_evidence_is_found(
    labelled: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["bench", "retrieval", *labelled, "--json"]) == 0

    report = json.loads(capsys.readouterr().out)
    assert report["all"]["questions"] == 2
    assert report["all"]["R@6"] == 0.5
    assert report["unmerged"]["R@6"] == 0.5
    assert report["by"]["birds"]["nDCG@10"] == 1.0
    assert report["by"]["birds"]["snippet@6"] == 1.0
    assert report["by"]["work"]["snippet@6"] is None


def test_the_table_has_a_row_a_category(
    labelled: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["bench", "retrieval", *labelled]) == 0

    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["n", "R@3", "R@6"]
    assert [row.split()[0] for row in rows] == ["all", "all,", "birds", "work"]
    assert rows[3].split()[-1] == "-"


def test_the_hits_can_be_written_for_another_scorer(labelled: tuple[str, str], tmp_path: Path) -> None:
    run = tmp_path / "run.jsonl"

    assert cli.run(["bench", "retrieval", *labelled, "--run", str(run)]) == 0

    first = json.loads(run.read_text(encoding="utf-8").splitlines()[0])
    (hit,) = first["results"]
    assert (first["query_id"], hit["path"], hit["startLine"], hit["endLine"]) == ("q1", "docs/birds.md", 1, 1)
    assert 0.9 <= hit["score"] < 1


def test_nothing_is_left_behind(labelled: tuple[str, str], home: Path) -> None:
    before = sorted(Path(labelled[1]).rglob("*"))

    cli.run(["bench", "retrieval", *labelled])

    assert sorted(Path(labelled[1]).rglob("*")) == before
    assert not home.exists()


def test_a_provider_that_cannot_work_ends_it(
    labelled: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    assert cli.run(["bench", "retrieval", *labelled, "--provider", "openai"]) == 1

    assert "Error:" in capsys.readouterr().err


def test_a_note_that_cannot_be_read_is_left_out_and_named(
    capsys: pytest.CaptureFixture[str], labelled: tuple[str, str]
) -> None:
    bad = next(Path(labelled[1]).rglob("*.md"))
    bad.with_name("nul.md").write_bytes(b"a\0b")

    assert cli.run(["bench", "retrieval", *labelled]) == 0
    out = capsys.readouterr()
    assert out.err.startswith(f"left out: {bad.with_name('nul.md')}: contains NUL bytes\n")
    assert "R@6" in out.out


def test_a_workspace_that_is_not_there_is_named(
    labelled: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()

    assert cli.run(["bench", "retrieval", labelled[0], str(tmp_path / "empty")]) == 1

    assert "there is no folder" in capsys.readouterr().err


def test_with_a_provider_notes_and_questions_are_embedded(
    labelled: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.json5"
    with EmbeddingServer(dims=64) as server:
        remote = {"baseUrl": server.url, "apiKey": "sk-test"}
        memory = {"memorySearch": {"remote": remote}}
        config.write_text(json.dumps({"agents": {"defaults": memory}}), encoding="utf-8")

        status = cli.run(
            ["--config", str(config), "bench", "retrieval", *labelled, "--provider", "openai", "--json"]
        )

    assert status == 0
    assert json.loads(capsys.readouterr().out)["by"]["birds"]["R@10"] == 1.0
    # Three notes and two questions, each paid for once.
    assert sorted(server.log()["texts"].values()) == [1, 1, 1, 1, 1]


def test_transcripts_are_searched_with_the_view_sessions(
    labelled: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sessions = Path(labelled[1]) / "home" / "sessions"
    sessions.mkdir()
    (sessions / "abc.jsonl").write_text(opening() + said("user", "The umbrella is in the cellar."))
    place = {"view": "sessions", "path": "sessions/abc.jsonl", "line": 2}
    row = {"query_id": "q1", "query": "umbrella", "workspace": "home", "evidence": [[place]]}
    queries = tmp_path / "sessions.jsonl"
    queries.write_text(json.dumps(row))

    assert cli.run(["bench", "retrieval", str(queries), labelled[1], "--view", "sessions", "--json"]) == 0

    assert json.loads(capsys.readouterr().out)["all"]["R@3"] == 1.0


def test_categories_command_no_terminal(
    labelled: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    queries = Path(labelled[0])
    queries.write_text(queries.read_text("utf-8").replace('"birds"', r'"birds\u001b[95m"'), "utf-8")

    assert cli.run(["bench", "retrieval", *labelled]) == 0

    assert "birds\\x1b[95m" in capsys.readouterr().out


def test_an_imported_benchmark_has_the_published_metrics_beside_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four questions: found first, one of two files found, found second, and without evidence."""
    talk = {
        "conversation": {
            "session_1": [{"speaker": "Ann", "dia_id": "D1:1", "text": "Kestrels nest in the barn."}],
            "session_2": [{"speaker": "Ben", "dia_id": "D2:1", "text": "The barn has a new roof, the barn!"}],
            "session_3": [{"speaker": "Cy", "dia_id": "D3:1", "text": "Tulips."}],
        },
        "qa": [
            {"question": "where do kestrels nest", "evidence": ["D1:1"], "category": 4},
            {"question": "which tulips", "evidence": ["D3:1", "D2:1"], "category": 1},
            {"question": "barn roof", "evidence": ["D1:1"], "category": 2},
            {"question": "where is the harbour", "evidence": [], "category": 5},
        ],
    }
    file, out = tmp_path / "locomo.json", tmp_path / "out"
    file.write_text(json.dumps([talk]))
    assert cli.run(["bench", "import", "locomo", str(file), str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"workspaces": 1, "notes": 3, "questions": 4}

    assert cli.run(["bench", "retrieval", str(out), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert cli.run(["bench", "retrieval", str(out)]) == 0
    head = capsys.readouterr().out.splitlines()[0].split()

    found = report["all"]
    assert {name: found[name] for name in ("questions", *head[1:6])} == {
        "questions": 4,
        "recall@5": (1 + 0.5 + 1 + 0) / 4,
        "recall@10": (1 + 0.5 + 1 + 0) / 4,
        "recall_any@5": 0.75,
        "recall_any@10": 0.75,
        "MRR": (1 + 1 + 0.5 + 0) / 4,
    }
    # Ours leave out what has no evidence.
    assert found["R@6"] == pytest.approx((1 + 0.5 + 1) / 3)
    assert found["nDCG@10"] == pytest.approx((1 + 1 / (1 + 0.6309) + 0.6309) / 3, abs=1e-3)
    assert (report["unmerged"], report["by"]["adversarial"]["recall@5"]) == (None, 0)
    assert head == ["n", "recall@5", "recall@10", "recall_any@5", "recall_any@10", "MRR", "R@6", "nDCG@10"]


def test_files_count_once_and_only_ten_of_them() -> None:
    some = {"start_line": 1, "end_line": 1, "score": 1, "vector_score": 0, "text_score": 1}

    def hits(*paths: str) -> list[Hit]:
        return [Hit(path=path, snippet="", source="memory", **some) for path in paths]

    wanted = tuple((Place(path=path, line=None),) for path in ("a", "b", "z"))
    question = LabelledQuestion(id="q", text="x", workspace="w", category="", evidence=wanted)

    first = published_score(question, hits("x", "x", "x", "x", "x", "a", "y", "b"))
    late = published_score(question, hits(*"cdefghijkl", "z"))
    twin = published_score(question, [replace(hits("x")[0], also_in=("a",))])

    assert first == {
        "recall@5": 2 / 3,
        "recall@10": 2 / 3,
        "recall_any@5": 1.0,
        "recall_any@10": 1.0,
        "MRR": 1 / 2,
    }
    assert set(late.values()) == {0.0}
    assert twin["MRR"] == 1 / 2


@pytest.mark.parametrize(
    ("given", "status", "words"),
    [
        (["questions.jsonl"], 2, "needs a ROOT"),
        ([".", "."], 2, "needs a ROOT"),
        (["questions.jsonl", "."], 1, "questions.jsonl has no question\nTry: a line is {"),
    ],
)
def test_a_file_needs_the_folder_of_its_workspaces_and_a_question_and_an_import_takes_no_folder(
    tmp_path: Path, given: list[str], status: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "questions.jsonl").touch()

    assert cli.run(["bench", "retrieval", *(str(tmp_path / each) for each in given)]) == status

    assert words in capsys.readouterr().err
