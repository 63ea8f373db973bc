"""What qmd prints, and what of it is shown."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from memline.producers.bridges.qmd import answers
from memline.producers.bridges.qmd.collections import Collections
from memline.producers.bridges.qmd.home import QmdFailed, QmdHome
from memline.shared.programs import Ran
from memline.shared.search.request import SearchRequest
from memline.shared.search.results import Hit
from tests.support.qmd import row
from tests.unit.bridges.qmd.conftest import Place

ALWAYS = (date.min, date.max)
DIR = "memory-dir-main"
NOTE = f"{DIR}/2026-02-10.md"


def read(stdout: str, stderr: str = "") -> list[answers.Found]:
    return answers.read(Ran(stdout=stdout, stderr=stderr), "query")


def hits(place: Place, *rows: Any, max_chars: int = 700, **request: Any) -> list[Hit]:
    settings = place.agent(sessions={"enabled": True})
    home = QmdHome(settings)
    home.make()
    reader = answers.Reader(Collections(settings, home), home.index_path, max_chars=max_chars)
    asked = SearchRequest(query="q", **request)
    return list(reader.hits(read(json.dumps(rows)), asked, ALWAYS, "search"))


@pytest.mark.parametrize(
    ("stdout", "stderr"),
    [
        ("[]", ""),
        ("No results found.", ""),
        ("  no results found\n", ""),
        ("No results found above minimum score threshold.", ""),
        ("warming up\nNo results found.\n", ""),
        ("", "No results found"),
        ("loading [1/3]\n[]\nbye", ""),
    ],
)
def test_nothing_was_found_in_many_words(stdout: str, stderr: str) -> None:
    assert read(stdout, stderr) == []


@pytest.mark.parametrize("before", ["", "[1/2] loading\n", "[warn] slow\n", "{not json}\n", "qmd> [1, 2]\n"])
@pytest.mark.parametrize("after", ["", "\ndone [ok]"])
def test_the_array_is_found_in_noise(before: str, after: str) -> None:
    assert [each.file for each in read(before + json.dumps([row(NOTE)], indent=2) + after)] == [
        f"qmd://{NOTE}"
    ]


@pytest.mark.parametrize(
    "stdout", ["", "nonsense", "{}", '{"results": 1}', "[1, 2]", "[" * 50_000, '[{"file": ']
)
def test_what_is_not_an_answer_is_refused_with_what_was_said(stdout: str) -> None:
    with pytest.raises(QmdFailed, match="qmd query returned invalid JSON"):
        read(stdout, "some trouble")


def test_an_empty_answer_quotes_the_standard_error() -> None:
    with pytest.raises(QmdFailed, match=r"invalid JSON: stdout empty \(stderr: model missing x{100}"):
        read("", f"model missing {'x' * 500}")


@pytest.mark.parametrize(
    "bad",
    [
        {"score": "0.5"},
        {"score": None},
        {"score": True},
        {"score": float("nan")},
        {"score": float("inf")},
        {"score": 10**400},
        {"snippet": ["x"]},
        {"file": 7, "docid": "%"},
        {"file": "", "docid": "' OR 1=1"},
    ],
)
def test_a_result_with_a_field_of_another_type_is_left_out(bad: dict[str, Any]) -> None:
    found = read(json.dumps([{**row(NOTE), **bad}, row(NOTE)]))

    assert [each.file for each in found] == [f"qmd://{NOTE}"]


def test_a_hit_has_the_path_of_its_file_and_the_lines_of_its_header(place: Place) -> None:
    (hit,) = hits(place, row(NOTE, text="@@ -5,3 @@ (4 before, 2 after)\none\ntwo\nthree"))

    assert (hit.citation, hit.snippet, hit.score) == ("memory/2026-02-10.md#L5-L7", "one\ntwo\nthree", 0.5)
    assert (hit.text_score, hit.vector_score, hit.source) == (0.5, 0.0, "memory")


def test_without_a_header_the_lines_are_counted_from_the_first(place: Place) -> None:
    assert [each.citation for each in hits(place, row(NOTE, text="one\ntwo"))] == [
        "memory/2026-02-10.md#L1-L2"
    ]


def test_a_long_snippet_is_cut_with_its_lines(place: Place) -> None:
    (hit,) = hits(place, row(NOTE, text="@@ -5,3 @@\none\ntwo\nthree"), max_chars=7)

    assert (hit.snippet, hit.citation) == ("one\ntwo", "memory/2026-02-10.md#L5-L6")


@pytest.mark.parametrize(
    "file",
    [
        f"{DIR}/../MEMORY.md",
        f"{DIR}/../../outside.md",
        f"{DIR}//etc/passwd",
        f"{DIR}/link.md",
        f"{DIR}/gone.md",
        f"{DIR}/sub",
        f"{DIR}/a\0b.md",
        "other/x.md",
        "/etc/passwd",
        DIR,
        "",
    ],
)
def test_a_file_that_is_not_one_of_the_memory_is_not_shown(place: Place, file: str) -> None:
    (place.folder / "outside.md").write_text("secret")
    (place.notes / "memory" / "link.md").symlink_to(place.folder / "outside.md")
    (place.notes / "memory" / "sub").mkdir()

    assert hits(place, row(file)) == []


def test_of_two_files_with_one_text_the_one_that_is_named_wins(place: Place) -> None:
    (place.notes / "memory" / "copy.md").write_text("Deploy failed with ERR_CONN_42.\n")

    found = hits(place, row(f"{DIR}/copy.md"), row(NOTE), row(NOTE))

    assert [each.path for each in found] == ["memory/copy.md", "memory/2026-02-10.md"]


def test_without_a_name_the_document_is_looked_up_by_its_hash(place: Place) -> None:
    home = QmdHome(place.agent())
    home.make()
    with closing(sqlite3.connect(home.index_path)) as index:
        index.execute("CREATE TABLE documents (hash, collection, path, active)")
        index.execute("INSERT INTO documents VALUES ('abc123ff', ?, '2026-02-10.md', 1)", (DIR,))
        index.commit()
    unnamed = {"docid": "#abc123", "score": 1, "snippet": "words"}

    assert [each.path for each in hits(place, unnamed)] == ["memory/2026-02-10.md"]
    assert hits(place, {**unnamed, "docid": "#ffff00"}) == []


def test_an_index_that_cannot_be_read_is_told(place: Place) -> None:
    with pytest.raises(QmdFailed, match="qmd index busy while reading results"):
        hits(place, {"docid": "#abc123", "score": 1, "snippet": "words"})


@pytest.mark.parametrize(
    ("name", "written"),
    [("My Note.md", "my-note.md"), ("Über_uns (2).md", "über-uns-2.md"), ("a/B C/d.md", "a/b-c/d.md")],
)
def test_a_name_that_older_versions_change_leads_to_its_file(place: Place, name: str, written: str) -> None:
    path = place.notes / "memory" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")

    assert [each.path for each in hits(place, row(f"{DIR}/{written}"))] == [f"memory/{name}"]


def test_filters_are_obeyed(place: Place) -> None:
    both = (row("memory-root-main/MEMORY.md"), row(NOTE))

    assert [each.path for each in hits(place, *both)] == ["MEMORY.md", "memory/2026-02-10.md"]
    assert [each.path for each in hits(place, *both, private=False)] == ["memory/2026-02-10.md"]
    assert [each.path for each in hits(place, *both, path="MEMORY.md")] == ["MEMORY.md"]
    assert hits(place, *both, source="sessions") == []
    assert hits(place, *both, min_score=0.6) == []
    assert [each.score for each in hits(place, row(NOTE, score=-0.1), row(NOTE, score=0))] == [0.0]


def test_days_are_obeyed(place: Place) -> None:
    settings = place.agent()
    home = QmdHome(settings)
    reader = answers.Reader(Collections(settings, home), home.index_path, max_chars=9)
    found = read(json.dumps([row(NOTE)]))
    request, day = SearchRequest(query="q", explain=True), date(2026, 2, 10)

    (hit,) = reader.hits(found, request, (day, day), "search")
    assert hit.explanation == {"qmd": "search", "file": f"qmd://{NOTE}", "docid": "abc123"}
    assert list(reader.hits(found, replace(request), (date(2026, 2, 11), date.max), "search")) == []
