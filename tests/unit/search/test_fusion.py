from __future__ import annotations

import pytest

from shared.config.schema import Hybrid
from shared.search.fusion import Candidate, fuse, gather, is_noise
from shared.search.legs import NAME, PATH

BOTH = {"keyword": True, "vector": True, "is_name": False}


def test_the_best_keyword_hit_counts_one_however_small_its_bm25() -> None:
    found = gather([(1, -9.4e-07), (2, -4.7e-07)], [], [])

    assert [found[1].keyword, found[2].keyword] == [1.0, 0.5]


def test_a_bm25_of_zero_is_a_match_all_the_same() -> None:
    assert gather([(1, 0.0)], [], [])[1].keyword == 1.0


def test_weighted_adds_shares() -> None:
    candidate = Candidate(chunk_id=1, bm25=-2.0, keyword=0.6, cosine=0.4)

    assert fuse(candidate, Hybrid(), **BOTH) == 0.5
    assert fuse(candidate, Hybrid(vector_weight=0.75, text_weight=0.25), **BOTH) == 0.45


def test_a_leg_that_was_not_asked_has_no_weight() -> None:
    candidate = Candidate(chunk_id=1, bm25=-2.0, keyword=1.0)

    assert fuse(candidate, Hybrid(), keyword=True, vector=False, is_name=False) == 1.0


def test_rrf_gives_one_to_what_is_first_in_both_legs() -> None:
    rrf = Hybrid(fusion="rrf")
    first = Candidate(chunk_id=1, bm25=-2.0, keyword=1.0, keyword_rank=1, cosine=0.9, vector_rank=1)
    keyword_only = Candidate(chunk_id=2, bm25=-2.0, keyword=1.0, keyword_rank=1, cosine=0.1)

    assert fuse(first, rrf, **BOTH) == 1.0
    assert fuse(keyword_only, rrf, **BOTH) == 0.5


def test_a_named_file_is_lifted_and_comes_first_when_the_name_is_all_there_is() -> None:
    named = Candidate(chunk_id=1, named=NAME)

    assert fuse(named, Hybrid(), keyword=True, vector=False, is_name=False) == 0.6
    assert fuse(Candidate(chunk_id=1, named=PATH), Hybrid(), keyword=True, vector=False, is_name=True) == 1.0


@pytest.mark.parametrize(
    ("candidate", "noise"),
    [
        (Candidate(chunk_id=1, cosine=0.34), True),
        (Candidate(chunk_id=1, cosine=0.35), False),
        (Candidate(chunk_id=1, cosine=-0.2, bm25=-1e-6, keyword=0.0), False),
        (Candidate(chunk_id=1, cosine=0.0, named=NAME), False),
    ],
)
def test_only_weak_hits_of_the_vector_leg_alone_are_noise(candidate: Candidate, noise: bool) -> None:
    assert is_noise(candidate, 0.35) is noise


def test_ties_break_by_path_and_line() -> None:
    one = Candidate(chunk_id=9, path="a.md", start_line=1, fused=0.5)
    two = Candidate(chunk_id=3, path="a.md", start_line=8, fused=0.5)
    three = Candidate(chunk_id=1, path="b.md", start_line=1, fused=0.5)

    assert sorted([three, two, one], key=lambda candidate: candidate.order) == [one, two, three]
