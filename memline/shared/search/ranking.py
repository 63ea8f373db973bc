"""Order what words and vectors found, make hits of the best, and say why there are no more."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from msgspec import Struct, field

from memline.shared.config.schema import Query
from memline.shared.embedders.protocol import LateVector
from memline.shared.index import token_rows
from memline.shared.index.driver import json_ids
from memline.shared.search import fusion, vectors
from memline.shared.search.lifts import lifts_of
from memline.shared.search.matches import CHUNKS, Matches, Row
from memline.shared.search.passages import WINDOW, Passage, passages
from memline.shared.search.question import Question
from memline.shared.search.request import SearchRequest, filters_of
from memline.shared.search.results import Hit
from memline.shared.search.scorer import score
from memline.shared.search.snippets import MAX_CHARS, Evidence, matched, snippet
from memline.shared.search.terms import Words
from memline.shared.words import counted

#: Candidates by words, and by vectors, for each step of `candidateMultiplier`. How many hits are asked for
#: has no part in it, so that fewer are a prefix of more.
POOL_STEP = 25

#: Missing words that a notice names; the answer has all of them.
MOST_NAMED = 12

#: Why a search in a group may find nothing.
PRIVATE = "what is private, MEMORY.md and past conversations, was not searched"

# CROSS JOIN: the few that are given first.
_COPIES = (
    "SELECT mine.id, path FROM chunks AS mine CROSS JOIN chunks AS other"
    " ON other.text_hash = mine.text_hash AND other.file_id <> mine.file_id"
    " JOIN files ON files.id = other.file_id WHERE mine.id IN (SELECT value FROM json_each(?1))"
    " AND (?2 IS NULL OR other.file_id IN (SELECT value FROM json_each(?2)))"
)


class Ranking(Struct):
    """The state of one search; its steps fill it in."""

    matches: Matches
    request: SearchRequest
    question: Question
    settings: Query
    #: JSON array of the ids of the files to stay in; None for all.
    files: str | None
    #: hybrid, keyword or vector.
    mode: str = "keyword"
    #: Words of the question that nothing has, as typed.
    missing: tuple[str, ...] = ()
    #: What the words say; empty where vectors alone are asked.
    words: Words = field(default_factory=Words)
    #: What is added to chunks, and whether a note is of the days that are asked for.
    lifts: dict[int, float] = {}
    has_dated: bool = False
    #: Chunk -> cosine, late interaction, and what orders it.
    cosines: dict[int, float] = {}
    late: dict[int, float] = {}
    fused: dict[int, float] = {}
    #: Chunks that were read.
    rows: dict[int, Row] = {}
    #: Lists what each line of a chunk says of the question, with token vectors.
    line_evidence: Callable[[Row], Sequence[Evidence]] | None = None

    def ranked(self, backend: vectors.Comparison | None, now: float) -> list[int]:
        """Score and order the candidates, the best first."""
        hybrid, matches, by = self.settings.hybrid, self.matches, None
        pool = max(POOL_STEP * hybrid.candidate_multiplier, self.settings.max_results)
        words = score(matches, self.question, self.files, pool)
        self.lifts, self.has_dated = lifts_of(matches, self.question, words, self.files, pool)
        self.rows = words.rows
        if hybrid.enabled or backend is None:
            self.words = by = words
            # Of a run of CJK characters only where none of its pairs was found.
            found = {term.typed for term in self.question.terms if term not in words.missing}
            self.missing = tuple(
                dict.fromkeys(term.typed for term in words.missing if term.typed not in found)
            )
        if backend is not None:
            self.mode = "vector" if by is None else "hybrid"
            self._compare(backend, words, pool)
        cosines = None if backend is None else self.cosines
        self.fused = fusion.fuse(by, cosines, self.late, self.lifts, hybrid)
        sure = self.words.sums.keys() | self.lifts.keys()
        least = self.settings.min_score
        best = [each for each in self.fused if each in sure or self.cosines[each] >= least]
        if hybrid.temporal_decay.enabled:
            self.rows, days = matches.read(best), hybrid.temporal_decay.half_life_days
            self.fused |= {each: self.fused[each] * fusion.decay(self.rows[each], now, days) for each in best}
        return sorted(best, key=lambda each: (-self.fused[each], each))

    def _compare(self, backend: vectors.Comparison, words: Words, pool: int) -> None:
        """Set the cosines of the nearest chunks and of what the words found, and their late interaction."""
        connection, cosine_of = self.matches.connection, dict(backend.top(pool, self.files))
        nearest = vectors.chunks_of(connection, cosine_of, self.files).items()
        known = dict(sorted(nearest, key=lambda each: -cosine_of[each[1]])[:pool])
        others = {*words.sums, *self.lifts}.difference(known)
        known |= vectors.vectors_of(connection, backend.identity_id, others)
        cosine_of |= backend.cosines({*known.values()}.difference(cosine_of))
        self.cosines = {
            each: round(cosine_of[row_id], fusion.DECIMALS)
            for each, row_id in known.items()
            if row_id in cosine_of
        }
        vector = backend.query
        if not isinstance(vector, LateVector):
            return
        if not (tokens_of := token_rows.read(connection, known.values())):
            return
        # Here, because only local models have token vectors, and numpy costs 110 ms.
        from memline.shared.search import late

        fitted = token_rows.projection(connection, backend.identity_id)
        rarity = dict.fromkeys(self.question.light, 0.0) | words.rarity
        asked = late.question_tokens(self.question.text, vector.tokens, fitted, rarity)
        if asked is not None:
            packed = {each: tokens_of[row_id] for each, row_id in known.items() if row_id in tokens_of}
            scores = late.scores(asked, [*packed.items()], fitted)
            self.late = {chunk_id: round(each, fusion.DECIMALS) for chunk_id, each in scores.items()}
            self.line_evidence = lambda row: (
                late.line_evidence(asked, packed[row.id], fitted, row.text) if row.id in packed else []
            )

    def _in_order(self, best: Sequence[int]) -> Iterator[Row]:
        """Read chunks in their order, some at a time, each text once; ties by path and line."""
        texts, at, end = set[bytes](), 0, 0
        while at < len(best):
            end = at + WINDOW
            while end < len(best) and self.fused[best[end]] == self.fused[best[end - 1]]:
                end += 1
            some = best[at:end]
            self.rows |= self.matches.read(each for each in some if each not in self.rows)
            rows = [self.rows[each] for each in some]
            for row in sorted(rows, key=lambda row: (-self.fused[row.id], row.path, row.start, row.id)):
                if row.text_hash not in texts:
                    texts.add(row.text_hash)
                    yield row
            at = end

    def hits(self, best: Sequence[int], max_tokens: int) -> tuple[Hit, ...]:
        """Make hits of the best candidates, with the part of their text that answers."""
        asked = {term for term in self.question.terms if term.typed}
        is_missing = asked and asked.issubset(self.words.missing)
        if (
            is_missing
            and not self.lifts
            and max(self.cosines.values(), default=-1.0) < self.settings.min_score
        ):
            # Nothing but beginnings and corrected words: a near miss.
            best = best[:1]
        rows, mmr = self._in_order(best), self.settings.hybrid.mmr
        if mmr.enabled:
            pool = [*islice(rows, fusion.MMR_POOL)]
            rows = chain(fusion.diversify(pool, self.fused, mmr.lambda_), rows)
        chosen = passages(rows, wanted=self.settings.max_results, max_tokens=max_tokens)
        copies: dict[int, set[str]] = {}
        values = (json_ids(each.best.id for each in chosen), self.files)
        for chunk_id, path in self.matches.connection.execute(_COPIES, values):
            copies.setdefault(chunk_id, set()).add(path)
        quality = self._quality()
        return tuple(self._hit(each, sorted(copies.get(each.best.id, ())), quality) for each in chosen)

    def _hit(self, passage: Passage, copies: Sequence[str], quality: float) -> Hit:
        best, words = passage.best, self.words
        part = snippet(passage.lines, words.needles, self._by_meaning(passage))
        title, root = best.title, math.sqrt(2 * self.fused[best.id] * quality)
        has_title = not title or best.heading.partition(" > ")[0] == title
        shown = (passage.start + part.first, passage.start + part.last) if passage.is_of_file else (0, 0)
        return Hit(
            path=best.path,
            start_line=passage.start,
            end_line=passage.end,
            shown=shown,
            # It falls with the order, and is lower where less of the question was found.
            score=round(root / (root + 1), fusion.DECIMALS),
            vector_score=self.cosines.get(best.id, 0.0),
            text_score=round(words.coverage(best.id), fusion.DECIMALS),
            snippet=part.text,
            source=best.source,
            heading=best.heading if has_title else " > ".join(filter(None, (title, best.heading))),
            also_in=tuple(copies),
            matched=matched(part.text, words.needles),
            explanation=self._explanation(best.id) if self.request.explain else None,
        )

    def _explanation(self, chunk_id: int) -> dict[str, Any]:
        return {
            "terms": [each.term.label for each in self.words.lookups if each.weight(chunk_id)],
            "sum": round(self.words.sums.get(chunk_id, 0.0), fusion.DECIMALS),
            "cosine": self.cosines.get(chunk_id),
            "late": self.late.get(chunk_id),
            "rank": 1 + sum(other > self.fused[chunk_id] for other in self.fused.values()),
        }

    def _quality(self) -> float:
        """Return how much of the question was found, as a share."""
        best, hybrid = max(self.words.sums.values(), default=0.0), self.settings.hybrid
        quality = best / (best + self.words.mass)
        if self.cosines and self.mode == "hybrid":
            weights = hybrid.text_weight + hybrid.vector_weight or 1.0
            quality = (hybrid.text_weight * quality + hybrid.vector_weight) / weights
        return quality or 1.0

    def _by_meaning(self, passage: Passage) -> list[Evidence]:
        """Return what each line of a passage says of the question; empty without token vectors."""
        if self.line_evidence is None or sum(map(len, passage.lines)) <= MAX_CHARS:
            return []
        lines: list[Evidence] = [{} for _ in passage.lines]
        # Where chunks overlap, the line of the best counts.
        for row in reversed(passage.chunks):
            for at, said in enumerate(self.line_evidence(row), row.start - passage.start):
                if 0 <= at < len(lines):
                    lines[at] = said
        return lines

    def notice(self, hits: Sequence[Hit]) -> str:
        """Say why the list is as it is: words and days that no note has, private notes that were not read."""
        days = ", ".join(dict.fromkeys(map(str, self.question.days)))
        said = [f"no note is of {days}"] if days and not self.has_dated else []
        if hits:
            missing, meant = self.missing, self.words.meant[:MOST_NAMED]
            named = ", ".join(missing[:MOST_NAMED]) + (" …" if len(missing) > MOST_NAMED else "")
            said += [f"nothing that was searched holds: {named}"] if missing else []
            said += [f"searched instead: {', '.join(meant)}"] if meant else []
        else:
            said.append(self._reason_of_nothing())
            said += [] if self.request.private else [PRIVATE]
        return "; ".join(said)

    def _reason_of_nothing(self) -> str:
        if not self.matches.total(CHUNKS):
            return "the index has no notes"
        if self.files == "[]":
            filters = ", ".join(filters_of(self.request)).replace("_", "-")
            return f"no file is within the filters ({filters or 'source'})"
        if self.fused:
            hits, least = counted(len(self.fused), "hit"), self.settings.min_score
            weak = f"only {hits} by meaning, weaker than minScore {least:g}"
            return f"no term of the question was found, and {weak}"
        if not self.question.terms and self.mode == "keyword" and not self.question.days:
            return "the question has no word to look for"
        return "nothing in the notes matches"
