import json

import pytest

from benchmarks.questions import LabelledQuestion, Place, mean, read_questions, score
from memline.shared.search.results import Hit

A5 = Place(path="a.md", line=5)
B = Place(path="b.md", line=None)


def hit(path, start=1, end=9):
    return Hit(
        path=path,
        start_line=start,
        end_line=end,
        score=1.0,
        vector_score=0.0,
        text_score=1.0,
        snippet="",
        source="memory",
    )


MISS = hit("c.md")


@pytest.mark.parametrize(
    ("pieces", "hits", "recall", "gain"),
    [
        # Pieces count, and not hits.
        ([(A5,), (B,)], [hit("a.md"), hit("a.md", 4, 6), MISS, hit("b.md")], 1.0, 0.877),
        # Neither a line outside of the hit, nor another file whose name ends alike.
        ([(A5,)], [hit("a.md", 6, 9), hit("xa.md")], 0.0, 0.0),
        # A piece in two places is covered by either, once.
        ([(A5, B)], [hit("sub/b.md")], 1.0, 1.0),
        ([(A5, B)], [hit("b.md"), hit("a.md")], 1.0, 1.0),
        # The gain falls with the rank.
        ([(A5,)], [MISS, hit("a.md")], 1.0, 0.631),
        ([(A5,)], [MISS] * 6 + [hit("a.md")], 0.0, 0.333),
    ],
)
def test_the_evidence_that_hits_cover(pieces, hits, recall, gain):
    question = LabelledQuestion(text="?", workspace="w", evidence=tuple(pieces))

    assert score(question, hits) == pytest.approx((recall, gain), abs=1e-3)


def test_means_are_shown_side_by_side():
    assert mean([(1.0, 0.5), (0.0, 1.0)]) == "0.500 / 0.750"


def test_questions_are_read_with_their_evidence_in_notes(tmp_path):
    places = [
        {"view": "memory", "path": "a.md", "line": 2},
        {"view": "sessions", "path": "s.jsonl", "line": 1},
    ]
    rows = [{"query": "?", "workspace": "w", "evidence": evidence} for evidence in ([places], [places[1:]])]
    file = tmp_path / "q.jsonl"
    file.write_text("\n\n".join(map(json.dumps, rows)), encoding="utf-8")

    (question,) = read_questions(file)

    assert question.evidence == ((Place(path="a.md", line=2),),)
