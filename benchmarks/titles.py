"""Titles of pages inside questions of other words: how often their page comes first, by keywords."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.children import ROOT, memline, run
from benchmarks.figures import Figure, at_least
from memline import Memory

#: Lies beside the repository; it is no part of it.
FOLDER = ROOT.parent / "shared/eval/dev/pages"

#: What stands around a title, and how many pages of a hundred come first at least.
AROUND = {
    "{}": 97,
    "how do I use {}": 95,
    "where is the page about {}": 90,
    "{} not working": 90,
    "tell me about {} please": 97,
}

_TITLES = 100


def inside_questions(bench: Bench) -> list[Figure]:
    """Ask for pages by their titles among other words; needs the sets of pages beside the repository."""
    sets = sorted(each.parent for each in FOLDER.glob("*/queries.jsonl"))
    if not sets:
        reason = "needs ../shared/eval/dev/pages"
        return [Figure(what="titles in questions", target="", measured="not measured", detail=reason)]
    return [figure for each in sets for figure in _of_set(bench, each)]


def _of_set(bench: Bench, folder: Path) -> list[Figure]:
    notes = bench.folder / f"pages-{folder.name}"
    shutil.copytree(folder / "ws", notes)
    place = bench.place(f"titles-{folder.name}", notes)
    memory = {"provider": "none", "extraPaths": ["."]}
    place.config.write_text(json.dumps({"agents": {"defaults": {"memorySearch": memory}}}))
    run(memline(*place.options(), "index", "--json"))
    asked = [json.loads(line) for line in (folder / "queries.jsonl").read_text().splitlines()]
    titles = [each for each in asked if each["kind"] == "title"]
    titles = random.Random(1).sample(titles, min(_TITLES, len(titles)))
    with Memory(workspace=place.workspace, config=place.config, home=place.home) as searched:

        def first(words: str) -> float:
            found = 0
            for each in titles:
                hits = searched.search(words.format(each["query"]), max_results=1).hits
                found += bool(hits) and hits[0].path == each["path"]
            return 100 * found / len(titles)

        return [
            at_least(f"{folder.name}: `{words.format('TITLE')}`, page first", first(words), least, "%")
            for words, least in AROUND.items()
        ]
