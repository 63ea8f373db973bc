"""The benchmarks as a program: they can be named, and what they print can be read. Nothing is timed here."""

import json

import pytest

from benchmarks import ablation
from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.bench import Bench
from benchmarks.figures import Figure, at_least, at_most, table


def test_every_benchmark_says_in_its_docstring_what_it_measures():
    assert {"keyword", "hybrid", "warm", "first", "nothing-changed", "save", "memory", "http"} <= set(
        BENCHMARKS
    )
    assert all((benchmark.__doc__ or "").endswith(".") for benchmark in BENCHMARKS.values())


def test_a_name_that_is_no_benchmark_is_refused_with_those_there_are(
    capsys,
):
    with pytest.raises(SystemExit) as ended:
        main(["warmth"])

    assert ended.value.code == 2
    assert "nothing-changed" in capsys.readouterr().err


def test_the_table_is_markdown_with_columns_of_one_width():
    figures = [
        at_most("a search", 61.2, 60, "ms CPU"),
        at_least("an index run", 0.8, 0.7, "x by hand", detail="1.0 s and 1.25 s"),
        Figure(what="loading", target="", measured="3 s"),
    ]

    lines = table(figures).splitlines()

    assert len(lines) == 5
    assert len({len(line) for line in lines}) == 1
    assert [cell.strip() for cell in lines[2].split("|")] == [
        "", "a search", "<= 60 ms CPU", "61.2 ms CPU", "MISSED", "", "",
    ]  # fmt: skip
    assert [figure.verdict for figure in figures] == ["MISSED", "met", ""]


@pytest.fixture
def sets(tmp_path, monkeypatch):
    """A set of pages and one with evidence, of two notes each."""
    rows = {
        "pages/help": [
            {"kind": "title", "query": "Boats", "path": "boats.md"},
            {"kind": "description", "query": "what floats", "path": "boats.md"},
        ],
        "notes": [
            {
                "query_id": "1",
                "query": "where do kestrels nest",
                "workspace": "ws",
                "evidence": [[{"view": "memory", "path": "birds.md", "line": 3}]],
            }
        ],
    }
    for name, questions in rows.items():
        notes = tmp_path / name / "ws"
        notes.mkdir(parents=True)
        (notes / "boats.md").write_text("# Boats\n\nA boat floats.\n")
        (notes / "birds.md").write_text("# Birds\n\nKestrels nest in the old mill.\n")
        (tmp_path / name / "queries.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in questions))
    monkeypatch.setattr(ablation, "FOLDER", tmp_path)
    return [*rows]


def test_the_ablation_asks_a_set_of_pages_and_one_with_evidence_without_each_part(tmp_path, sets):
    header, _, whole, *others = ablation.rows(Bench(tmp_path / "bench"), sets)

    assert header == "| | pages/help | notes |"
    assert whole == "| all of it | 1.000, 1.000 | 1.000 / 1.000 |"
    assert [line.split(" | ")[0].removeprefix("| ") for line in others] == [*ablation.PARTS][1:]
