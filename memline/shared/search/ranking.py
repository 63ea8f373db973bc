"""Put chunks that hold words of a question in order: by their sums, what stands together, and six rules.

What each part is worth stands in docs/search.md; `keyword.py` has the sum.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from memline.shared.search.forms import HALVES, Lookup, near
from memline.shared.search.link_lists import Described, described_in
from memline.shared.search.postings import strongest
from memline.shared.search.query import Term
from memline.shared.values import field, value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import Connection

#: What words that stand together add, and a term at the beginning; and for how many of the best chunks: 40
#: measured the same.
NEAR, EARLY, NEAR_CHUNKS = 0.3, 0.1, 20

#: Part of the score of the best name from which on a page may stand before what holds everything. With 0.8 of
#: 1,122 descriptions of pages eight more have another first, with 0.4 questions of a person find less.
NEARLY_BEST = 0.6

#: Terms of a question of which such a name has to hold this share of the idf, where something holds them all.
#: Of questions of three words of one section 11 in 60 had a page of one of the words first. Descriptions lose
#: .004 with four terms, .014 with five.
SHORT, MOST = 4, 0.6

#: Chunks that hold everything above which that says less, as many as a list has: such a name then has to hold
#: that share. With 3 chunks one in a hundred of a person's questions found less.
FEW_FULL, MOST_OF_MANY = 6, 0.4

#: Part of its own sum by which a chunk is above those that it is lifted over, and that of what holds
#: everything. The more, the fewer scores are equal, and the less is found: of 838 pages asked by title and
#: description 2.2 % of lists have equal scores with 0.1, 1.6 % with 0.15 and 1.2 % with 0.22; with 0.25
#: abstracts lose .010 of recall at six.
ABOVE, FULL_ABOVE = 0.05, 0.22

#: The other words beside which a word that one file alone has comes first, and chunks that may hold it.
LOUD_WORDS, ALONE_CHUNKS = 2, 50

#: The best chunks in which a list may describe another note.
LISTS = 3

#: The idf from which on such a word is rare, whatever else a search goes by: in one chunk of 220, in ten of
#: 1,500.
RARE = 5.0

#: The terms that a chunk holds with weight 1, all that it holds, and those that the name of its file holds.
Held = tuple[int, int, int]


class KeywordHit:
    """A chunk with a term of the question, in it or in its file's name: made in 0.11 µs, a value in 0.77."""

    def __init__(
        self,
        chunk_id: int,
        coverage: float,
        is_full: bool,
        strength: float,
        has_id: bool = False,
        has_alone: bool = False,
        is_line: bool = False,
        name: float = 0.0,
        described: Described | None = None,
    ) -> None:
        self.chunk_id = chunk_id
        #: Share of the idf mass of the question that the chunk holds, by weight.
        self.coverage = coverage
        #: Whether it holds every term itself.
        self.is_full = is_full
        #: The sum.
        self.strength = strength
        #: Whether it holds an id that one file alone has; and whether that or a rare word.
        self.has_id, self.has_alone = has_id, has_alone
        #: Whether it holds the whole question, word for word.
        self.is_line = is_line
        #: What the name of its file adds to the sum.
        self.name = name
        #: What describes its note, where it stands before that for it.
        self.described = described


@value
class KeywordHits:
    """The hits of the keyword retriever, best first, and what it searched."""

    hits: Sequence[KeywordHit] = ()
    #: The best sum as a share of what it and all idf of the question are together, 0 … 1.
    quality: float = 0.0
    #: MATCH expression of all terms and forms; empty when none was found.
    match: str = ""
    #: The terms in it, without repetition.
    terms: tuple[Term, ...] = ()
    #: The words, as typed, of which no form stands in what was searched.
    missing: tuple[str, ...] = ()
    #: What some of them were taken for: words that were typed wrong.
    meant: tuple[str, ...] = ()
    #: idf of the plain words of the question, by label; and of all that was asked and stands somewhere.
    rarity: Mapping[str, float] = field(default_factory=dict)
    found_idf: float = 0.0


@value(frozen=False)
class Evidence:
    """What the terms of a question say of chunks, and of the names of files."""

    #: The terms that are searched, the rarest first.
    lookups: Sequence[Lookup] = ()
    #: The idf of all that was asked.
    mass: float = 1.0
    #: Of each chunk that was found: the sum of the terms; and for each term the weights of those with it.
    sums: dict[int, float] = field(default_factory=dict)
    held: list[dict[int, float]] = field(default_factory=list)
    #: By file: what the terms say of its name, and which it holds.
    names: dict[int, float] = field(default_factory=dict)
    in_names: dict[int, int] = field(default_factory=dict)
    #: The files whose names hold one as typed.
    named: set[int] = field(default_factory=set)
    #: The chunks that hold the whole question, word for word.
    lines: set[int] = field(default_factory=set)
    #: By chunk, how much of the question stands together there, and how early: `forms.near`.
    near: dict[int, tuple[float, float]] = field(default_factory=dict)
    #: By chunk, the note that it describes as a list, once that was looked up.
    lists: dict[int, Described | None] = field(default_factory=dict)
    #: Chunks of notes that a list describes, and that have none among those that may be hits.
    described: set[int] = field(default_factory=set)


def ranked(
    connection: Connection,
    found: Evidence,
    pool: Collection[int],
    file_of: Mapping[int, int],
    *,
    is_all: bool,
    limit: int,
    files: str | None,
) -> list[KeywordHit]:
    """Make hits of the chunks of a pool, the best `limit`, best first.

    `is_all`: nothing but the terms of `found` was asked for.
    `files`: a JSON array of the ids of files to stay in, None for all.
    """
    lookups, mass = found.lookups, found.mass
    # What the terms say of the chunks and of the names of their files, in the order of ids.
    sums = {each: found.sums[each] + found.names.get(file_of[each], 0.0) for each in sorted(pool)}
    best = strongest(NEAR_CHUNKS, sums)
    found.near.update(near(connection, best, lookups, mass, found.near))
    for each in best:
        share, early = found.near[each]
        sums[each] *= 1 + NEAR * share + EARLY * early
    # Many chunks hold the same terms in the same ways.
    groups, covers = dict[Held, list[int]](), dict[Held, float]()
    held_by: dict[tuple[tuple[float | None, ...], int], Held] = {}
    ways = zip(*(map(holders.get, sums) for holders in found.held), strict=True)
    for each, way in zip(sums, ways, strict=True):
        name = found.in_names.get(file_of[each], 0)
        if (held := held_by.get((way, name))) is None:
            mask, parts, share = _cover(way, lookups, mass, name)
            held = held_by[way, name] = mask, parts, name
            covers[held] = share
        groups.setdefault(held, []).append(each)
    _lift(sums, groups)
    # A day in words is a hint: a note that says it otherwise holds everything all the same.
    asked = sum(1 << number for number, lookup in enumerate(lookups) if lookup.term.is_asked)
    words, ids = _alone(found, pool, file_of)
    few = [
        each
        for (mask, _, _), rows in groups.items()
        if not mask & (words | ids) and mask.bit_count() <= LOUD_WORDS
        for each in rows
    ]
    put_above(sums, (each for held, rows in groups.items() if held[0] & words for each in rows), few)
    with_id = {each for held, rows in groups.items() if held[0] & ids for each in rows}
    if with_id:
        put_above(sums, with_id, sums.keys() - with_id)
    # In a small memory one note alone has most words.
    rare = sum(1 << number for number, lookup in enumerate(lookups) if lookup.typed_idf >= RARE)
    rare &= words if asked.bit_count() <= 1 + LOUD_WORDS else 0
    with_alone = {each for held, rows in groups.items() if held[0] & (ids | rare) for each in rows}
    full = {
        each for (mask, _, _), rows in groups.items() if is_all and mask & asked == asked for each in rows
    }
    if full:
        # The page that is named nearly best may come before that; but not with a chunk that lacks a word
        # where another chunk of it holds everything.
        best_name = NEARLY_BEST * max((found.names[each] for each in found.named), default=0.0) or 1.0
        pages = {file_id for file_id in found.named if found.names[file_id] >= best_name}
        pages -= {file_of[each] for each in full}
        if asked.bit_count() <= SHORT:
            most = MOST if len(full) <= FEW_FULL else MOST_OF_MANY
            pages = {each for each in pages if _idf_of(found.in_names[each], lookups) >= most * mass}
        put_above(
            sums,
            full,
            (each for each in sums if each not in full and file_of[each] not in pages),
            FULL_ABOVE,
        )
    # By stems alone a line is none where others hold the words.
    lines = found.lines & (full or sums.keys())
    put_above(sums, lines, sums.keys() - lines - with_id)
    put_above(sums, with_id - lines, lines - with_id)
    covered = {each: covers[held] for held, rows in groups.items() for each in rows}
    # An id is asked for as such: it comes before what is said of it.
    no_ids = {each: share for each, share in covered.items() if each not in with_id}
    described = _put_described_first(connection, found, sums, file_of, no_ids, files)
    full |= {each for each, item in described.items() if item.list_id in full}
    return [
        KeywordHit(
            each,
            covered[each],
            each in full,
            sums[each],
            has_id=each in with_id,
            has_alone=each in with_alone,
            is_line=each in lines,
            name=found.names.get(file_of[each], 0.0),
            described=described.get(each),
        )
        for each in strongest(limit, sums)
    ]


def _put_described_first(
    connection: Connection,
    found: Evidence,
    sums: dict[int, float],
    file_of: Mapping[int, int],
    covered: Mapping[int, float],
    files: str | None,
) -> dict[int, Described]:
    """Put what a list describes before the list: of `covered`, which may be lists, the best.

    Returns what describes a chunk, by its id.
    """
    lists = {
        each: covered[each]
        for each in strongest(LISTS, sums)
        # A page with most of the question in its name is what is meant.
        if each in covered
        and _idf_of(found.in_names.get(file_of[each], 0), found.lookups) < MOST * covered[each] * found.mass
    }
    new = {each: share for each, share in lists.items() if each not in found.lists}
    found.lists |= dict.fromkeys(new)
    items = described_in(connection, new, found.lookups, found.mass, files) if new else ()
    found.lists |= {item.list_id: item for item in items}
    made: dict[int, Described] = {}
    found.described.clear()
    for item in filter(None, map(found.lists.get, lists)):
        chunks = [each for each in item.chunks if each in sums]
        if not chunks:
            found.described.update(each for each in item.chunks if each in found.sums)
            continue
        best = max(chunks, key=sums.__getitem__)
        name = found.in_names.get(file_of[best], 0)
        # A note that has nothing of it but its name is not described: the item says it all itself.
        has_more = any(best in held and not name >> number & 1 for number, held in enumerate(found.held))
        if has_more and sums[best] < sums[item.list_id]:
            put_above(sums, [best], [item.list_id])
            made[best] = item
    return made


def _idf_of(terms: int, lookups: Sequence[Lookup]) -> float:
    """Return the idf of a set of terms."""
    return math.fsum(lookup.idf for number, lookup in enumerate(lookups) if terms >> number & 1)


def _cover(
    way: Sequence[float | None], lookups: Sequence[Lookup], mass: float, name: int
) -> tuple[int, int, float]:
    """Return the set of terms that are held with weight 1, the same with those held by less, and the share.

    `way`: for each of `lookups` the weight with which it is held; None where it is not. `name`: the set that
    the name holds. The path of a chunk has its words, but no CJK characters and emoji: those the name has.
    """
    coverage = 0.0
    mask = parts = 0
    for number, (weight, lookup) in enumerate(zip(way, lookups, strict=True)):
        if lookup.term.in_grams and name >> number & 1:
            weight = 1.0
        if weight is None:
            continue
        if weight >= HALVES:
            weight = 1.0
        # Of an id its pieces are words as well, and no part of the mass.
        if lookup.term.typed:
            coverage += weight * lookup.idf / mass
        parts |= 1 << len(lookups) + number
        if weight == 1.0:
            mask |= 1 << number
    return mask, parts | mask, min(1.0, coverage)


def _alone(found: Evidence, pool: Collection[int], file_of: Mapping[int, int]) -> tuple[int, int]:
    """Return the sets of words and of ids that one file alone has."""
    words = ids = 0
    for number, (holders, lookup) in enumerate(zip(found.held, found.lookups, strict=True)):
        is_id = lookup.term.is_exact
        if (is_id or lookup.term.is_word) and (lookup.term.literal or lookup.typed_df <= ALONE_CHUNKS):
            exact = [each for each, weight in holders.items() if weight == 1.0 and each in pool]
            files = {file_of[each] for each in exact}
            if lookup.term.in_grams:
                files.update(each for each, terms in found.in_names.items() if terms >> number & 1)
            if 0 < len(exact) <= ALONE_CHUNKS and len(files) == 1:
                words |= (not is_id) << number
                ids |= is_id << number
    return words, ids


def _lift(sums: dict[int, float], groups: Mapping[Held, list[int]]) -> None:
    """Put what holds more terms before what holds a part, where its name holds those of the other's."""
    #: With the best chunk of each.
    tops: list[tuple[int, int, int, int]] = []
    for whole, parts, name in sorted(groups, key=lambda held: [bits.bit_count() for bits in held]):
        less = [
            top
            for fewer, others, shorter, top in tops
            if fewer & ~whole == 0 == shorter & ~name and (fewer != whole or others & ~parts == 0)
        ]
        rows = groups[whole, parts, name]
        put_above(sums, rows, less)
        tops.append((whole, parts, name, max(rows, key=sums.__getitem__)))


def put_above(
    sums: dict[int, float], some: Iterable[int], others: Iterable[int], part: float = ABOVE
) -> None:
    """Lift `some` over the greatest of `others`, and keep their order."""
    best = max(map(sums.__getitem__, others), default=0.0)
    for each in some:
        sums[each] = max(sums[each], best + part * sums[each])
