import json

import pytest

from benchmarks.questions import LabelledQuestion, Place, mean, read_questions, score
from memline.shared.search.results import Hit


def hit(path, start, end, snippet=""):
    return Hit(
        path=path,
        start_line=start,
        end_line=end,
        score=1.0,
        vector_score=0.0,
        text_score=1.0,
        snippet=snippet,
        source="memory",
    )


def asked(*pieces):
    return LabelledQuestion(id="q", text="?", workspace="w", category="", evidence=pieces)


A5 = Place(path="a.md", line=5, text="five")
B = Place(path="b.md", line=None)
MISS = hit("c.md", 1, 9)


def test_recall_counts_pieces_and_not_hits():
    question = asked((A5,), (B,))

    metrics = score(question, [hit("a.md", 1, 9), hit("a.md", 4, 6), MISS, hit("b.md", 1, 2)])

    assert (metrics["R@3"], metrics["R@6"], metrics["R@10"]) == (0.5, 1.0, 1.0)
    assert metrics["MRR@10"] == 1.0


def test_a_line_outside_the_hit_is_not_covered():
    metrics = score(asked((A5,)), [hit("a.md", 6, 9), hit("xa.md", 1, 9)])

    assert (metrics["R@10"], metrics["hit@6"], metrics["MRR@10"], metrics["nDCG@10"]) == (0, 0, 0, 0)


def test_a_piece_in_two_places_is_covered_by_either_and_counts_once():
    question = asked((A5, B))

    assert score(question, [hit("sub/b.md", 1, 1)])["R@3"] == 1.0
    assert score(question, [hit("b.md", 1, 1), hit("a.md", 1, 9)])["nDCG@10"] == 1.0


def test_ndcg_falls_with_the_rank():
    assert score(asked((A5,)), [MISS, hit("a.md", 1, 9)])["nDCG@10"] == pytest.approx(0.6309, abs=1e-4)


def test_snippets_are_measured_on_covered_evidence_alone():
    shown = score(asked((A5,), (Place(path="x.md", line=1, text="x"),)), [hit("a.md", 1, 9, "four\nfive")])
    hidden = score(asked((A5,)), [hit("a.md", 1, 9, "four")])
    unknown = score(asked((B,)), [hit("b.md", 1, 9)])

    assert (shown["snippet@6"], hidden["snippet@6"], unknown["snippet@6"]) == (1.0, 0.0, None)
    assert mean([shown, hidden, unknown])["snippet@6"] == 0.5
    assert mean([unknown])["snippet@6"] is None


def test_questions_are_read_with_the_evidence_of_one_view(tmp_path):
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "a.md").write_text("one\n  two\n", encoding="utf-8")
    places = [
        {"view": "memory", "path": "a.md", "line": 2},
        {"view": "sessions", "path": "s.jsonl", "line": 1},
    ]
    row = {"query_id": 1, "query": "?", "workspace": "w", "category": "c", "evidence": [places]}
    file = tmp_path / "q.jsonl"
    file.write_text(json.dumps(row) + "\n\n", encoding="utf-8")

    (question,) = read_questions(file, tmp_path, "memory")

    assert question.evidence == ((Place(path="a.md", line=2, text="two"),),)
    assert read_questions(file, tmp_path, "sessions")[0].evidence[0][0].path == "s.jsonl"
