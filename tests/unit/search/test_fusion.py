from datetime import UTC, datetime

from memline.shared.config.schema import Hybrid
from memline.shared.search.fusion import BEGINNING, HOLDS_ALL, Candidate, Found, apply_decay, diversify
from memline.shared.search.ranking import KeywordHit
from memline.shared.search.retrievers import NAME, PATH, STEM, TITLE

BOTH = {"keyword": True, "vector": True}


def keyword_hit(chunk_id: int, strength: float, *, coverage: float = 0.5, full: bool = False) -> KeywordHit:
    return KeywordHit(chunk_id=chunk_id, coverage=coverage, is_full=full, strength=strength)


def fused(found: Found, settings: Hybrid, **options: bool) -> tuple[float, float]:
    """What orders the chunk with the id 1, and what is shown."""
    found.fuse(settings, **{**BOTH, **options})
    [candidate] = found.candidates([1])
    return candidate.fused, candidate.score


def test_keyword_shares_are_relative_to_the_best_and_coverage_is_not() -> None:
    found = Found([keyword_hit(1, 4.0), keyword_hit(2, 2.0, coverage=0.25)], [], [])

    found.fuse(Hybrid(), keyword=True, vector=False)
    first, second = found.candidates([1, 2])

    assert [first.keyword, second.keyword] == [1.0, 0.5]
    assert [first.coverage, second.coverage] == [0.5, 0.25]
    assert [first.keyword_rank, second.keyword_rank] == [1, 2]


def test_what_holds_everything_scores_nine_tenths_or_more_and_the_rest_less() -> None:
    full = Found([keyword_hit(1, 4.0, coverage=1.0, full=True)], [], [])
    nearly = Found([keyword_hit(1, 4.0, coverage=1.0)], [], [])

    assert fused(full, Hybrid(), vector=False) == (1.0, round(HOLDS_ALL + 0.1 * 1.1 / 1.5, 6))
    assert fused(nearly, Hybrid(), vector=False) == (1.0, 0.527208)


def test_a_score_rises_strictly_with_what_orders_and_with_nothing_else() -> None:
    for is_full in (False, True):
        sums = [0.001 * step for step in range(1, 1400)]
        scores = [Candidate(fused=each, is_full=is_full, scale=0.4).score for each in sums]
        assert scores == sorted(set(scores))
        assert all((HOLDS_ALL <= score < 0.9995) if is_full else (0 < score < HOLDS_ALL) for score in scores)
    far = Candidate(fused=0.5, path="z.md", start_line=900, chunk_id=7, keyword_rank=40)
    assert far.score == Candidate(fused=0.5).score
    assert Candidate(fused=0.8, decay=0.5).score == Candidate(fused=0.4).score


def test_weighted_adds_shares_and_words_weigh_by_how_much_of_the_question_the_best_holds() -> None:
    def of(coverage: float) -> Found:
        return Found(
            [keyword_hit(2, 5.0, coverage=coverage), keyword_hit(1, 3.0, coverage=0)], [(1, 0.4)], []
        )

    assert fused(of(1.0), Hybrid())[0] == 0.5
    assert fused(of(1.0), Hybrid(vector_weight=0.75, text_weight=0.25))[0] == 0.45
    assert fused(of(0.5), Hybrid())[0] == 0.5 * 0.75 * 0.6 + 0.2
    assert fused(of(0.0), Hybrid())[0] == 0.5 * 0.5 * 0.6 + 0.2


def test_the_name_of_a_file_counts_once_more_beside_vectors() -> None:
    named = KeywordHit(chunk_id=1, coverage=1.0, is_full=False, strength=2.0, name=1.0)

    assert fused(Found([named], [(1, 0.4)], []), Hybrid())[0] == 0.5 + 0.2 + 0.3 * 0.5
    assert fused(Found([named], [], []), Hybrid(), vector=False)[0] == 1.0


def test_how_a_note_begins_counts_more_beside_vectors() -> None:
    def of(*vector: tuple[int, float]) -> Found:
        found = Found([keyword_hit(1, 2.0, coverage=1.0)], vector, [])
        found.beginnings = {1}
        return found

    assert fused(of((1, 0.4)), Hybrid())[0] == round((0.5 + 0.2) * BEGINNING, 9)
    assert fused(of((1, 0.4)), Hybrid(fusion="rrf"))[0] == 1.0
    assert fused(of(), Hybrid(), vector=False)[0] == 1.0


def test_an_id_comes_before_a_rare_word_whatever_is_nearer() -> None:
    with_id = KeywordHit(1, 0.5, False, 1.0, has_id=True, has_alone=True)
    with_word = KeywordHit(2, 0.5, False, 0.95, has_alone=True)
    found = Found([with_id, with_word, keyword_hit(3, 1.0)], [(2, 0.9), (3, 0.8), (1, 0.2)], [])

    found.fuse(Hybrid(), **BOTH)
    scores = found.fused

    assert sorted(scores, key=scores.__getitem__, reverse=True) == [1, 2, 3]


def test_to_be_named_lowers_no_file() -> None:
    hits = [KeywordHit(n, 1.0, True, 1.0 - n / 100, name=0.6) for n in (1, 2)]
    vectors = [(1, 0.85), (2, 0.85)]

    found = Found(hits, vectors, [(1, NAME, False)])
    found.fuse(Hybrid(), **BOTH)

    assert found.fused[1] > found.fused[2]


def test_rrf_gives_one_to_the_first_hit_of_both_retrievers() -> None:
    rrf = Hybrid(fusion="rrf")

    assert fused(Found([keyword_hit(1, 2.0)], [(1, 0.9), (2, 0.1)], []), rrf)[0] == 1.0
    far = Found([keyword_hit(1, 2.0)], [(2, 0.1)], [])
    far.cosines[1] = 0.05
    assert fused(far, rrf)[0] == 0.5


def test_where_a_vector_is_still_to_come_words_stand_in_for_it() -> None:
    hits = [keyword_hit(1, 4.0, coverage=1.0), keyword_hit(2, 3.0), keyword_hit(3, 2.0)]

    assert fused(Found(hits, [(4, 0.9), (3, 0.6), (2, 0.4)], []), Hybrid())[0] == 0.5 + 0.45
    half = [keyword_hit(2, 4.0, coverage=1.0), keyword_hit(1, 2.0)]
    assert fused(Found(half, [(2, 0.6)], []), Hybrid())[0] == (0.5 + 0.3) / 2
    # With token vectors, too.
    found = Found(half, [(2, 0.6)], [])
    found.late[2] = 0.8, 1.0
    assert fused(found, Hybrid())[0] == round(0.5 * (0.5 + 0.85 * 0.8) / 1.35, 9)
    # By ranks the place that it has by words counts twice.
    assert fused(Found(half, [(2, 0.6)], []), Hybrid(fusion="rrf"))[0] == round(61 / 62, 9)


def test_a_named_file_is_lifted_and_more_when_the_question_is_only_its_name() -> None:
    assert fused(Found([], [], [(1, NAME, False)]), Hybrid(), vector=False)[0] == 0.6
    assert fused(Found([], [], [(1, PATH, True)]), Hybrid(), vector=False)[0] == 1.0
    hits = [keyword_hit(1, 3.0), keyword_hit(2, 4.0)]
    assert fused(Found(hits, [], [(1, STEM, True)]), Hybrid(), vector=False)[0] == 1.05
    assert fused(Found(hits, [], [(1, TITLE, True)]), Hybrid(), vector=False)[0] == 1.75
    assert fused(Found(hits, [], [(1, TITLE, False)]), Hybrid(), vector=False)[0] == 0.825


def test_the_best_come_with_what_ties_with_the_last_of_them() -> None:
    hits = [keyword_hit(1, 8.0), keyword_hit(2, 7.0), keyword_hit(3, 6.0), keyword_hit(4, 6.0)]
    found = Found([*hits, keyword_hit(5, 1.0)], [], [])
    found.fuse(Hybrid(), keyword=True, vector=False)

    assert found.top_k([1, 2, 3, 4, 5], 1) == [1]
    assert found.top_k([1, 2, 3, 4, 5], 3) == [1, 2, 3, 4]


def test_only_weak_hits_of_the_vector_retriever_alone_are_cut() -> None:
    found = Found([keyword_hit(3, 1e-6)], [(2, 0.35), (1, 0.34), (4, 0.0), (3, -0.2)], [(4, NAME, False)])

    assert sorted(found.at_least(0.35)) == [2, 3, 4]


def test_ties_break_by_path_and_line() -> None:
    one = Candidate(chunk_id=9, path="a.md", start_line=1, fused=0.5)
    two = Candidate(chunk_id=3, path="a.md", start_line=8, fused=0.5)
    three = Candidate(chunk_id=1, path="b.md", start_line=1, fused=0.5)

    assert sorted([three, two, one], key=lambda candidate: candidate.order) == [one, two, three]


NOW = datetime(2026, 3, 12, 15, tzinfo=UTC).timestamp()


def decayed(path: str, *, source: str = "memory", mtime: float = 0.0) -> float:
    candidate = Candidate(chunk_id=1, path=path, source=source, mtime_ns=int(mtime * 1e9), fused=1.0)
    apply_decay([candidate], NOW, 30)
    return candidate.relevance


def test_a_dated_note_loses_half_in_a_half_life() -> None:
    assert decayed("memory/2026-03-12.md") == 1.0
    assert decayed("memory/2026-02-10.md") == 0.5
    assert decayed("memory/2026-01-11-rollout.md") == 0.25


def test_a_note_of_tomorrow_counts_as_one_of_today() -> None:
    assert decayed("memory/2026-03-13.md") == 1.0


def test_a_note_without_a_day_never_decays() -> None:
    assert decayed("MEMORY.md") == 1.0
    assert decayed("memory/deploy.md") == 1.0


def test_scores_fall_down_a_list_in_which_age_counts() -> None:
    dated = Candidate(chunk_id=1, path="memory/2025-03-12.md", fused=1.0, is_full=True)
    lasting = Candidate(chunk_id=2, path="MEMORY.md", fused=0.4)
    recent = Candidate(chunk_id=3, path="memory/2026-03-12.md", fused=0.9, is_full=True)

    apply_decay([dated, lasting, recent], NOW, 30)
    order = sorted([dated, lasting, recent], key=lambda candidate: candidate.order)

    assert order == [recent, lasting, dated]
    assert recent.score > HOLDS_ALL > lasting.score > dated.score


def test_transcripts_decay_by_the_time_of_their_file() -> None:
    assert decayed("sessions/a.jsonl", source="sessions", mtime=NOW - 30 * 86_400) == 0.5


def ranked(*scores: float) -> list[Candidate]:
    return [Candidate(chunk_id=n, path=f"{n}.md", fused=score) for n, score in enumerate(scores)]


TEXTS = {
    0: "redis timeout five seconds",
    1: "redis timeout five seconds",
    2: "bread recipe with rye flour",
    3: "redis timeout six",
}


def test_a_near_duplicate_makes_room_for_something_new() -> None:
    order = diversify(ranked(0.9, 0.89, 0.6, 0.5), TEXTS, 0.5, 4)

    assert [one.chunk_id for one in order] == [0, 2, 1, 3]


def test_with_all_weight_on_relevance_the_order_stays() -> None:
    order = diversify(ranked(0.9, 0.89, 0.6, 0.5), TEXTS, 1.0, 4)

    assert [one.chunk_id for one in order] == [0, 1, 2, 3]


def test_fewer_are_a_prefix_of_more() -> None:
    more = [one.chunk_id for one in diversify(ranked(0.9, 0.89, 0.6, 0.5), TEXTS, 0.7, 4)]

    for wanted in range(5):
        fewer = diversify(ranked(0.9, 0.89, 0.6, 0.5), TEXTS, 0.7, wanted)
        assert [one.chunk_id for one in fewer] == more[:wanted]


def test_what_one_file_alone_has_stays_before_what_is_nearer_or_named() -> None:
    rare = KeywordHit(chunk_id=1, coverage=0.5, is_full=False, strength=1.0, has_alone=True)
    found = Found([rare, keyword_hit(2, 0.9)], [(3, 0.9), (2, 0.8), (1, 0.1)], [(4, TITLE, True)])

    found.fuse(Hybrid(), **BOTH)
    scores = found.fused

    assert max(scores, key=scores.__getitem__) == 1
    assert scores[4] > scores[2]


def test_a_tag_stays_before_what_one_file_alone_has() -> None:
    rare = KeywordHit(chunk_id=1, coverage=0.5, is_full=False, strength=1.0, has_alone=True)
    found = Found([rare], [(2, 0.9)], [])
    found.lift({2: 3.0})

    found.fuse(Hybrid(), **BOTH)
    scores = found.fused

    assert scores[2] > scores[1]
