"""What each part of search is worth: all labelled questions, with one part left out at a time.

`python -m benchmarks.ablation [--meaning] [SET …]` prints a table of docs/search.md: by keywords, or by these
and the vectors of the small model beside the repository. Pages: the share of questions that find their page
first, by its title and by its description. The others: R@6 / nDCG@10. The sets lie beside the repository and
are no part of it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from sqlite3 import Connection
from typing import Any
from unittest.mock import patch

from benchmarks.bench import Bench, Place
from benchmarks.children import MODEL, ROOT, memline, run
from benchmarks.questions import mean, read_questions, score
from memline import Memory
from memline.shared.index.driver import json_ids
from memline.shared.search import (
    forms,
    fusion,
    keyword,
    passages,
    postings,
    query,
    ranking,
    retrieve,
    retrievers,
    service,
)
from memline.shared.values import replace

FOLDER = ROOT.parent / "shared/eval/dev"

#: The sets, in the order of the columns.
SETS = ("pages/obsidian", "pages/openclaw", "locomo", "notes", "cran")


def _changed(*changes: tuple[object, str, Any]) -> AbstractContextManager[object]:
    """Give attributes of modules another value for a while."""
    stack = ExitStack()
    for owner, name, value in changes:
        stack.enter_context(patch.object(owner, name, value))
    return stack


def _everywhere(name: str, table: postings.Table) -> AbstractContextManager[object]:
    """Put another full-text table in the place of one, which is known by its identity."""
    return _changed(*((owner, name, table) for owner in (postings, keyword, forms)))


def _stems_count() -> AbstractContextManager[object]:
    count = forms.Ways._count

    def of_stem(ways: forms.Ways, table: str, match: str) -> int:
        return count(ways, postings.CHUNKS.name, match)

    return _changed((forms.Ways, "_count", of_stem))


def _with(call: Callable[..., Any], **fixed: Any) -> Callable[..., Any]:
    """Return what calls `call` with some of its options fixed, whatever it is given."""
    return lambda *args, **given: call(*args, **given | fixed)


#: Among chunks, those of about half of the files.
_OF_HALF = (
    "SELECT id FROM chunks WHERE file_id * 7919 % 1000 < 500 AND id IN (SELECT value FROM json_each(?))"
)


def _half_waits(*more: tuple[object, str, Any]) -> AbstractContextManager[object]:
    """Take the vectors of half of the files away, as while an index gets them."""
    by_vector, cosines = retrievers.by_vector, retrievers.cosines

    def of_half(connection: Connection, chunk_ids: Iterable[int]) -> set[int]:
        return {row for (row,) in connection.execute(_OF_HALF, (json_ids(chunk_ids),))}

    def half_by_vector(connection: Connection, *args: Any) -> list[tuple[int, float]]:
        found = by_vector(connection, *args)
        known = of_half(connection, [chunk_id for chunk_id, _ in found])
        return [each for each in found if each[0] in known]

    def half_cosines(connection: Connection, backend: Any, links: Any, chunk_ids: Any) -> dict[int, float]:
        return cosines(connection, backend, links, of_half(connection, chunk_ids))

    return _changed((retrievers, "by_vector", half_by_vector), (retrievers, "cosines", half_cosines), *more)


def _of_vectors_alone(found: fusion.Found, weight: float) -> dict[int, float]:
    whole = _BY_VECTOR(found, weight)
    return {chunk_id: whole[chunk_id] for chunk_id in found.cosines}


_BY_VECTOR = fusion.Found._by_vector

_NONE: Mapping[int, float] = dict.fromkeys(fusion.LIFT, 0.0)

#: What is left out or done otherwise -> how.
PARTS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "all of it": nullcontext,
    "without names of files": partial(_changed, (keyword, "NAME_WEIGHT", 0.0)),
    "without the tenth for a word that a name holds": lambda: _everywhere(
        "NAMES", replace(postings.NAMES, least=0.0)
    ),
    "without headings and paths in chunks": lambda: _everywhere(
        "CHUNKS", replace(postings.CHUNKS, weights=(1.0, 0.0, 0.0, 1.0))
    ),
    "without the lift of a name or title": partial(
        _changed, (fusion, "LIFT", _NONE), (fusion, "WHOLE_LIFT", _NONE), (fusion, "MOST_LIFT", 0.0)
    ),
    "without what stands together": partial(_changed, (ranking, "NEAR", 0.0)),
    "without the place of the first word": partial(_changed, (ranking, "EARLY", 0.0)),
    "without the rule of more words": partial(_changed, (ranking, "_lift", lambda sums, groups: None)),
    "without the rule of what one file alone has": partial(
        _changed, (ranking, "_alone", lambda found, pool, file_of: (0, 0))
    ),
    "without the rule of what holds everything": partial(
        _changed, (keyword, "ranked", _with(ranking.ranked, is_all=False))
    ),
    "without the rule of a copied line": partial(_changed, (query, "LINE_WORDS", range(0))),
    "without the rule of what a list says of a note": partial(_changed, (ranking, "LISTS", 0)),
    "without other forms, spellings and synonyms": partial(
        _changed, (forms, "related", lambda word: {}), (forms, "spellings", lambda word: [])
    ),
    "without compounds and numbers": partial(
        _changed,
        (query, "_figures", dict),
        (query, "_halves", lambda word, stop: ()),
        (query, "_are_one", lambda first, second, stop: False),
    ),
    "with the light words of a question": partial(_changed, (query, "light_words", lambda words: ())),
    "a stem counts as the word": _stems_count,
    "12 terms of a question instead of 24": partial(_changed, (keyword, "MAX_TERMS", 12)),
    "each chunk cited alone": partial(
        _changed, (retrieve, "passages", _with(passages.passages, max_tokens=0))
    ),
}

#: The same of what is done beside vectors.
PARTS_OF_MEANING: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "all of it": nullcontext,
    "keywords alone": partial(_changed, (service, "retrieve", _with(retrieve.retrieve, embed_query=None))),
    "meaning alone": partial(_changed, (fusion.Found, "fuse", _with(fusion.Found.fuse, keyword=False))),
    "without the beginning of a note": partial(_changed, (fusion, "BEGINNING", 1.0)),
    "without the name of a file once more": partial(_changed, (fusion, "NAME_BESIDE", 0.0)),
    "without token vectors": partial(_changed, (retrieve._Search, "_compare_tokens", lambda *_: None)),
    "half of the files wait for their vectors": _half_waits,
    "the same, and words do not stand in for them": partial(
        _half_waits, (fusion.Found, "_by_vector", _of_vectors_alone)
    ),
    "without the lift of a name or title": PARTS["without the lift of a name or title"],
    "with the light words of a question": PARTS["with the light words of a question"],
    "each chunk cited alone": PARTS["each chunk cited alone"],
}

#: Returns the hits of a question.
Ask = Callable[[str], Any]


def pages(folder: Path, places: Mapping[str, Place]) -> str:
    """Return the share of titles, and of descriptions, whose page is the first hit."""
    found: dict[str, list[bool]] = {"title": [], "description": []}
    with _opened(places["ws"]) as ask:
        for row in map(json.loads, (folder / "queries.jsonl").read_text().splitlines()):
            hits = ask(row["query"])
            found[row["kind"]].append(bool(hits) and hits[0].path == row["path"])
    title, description = (sum(each) / len(each) for each in found.values())
    return f"{title:.3f}, {description:.3f}"


def labelled(folder: Path, places: Mapping[str, Place]) -> str:
    """Return R@6 / nDCG@10."""
    rows = []
    with ExitStack() as stack:
        ask = {name: stack.enter_context(_opened(place)) for name, place in places.items()}
        for question in read_questions(folder / "queries.jsonl", folder, "memory"):
            rows.append(score(question, ask[question.workspace](question.text)))
    means = mean(rows)
    return f"{means['R@6']:.3f} / {means['nDCG@10']:.3f}"


class _opened:
    """A memory, opened anew: what a search keeps was computed with the parts of another row."""

    def __init__(self, place: Place) -> None:
        self._memory = Memory(workspace=place.workspace, config=place.config, home=place.home)

    def __enter__(self) -> Ask:
        return lambda words: self._memory.search(words, max_results=10).hits

    def __exit__(self, *_: object) -> None:
        self._memory.close()


def _indexed(bench: Bench, name: str, memory: Mapping[str, object]) -> dict[str, Place]:
    """Index the workspaces of a set."""
    places = {}
    for folder in sorted(each for each in (FOLDER / name).iterdir() if each.is_dir()):
        place = bench.place(f"{name.replace('/', '-')}-{folder.name}", folder)
        settings = {**memory, "extraPaths": ["."]}
        place.config.write_text(json.dumps({"agents": {"defaults": {"memorySearch": settings}}}))
        run(memline(*place.options(), "index", "--json"))
        places[folder.name] = place
    return places


def rows(bench: Bench, sets: Sequence[str], *, meaning: bool = False, only: str = "") -> Iterator[str]:
    """Yield the lines of the table, in Markdown: of the parts with these words in their name."""
    local = {"provider": "local", "local": {"modelPath": str(MODEL)}}
    places = {name: _indexed(bench, name, local if meaning else {"provider": "none"}) for name in sets}
    yield f"| | {' | '.join(sets)} |"
    yield "|---" * (len(sets) + 1) + "|"
    for what, change in (PARTS_OF_MEANING if meaning else PARTS).items():
        if only not in what:
            continue
        cells = []
        with change():
            for name in sets:
                measured = pages if name.startswith("pages/") else labelled
                cells.append(measured(FOLDER / name, places[name]))
        yield f"| {what} | {' | '.join(cells)} |"


def main(arguments: list[str] | None = None) -> int:
    """Print the table; 2 where the sets are not there."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ablation", description=__doc__)
    parser.add_argument("sets", nargs="*", default=SETS, metavar="SET", help=", ".join(SETS))
    parser.add_argument("--meaning", action="store_true", help="with vectors; half an hour to index openclaw")
    parser.add_argument("--keep", metavar="DIR", help="use the indexes in DIR again next time")
    parser.add_argument("--only", default="", metavar="WORDS", help="the rows with these words")
    options = parser.parse_args(arguments)
    sets = options.sets
    missing = [name for name in sets if not (FOLDER / name / "queries.jsonl").is_file()]
    if missing:
        print(f"needs ../shared/eval/dev ({', '.join(missing)})", file=sys.stderr)
        return 2
    if options.meaning and not MODEL.is_file():
        print(f"needs the model ../shared/models/{MODEL.name}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="memline-ablation-") as folder:
        for line in rows(
            Bench(Path(options.keep or folder)), sets, meaning=options.meaning, only=options.only
        ):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
