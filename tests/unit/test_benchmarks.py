"""The benchmarks as a program: they can be named, and what they print can be read. Nothing is timed here."""

import json
import re
import sys
from pathlib import Path

import pytest

from benchmarks import ablation, corpus, documentation, plots, texts
from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.bench import Bench
from benchmarks.children import environment, memline
from benchmarks.figures import Figure, at_least, at_most, table
from benchmarks.rate_limits import promised
from tests.support.local_model import needs_model


def test_every_benchmark_says_in_its_docstring_what_it_measures() -> None:
    assert {"keyword", "hybrid", "warm", "first", "nothing-changed", "save", "memory"} <= set(BENCHMARKS)
    assert all((benchmark.__doc__ or "").endswith(".") for benchmark in BENCHMARKS.values())


def test_a_name_that_is_no_benchmark_is_refused_with_those_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["warmth"])

    assert ended.value.code == 2
    assert "nothing-changed" in capsys.readouterr().err


def test_the_table_is_markdown_with_columns_of_one_width() -> None:
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


def test_a_figure_on_its_limit_has_met_it() -> None:
    assert at_most("opened", 0, 0, "notes").met
    assert at_least("speed", 0.7, 0.7, "x").met


def test_the_notes_are_the_same_every_time(tmp_path: Path) -> None:
    corpus.write(tmp_path, files=3, sections=2)

    written = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*.md")}

    assert written == dict(corpus.notes(3, 2))
    assert corpus.questions(2) == corpus.questions(2)


def test_without_a_redis_server_a_fleet_is_not_measured_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    (figure,) = BENCHMARKS["fleet-idle"](Bench(tmp_path))

    assert figure.met is None
    assert "no redis-server" in figure.measured


def test_a_child_sees_no_key_and_keeps_its_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")

    seen = environment()

    assert "OPENAI_API_KEY" not in seen
    assert "PYTHONDONTWRITEBYTECODE" not in seen
    assert memline("search", "word", before="import this")[-2:] == ["search", "word"]


def test_without_matplotlib_nothing_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    assert plots.growth({10_000: {"index": ("s CPU", 1.0)}}, tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_the_pictures_are_small_and_shown() -> None:
    pages = "".join(page.read_text() for page in plots.IMAGES.parent.glob("*.md"))
    shown = {plots.IMAGES / name for name in re.findall(r"\(images/(growth-[\w-]+\.svg)\)", pages)}

    assert shown == set(plots.IMAGES.glob("growth-*.svg"))
    assert all(picture.stat().st_size < 60_000 for picture in shown)


def test_the_texts_of_large_indexes_are_the_same_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "_VOCABULARY", 3_000)

    assert list(texts._texts(20)) == list(texts._texts(20))
    assert {len(text.split()) for batch in texts._texts(20) for text in batch} <= set(range(60, 240))


@pytest.fixture
def sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
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


def test_the_ablation_asks_a_set_of_pages_and_one_with_evidence_without_each_part(
    tmp_path: Path, sets: list[str]
) -> None:
    header, _, whole, *others = ablation.rows(Bench(tmp_path / "bench"), sets)

    assert header == "| | pages/help | notes |"
    assert whole == "| all of it | 1.000, 1.000 | 1.000 / 1.000 |"
    assert [line.split(" | ")[0].removeprefix("| ") for line in others] == [*ablation.PARTS][1:]


@needs_model
def test_the_ablation_asks_by_meaning_as_well(tmp_path: Path, sets: list[str]) -> None:
    _, _, whole, words, meaning, *others = ablation.rows(Bench(tmp_path / "bench"), sets, meaning=True)

    assert whole == "| all of it | 1.000, 1.000 | 1.000 / 1.000 |"
    assert words == whole.replace("all of it", "keywords alone")
    assert meaning == whole.replace("all of it", "meaning alone")
    assert len(others) == len(ablation.PARTS_OF_MEANING) - 3


def test_the_model_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, sets: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ablation, "MODEL", Path("/nowhere/small.gguf"))

    assert ablation.main(["--meaning", *sets]) == 2
    assert capsys.readouterr().err == "needs the model ../shared/models/small.gguf\n"


def test_a_set_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert ablation.main(["nothing"]) == 2
    assert capsys.readouterr().err == "needs ../shared/eval/dev (nothing)\n"


def test_documentation_is_asked_for_its_pages_without_their_descriptions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    docs = tmp_path / "docs"
    (docs / "guides").mkdir(parents=True)
    for name, said in (
        ("kites", "How to build what flies in the wind"),
        ("boats", "Sail down a river in a box"),
    ):
        front = f"---\ntitle: The {name}\ndescription: {said}\n---\n\n"
        (docs / f"guides/{name}.mdx").write_text(f"{front}Of {name}: {said.split(' ', 2)[2]}.\n")
    (docs / "index.md").write_text("# No front matter\n")

    questions = documentation.taken_apart(docs, tmp_path / "ws")
    assert {(each.kind, each.path) for each in questions} == {
        (kind, f"guides/{name}.md") for kind in ("title", "description") for name in ("kites", "boats")
    }
    assert "description" not in (tmp_path / "ws/guides/kites.md").read_text()

    assert documentation.main([str(docs)]) == 0
    assert f"| {docs} | 2, 2 |" + " 1.000 / 1.000 |" * 4 in capsys.readouterr().out
    assert documentation.main([str(tmp_path / "ws/guides")]) == 2
    assert "no page has a title and a description" in capsys.readouterr().err


def test_the_use_of_a_limit_is_measured_by_what_texts_are_promised_of_it() -> None:
    # Nine tenths of a minute that counts for 62 seconds, of tokens a request less.
    assert (promised("requests"), promised("tokens")) == (86, 81)
