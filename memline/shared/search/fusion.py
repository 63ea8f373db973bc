"""Make one ranking of what the retrievers found, and reorder it as the settings say.

A candidate is a chunk that a retriever found. `weighted` adds the sum of the keyword retriever over the best
of this question, the cosine as it is, and late interaction over the best of this question where there are
token vectors. Beside vectors the words weigh the less, down to a half, the less of the question their best
hit holds, the name of a file, of which they know nothing, counts once more, and where a phrase is asked for
and no question, how a note begins counts an eighth more. `rrf` adds reciprocal ranks. What the question names
by file name or title is lifted, and what is exact (`KeywordHit.has_alone`) comes first. The score that is
shown rises strictly with what orders:

    x      = fused * decay * how much the best keyword hit has of the question (1 for vectors)
    score  = 0.9 y / (y + 1), y = sqrt(2x)             where a word of the question is lacking
             0.9 + 0.1 z / (z + 0.4), z = x^3 + x / 10  where everything is held

Two options reorder the result: older dated notes decay, and near-duplicates make room.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date
from heapq import nlargest
from itertools import count

from memline.shared.config.schema import Hybrid
from memline.shared.search.ranking import KeywordHit, put_above
from memline.shared.search.retrievers import MOST, NAME, PATH, STEM, TITLE
from memline.shared.sources.dates import day_of_path, day_of_time
from memline.shared.sources.tokens import DENSE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Decimals of a score and of a cosine: beyond them are differences between one way of computing and another.
DECIMALS = 6

#: Decimals of what orders.
FINE = 9

#: The least score of what holds everything that was asked; what lacks a word is below it.
HOLDS_ALL = 0.9

#: What the cosine of a chunk and its late interaction each weigh, of the weight of vectors. With 1 notes lost
#: .005 of nDCG, with 0.7 conversations .002 and descriptions .003.
LATE_WEIGHT = 0.85

#: What the name of a file adds beside vectors, times what it is of the best sum. Descriptions found their
#: page first in .770 of cases (documentation) and .957 (help), .747 and .928 with 0, .757 and .957 with 0.2.
NAME_BESIDE = 0.3

#: What the first chunk of a note counts beside vectors where a phrase is asked for and no question: what a
#: note is about stands at its beginning. Of 300 descriptions .797 found their page first and .970 in three,
#: .760 and .953 with 1; help and abstracts lost nothing. 263 questions taken for phrases lost .008 of nDCG.
BEGINNING = 1.12

#: The usual constant of reciprocal rank fusion.
RRF_K = 60

#: Candidates MMR chooses from; fixed, so that the first hits are the same however many are asked for.
MMR_POOL = 100

#: How far a file that the question names is lifted towards 1, by how surely it is named.
LIFT = {PATH: 0.6, NAME: 0.6, TITLE: 0.3, STEM: 0.3}

#: What is added when the question is that name (`retrievers.by_name` says when), or that title is most of it.
WHOLE_LIFT = {PATH: 1.0, NAME: 1.0, TITLE: 1.0, STEM: 0.3}
MOST_LIFT = 0.3

_TIER_WORDS = {0: "", STEM: "stem", TITLE: "title", MOST: "most", NAME: "name", PATH: "path"}


class Candidate:
    """A chunk on its way to becoming a hit; the steps of a search fill it in."""

    def __init__(self, **fields: Any) -> None:
        """Set some of the fields; the others are read from the class."""
        self.__dict__.update(fields)

    chunk_id: int = 0
    #: The sum of the keyword retriever; None when it did not find the chunk.
    sum: float | None = None
    #: That over the best sum of the question, 0 … 1.
    keyword: float = 0.0
    #: Share of the question that it holds, 0 … 1.
    coverage: float = 0.0
    #: Whether it holds everything that was asked.
    is_full: bool = False
    #: 1 is the best; 0 when the retriever did not find the chunk.
    keyword_rank: int = 0
    #: Cosine, also of chunks that only the keyword retriever found; None without a vector.
    cosine: float | None = None
    vector_rank: int = 0
    #: Late interaction with the question (`shared.search.late`), 0 … 1; None when it was not computed.
    late: float | None = None
    #: PATH, NAME, MOST, TITLE or STEM when the question names the file; 0 otherwise.
    named: int = 0
    #: Whether it counts more as the beginning of its note.
    is_beginning: bool = False
    #: Path and line of the list that describes its note and stands behind it for that.
    described: str = ""
    path: str = ""
    source: str = ""
    start_line: int = 0
    end_line: int = 0
    mtime_ns: int = 0
    #: ISO day of the note's front matter; empty when it has none.
    day: str = ""
    heading: str = ""
    #: SHA-256 of its text.
    text_hash: bytes = b""
    #: The scores of all retrievers together, which order the candidates.
    fused: float = 0.0
    #: What a score of this question means at most.
    scale: float = 1.0
    #: Share of it that age leaves.
    decay: float = 1.0
    #: Its score in MMR; None when MMR did not choose it.
    mmr: float | None = None

    @property
    def score(self) -> float:
        """Return the score that the hit is shown with."""
        x = self.fused * self.decay * self.scale
        if self.is_full:
            # Steep where most sums are, 0.3 to 1.3, so that six decimals tell more of them apart: of 838
            # pages asked by title and description 1.2 % of lists have equal scores, 2.1 % with tanh(x).
            steep = x**3 + x / 10
            return round(HOLDS_ALL + (1 - HOLDS_ALL) * steep / (steep + 0.4), DECIMALS)
        # The root: common words alone give sums near zero, which six decimals would not tell apart.
        root = math.sqrt(2 * x)
        return round(HOLDS_ALL * root / (root + 1), DECIMALS)

    @property
    def relevance(self) -> float:
        """Return what orders candidates, the higher the better."""
        return round(self.fused * self.decay, FINE)

    @property
    def order(self) -> tuple[float, str, int, int]:
        """Return the sort key: best first, ties by path and line."""
        return -self.relevance, self.path, self.start_line, self.chunk_id

    def explanation(self, **more: Any) -> dict[str, Any]:
        """Return what its score is made of, in the JSON contract of a hit; `more` stands with it."""
        return more | {
            "sum": self.sum,
            "coverage": self.coverage,
            "keyword": self.keyword,
            "keywordRank": self.keyword_rank,
            "cosine": self.cosine,
            "vectorRank": self.vector_rank,
            "late": self.late,
            "named": _TIER_WORDS[self.named],
            "beginning": self.is_beginning,
            "described": self.described,
            "fused": self.fused,
            "decay": self.decay,
            "mmr": self.mmr,
        }

    def stand_for(self, other: Candidate) -> None:
        """Take the place of a candidate that says the same, if that is the better one."""
        if other.order < self.order:
            self.fused, self.is_full, self.decay = other.fused, other.is_full, other.decay


class Found:
    """What the retrievers found for a question, by chunk id.

    Candidates are made of the best alone: to make one takes ten times as long as to score it.
    """

    def __init__(
        self,
        keyword: Sequence[KeywordHit],
        vector: Sequence[tuple[int, float]],
        named: Sequence[tuple[int, int, bool]],
    ) -> None:
        """Take the hits of all retrievers.

        The others give (chunk id, cosine), and (chunk id, how named, whether the question is that name).
        """
        #: What is added to the scores of chunks for their files.
        self.lifted: Mapping[int, float] = {}
        best = max((hit.strength for hit in keyword), default=0.0) or 1.0
        self.hits = {hit.chunk_id: hit for hit in keyword}
        #: The sum of each over the best of the question, 0 … 1.
        self.shares = {hit.chunk_id: hit.strength / best for hit in keyword}
        #: What the name of its file is of that.
        self.names = {hit.chunk_id: min(hit.name / best, 1.0) for hit in keyword}
        #: 1 is the best.
        self.keyword_ranks = dict(zip(self.hits, count(1), strict=False))
        self.vector_ranks = {chunk_id: rank for rank, (chunk_id, _) in enumerate(vector, 1)}
        self.cosines = {chunk_id: round(cosine, DECIMALS) for chunk_id, cosine in vector}
        #: PATH, NAME, MOST, TITLE or STEM, and whether the question is that name.
        self.named = {chunk_id: (tier, is_whole) for chunk_id, tier, is_whole in named}
        #: Late interaction, and what it is over the best of the question; both 0 … 1.
        self.late: dict[int, tuple[float, float]] = {}
        self.ids = tuple(self.hits | self.cosines | self.named)
        #: The first chunks of notes, where these count more: BEGINNING.
        self.beginnings: Collection[int] = ()
        #: What orders them, and what a score of this question means at most: `fuse`.
        self.fused: dict[int, float] = {}
        self.scale = 1.0

    def lift(self, lifted: Mapping[int, float]) -> None:
        """Take what is added to the scores of chunks; they are found by it."""
        self.lifted = lifted
        self.ids = tuple(dict.fromkeys((*self.ids, *lifted)))

    def at_least(self, min_score: float) -> list[int]:
        """Return what a cosine of `min_score` speaks for, or a word, name or day, whatever the cosine."""
        sure, cosines = {*self.hits, *self.named, *self.lifted}, self.cosines
        return [
            chunk_id for chunk_id in self.ids if chunk_id in sure or cosines.get(chunk_id, 0.0) >= min_score
        ]

    def top_k(self, chunk_ids: list[int], k: int) -> list[int]:
        """Return the best `k` of `chunk_ids`, and what ties with the last of them."""
        if len(chunk_ids) <= k:
            return chunk_ids
        lowest = sorted((self.fused[chunk_id] for chunk_id in chunk_ids), reverse=True)[k - 1]
        return [chunk_id for chunk_id in chunk_ids if self.fused[chunk_id] >= lowest]

    def candidates(self, chunk_ids: Iterable[int]) -> list[Candidate]:
        """Make candidates of some chunks, with what orders them."""
        made = []
        for chunk_id in chunk_ids:
            candidate = Candidate(chunk_id=chunk_id, fused=self.fused[chunk_id], scale=self.scale)
            if hit := self.hits.get(chunk_id):
                candidate.sum, candidate.keyword = hit.strength, round(self.shares[chunk_id], FINE)
                candidate.keyword_rank = self.keyword_ranks[chunk_id]
                is_whole = hit.is_full and not hit.described
                candidate.coverage = 1.0 if is_whole else round(hit.coverage, DECIMALS)
                candidate.is_full = hit.is_full
                candidate.described = hit.described.place if hit.described else ""
            candidate.cosine = self.cosines.get(chunk_id)
            candidate.vector_rank = self.vector_ranks.get(chunk_id, 0)
            candidate.late, _ = self.late.get(chunk_id, (None, 0.0))
            candidate.named, _ = self.named.get(chunk_id, (0, False))
            candidate.is_beginning = chunk_id in self.beginnings
            made.append(candidate)
        return made

    def fuse(self, settings: Hybrid, *, keyword: bool, vector: bool, quality: float = 1.0) -> None:
        """Set what orders the candidates, given which retrievers were asked: one that was not has no weight.

        0 … 1, beside vectors up to 1 + NAME_BESIDE; more for what was lifted. `quality`: that of the keyword
        hits.
        """
        text_weight = settings.text_weight if keyword else 0.0
        vector_weight = settings.vector_weight if vector else 0.0
        if text_weight + vector_weight <= 0:
            text_weight, vector_weight = float(keyword), float(vector)
        whole_weight = (text_weight + vector_weight) or 1.0
        is_rrf = settings.fusion == "rrf"
        self.scale = (text_weight * quality + vector_weight) / whole_weight
        shares, cosines, late, named = self.shares, self.cosines, self.late, self.named
        if not (is_rrf or cosines or late or named or self.lifted):
            factor = text_weight / whole_weight
            self.fused = {chunk_id: round(factor * shares[chunk_id], FINE) for chunk_id in self.ids}
            return
        if cosines and not is_rrf:
            # Words that stand nowhere together say less of what is meant. Conversations won .002 of recall
            # and .005 of nDCG, abstracts .004; down to nothing they won more, and notes lost .003 of both.
            text_weight *= (1.0 + max((hit.coverage for hit in self.hits.values()), default=1.0)) / 2
        whole = whole_weight + (2 * LATE_WEIGHT - 1) * vector_weight if late else whole_weight
        by_vector = {} if is_rrf else self._by_vector(vector_weight)
        scores = {}
        for chunk_id in self.ids:
            if is_rrf:
                rank = self.keyword_ranks.get(chunk_id, 0)
                # As below, words stand in for a vector that is still to come.
                other = self.vector_ranks.get(chunk_id, 0) if chunk_id in cosines else rank
                fused = text_weight * _reciprocal(rank) + vector_weight * _reciprocal(other)
            else:
                fused = text_weight * shares.get(chunk_id, 0.0) + by_vector.get(chunk_id, 0.0)
                if cosines:
                    fused += NAME_BESIDE * whole * self.names.get(chunk_id, 0.0)
                if chunk_id in self.beginnings:
                    fused *= BEGINNING
            fused /= whole
            if chunk_id in named:
                tier, is_whole = named[chunk_id]
                if is_whole:
                    fused += WHOLE_LIFT[tier]
                else:
                    fused += MOST_LIFT if tier == MOST else LIFT[tier] * max(1.0 - fused, 0.0)
            scores[chunk_id] = fused
        self._put_exact_first(scores)
        for chunk_id, hit in self.hits.items():
            if hit.described:
                put_above(scores, [chunk_id], [hit.described.list_id])
        self.fused = {
            chunk_id: round(fused + self.lifted.get(chunk_id, 0.0), FINE)
            for chunk_id, fused in scores.items()
        }

    def _by_vector(self, weight: float) -> dict[int, float]:
        """Return what vectors say of each chunk, times their weight.

        Of a chunk whose vector is still to come they are taken to say what they say of the nearest, times the
        share of its own words. Where half of the notes wait, six hits have .95 of the evidence, and .78 with
        nothing in the place of a vector.
        """
        found: dict[int, float] = {}
        for chunk_id, cosine in self.cosines.items():
            said = weight * max(cosine, 0.0)
            if chunk_id in self.late:
                said = LATE_WEIGHT * (said + weight * self.late[chunk_id][1])
            found[chunk_id] = said
        most = max(found.values(), default=0.0)
        return {each: most * share for each, share in self.shares.items() if each not in found} | found

    def _put_exact_first(self, scores: dict[int, float]) -> None:
        """Put what is exact before what is nearer by its vector, or belongs to a page that is named."""
        # A page that the question is the name of comes before a line that mentions it, and a file that is
        # named as such before an id that is that name.
        called = {each for each, (_, is_whole) in self.named.items() if is_whole}
        files = {each for each, (tier, _) in self.named.items() if tier >= NAME}
        lines = [chunk_id for chunk_id, hit in self.hits.items() if hit.is_line]
        alone = {chunk_id for chunk_id, hit in self.hits.items() if hit.has_alone}
        with_id = {chunk_id for chunk_id, hit in self.hits.items() if hit.has_id}
        # Of lines the best: a page may repeat one in many chunks.
        line = set(nlargest(1, lines, key=scores.__getitem__))
        for first, others in ((line, called), (alone, files), (with_id, files)):
            if first:
                put_above(scores, first, scores.keys() - first - others)


def apply_decay(candidates: Collection[Candidate], now: float, half_life_days: float) -> None:
    """Set the share of its sum that each candidate keeps for its age.

    Only what has a day decays: a note with one in its front matter or its name, a transcript by its time.
    `MEMORY.md` and notes without a date are about what holds.
    """
    today = day_of_time(now)
    for candidate in candidates:
        day = date.fromisoformat(candidate.day) if candidate.day else day_of_path(candidate.path)
        if day is None and candidate.source == "sessions":
            day = day_of_time(candidate.mtime_ns / 1e9)
        if day is not None:
            age_days = max(0, (today - day).days)
            candidate.decay = round(0.5 ** (age_days / half_life_days), DECIMALS)
    # What age puts behind a hit that lacks a word has a score below that hit's, so not one of `HOLDS_ALL`.
    lacking = max((each.relevance for each in candidates if not each.is_full), default=-1.0)
    for each in candidates:
        each.is_full = each.is_full and each.relevance > lacking


def diversify(
    ranked: Sequence[Candidate], texts: Mapping[int, str], weight: float, wanted: int
) -> list[Candidate]:
    """Choose by maximal marginal relevance: at each place the chunk with a high score and new words.

    `ranked` is sorted; `texts` holds at least its first MMR_POOL. `weight` 1 is score only, 0 novelty only.
    Each choice depends on the ones before it alone, so fewer hits are a prefix of more.
    """
    pool = list(ranked[:MMR_POOL])
    if not pool:
        return []
    scores = {each.chunk_id: each.fused * each.decay for each in pool}
    lowest, span = min(scores.values()), max(scores.values()) - min(scores.values())
    token = re.compile(f"[{DENSE}]|[^\\W{DENSE}]+")
    words = {each.chunk_id: set(token.findall(texts[each.chunk_id].lower())) for each in pool}
    nearest = dict.fromkeys(words, 0.0)
    chosen: list[Candidate] = []
    while pool and len(chosen) < wanted:
        values = [
            weight * ((scores[candidate.chunk_id] - lowest) / span if span else 1.0)
            - (1 - weight) * nearest[candidate.chunk_id]
            for candidate in pool
        ]
        # The first of the best: `ranked` breaks ties.
        place = max(range(len(pool)), key=lambda i: (round(values[i], DECIMALS), -i))
        winner = pool.pop(place)
        winner.mmr = round(values[place], DECIMALS)
        chosen.append(winner)
        for candidate in pool:
            mine, others = words[winner.chunk_id], words[candidate.chunk_id]
            likeness = len(mine & others) / len(mine | others) if mine or others else 1.0
            nearest[candidate.chunk_id] = max(nearest[candidate.chunk_id], likeness)
    return chosen + [candidate for candidate in ranked if candidate.mmr is None][: wanted - len(chosen)]


def _reciprocal(rank: int) -> float:
    return (RRF_K + 1) / (RRF_K + rank) if rank else 0.0
