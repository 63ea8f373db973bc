"""What each part of search is worth: all labelled questions, with one part left out at a time.

`python -m benchmarks.ablation [--meaning] [SET …]` prints a table of docs/benchmarks.md: by keywords, or by
these and the vectors of the small model beside the repository. Pages: the share of questions that find their
page first, by its title and by its description. The others: R@6 / nDCG@10. The sets lie beside the repository
and are no part of it.
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
from typing import Any
from unittest.mock import patch

from benchmarks.bench import Bench, Place
from benchmarks.children import MODEL, ROOT, run
from benchmarks.questions import mean, read_questions, score
from memline import Memory
from memline.shared.findings import answerer
from memline.shared.index import token_rows
from memline.shared.search import (
    fusion,
    matches,
    passages,
    question,
    scorer,
    search_index,
    service,
    terms,
)

FOLDER = ROOT.parent / "shared/eval/dev"

#: The sets, in the order of the columns.
SETS = ("pages/obsidian", "pages/openclaw", "locomo", "notes", "cran")


def _changed(*changes: tuple[object, str, Any]) -> AbstractContextManager[object]:
    """Give attributes of modules another value for a while."""
    stack = ExitStack()
    for owner, name, value in changes:
        stack.enter_context(patch.object(owner, name, value))
    return stack


def _half_waits(*more: tuple[object, str, Any]) -> AbstractContextManager[object]:
    """Take the vectors of half of the chunks away, as while an index gets them."""
    top, cosines = search_index.Comparison.top, search_index.Comparison.cosines

    def of_half(row_id: int) -> bool:
        return row_id * 7919 % 1000 < 500

    def top_of_half(*given: Any) -> search_index.Scored:
        return [(row_id, each) for row_id, each in top(*given) if of_half(row_id)]

    def cosines_of_half(*given: Any) -> dict[int, float]:
        return {row_id: each for row_id, each in cosines(*given).items() if of_half(row_id)}

    changes = (
        (search_index.Comparison, "top", top_of_half),
        (search_index.Comparison, "cosines", cosines_of_half),
    )
    return _changed(*changes, *more)


_FUSE, _RETRIEVE, _PASSAGES = fusion.fuse, service.retrieve, passages.passages


def _alone(ranked: Iterable[matches.Row], *, wanted: int, max_tokens: int) -> list[passages.Passage]:
    return _PASSAGES(ranked, wanted=wanted, max_tokens=0)


def _no_stand_ins(mode: str, words: terms.Words, cosines: Mapping[int, float], *rest: Any) -> Any:
    return _FUSE(mode, words, dict.fromkeys(words.sums, 0.0) | dict(cosines), *rest)


#: What is left out or done otherwise -> how.
PARTS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "all of it": nullcontext,
    "without names of files": partial(_changed, (scorer, "NAME", 0.0)),
    "without the tenth for a word that a name holds": partial(_changed, (scorer, "NAME_WORD", 0.0)),
    "without headings and paths in chunks": partial(
        _changed, (matches, "_WEIGHTS", {matches.CHUNKS: "1.0, 0.0, 0.0, 1.0", matches.NAMES: "1.0, 1.0"})
    ),
    "without the lift of a name or title": partial(_changed, (scorer, "WHOLE", 0.0), (scorer, "PART", 0.0)),
    "without what stands together": partial(_changed, (scorer, "NEAR", 0.0)),
    "without the question as a phrase": partial(_changed, (question, "PHRASE_WORDS", range(0))),
    "without what a list says of a note": partial(_changed, (scorer, "ITEMS", 10**6)),
    "without irregular forms and spellings": partial(_changed, (terms, "forms_of", lambda word: ())),
    "without corrected words": partial(_changed, (terms, "MOST_SLIPS", 0)),
    "without the lift of an id": partial(_changed, (scorer, "ID", 0.0)),
    "without the lift of a day": partial(_changed, (scorer, "DAY", 0.0)),
    "with the light words of a question": partial(_changed, (question, "light_words", lambda words: ())),
    "12 terms of a question instead of 24": partial(_changed, (scorer, "MAX_TERMS", 12)),
    "each chunk cited alone": partial(_changed, (service, "passages", _alone)),
}

#: The same of what is done beside vectors.
PARTS_OF_MEANING: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "all of it": nullcontext,
    "keywords alone": lambda: _changed(
        (answerer, "retrieve", lambda *args, **given: _RETRIEVE(*args, **given | {"embedder": None}))
    ),
    "meaning alone": partial(
        _changed, (fusion, "fuse", lambda mode, words, *rest: _FUSE("vector", terms.Words(), *rest))
    ),
    "without the name of a file once more": partial(_changed, (fusion, "NAME_BESIDE", 0.0)),
    "without token vectors": partial(_changed, (token_rows, "read", lambda *given: {})),
    "half of the chunks wait for their vectors": _half_waits,
    "the same, and words do not stand in for them": partial(_half_waits, (fusion, "fuse", _no_stand_ins)),
    "without the lift of a name or title": PARTS["without the lift of a name or title"],
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
        for question in read_questions(folder / "queries.jsonl"):
            rows.append(score(question, ask[question.workspace](question.text)))
    return mean(rows)


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
        place.configure(**memory, extraPaths=["."])
        run(place.command("index", "--json"))
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
