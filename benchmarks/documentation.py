"""Pages of any documentation, found by their titles and by the descriptions that their authors wrote.

A folder whose pages have `title` and `description` in their front matter is a set of questions as it is, on
which nothing was tuned: `npm pack next` holds one, for instance (`package/dist/docs`). A title counts where
one page alone has it, a description is taken out of its page. Memline is asked by keywords, and plain FTS5
the same (porter, title x 5, path x 2, windows of 30 lines).
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.children import memline, run
from memline import Memory
from memline.shared.note_names import is_markdown, without_ending
from memline.shared.sources.properties import from_front_matter
from memline.shared.words import stop_words_of

#: Questions of a kind at most, and letters of a description at least.
MOST, LEAST = 300, 25

#: Lines of a window of plain FTS5, and of the next one that it has as well.
WINDOW, OVERLAP = 30, 6

_FRONT = re.compile(r"---\n(.*?\n)---\n?", re.S)
_DESCRIPTION = re.compile(r"^description:[ \t]*.*\n(?:[ \t]+.*\n)*", re.M)

Ask = Callable[[str], Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked, and the path of the page that is meant."""

    kind: str
    words: str
    path: str


def taken_apart(documentation: Path, workspace: Path) -> list[Question]:
    """Write the pages below a folder without their descriptions, and return the questions for them."""
    found, titles = list[Question](), Counter[str]()
    for source in sorted(each for each in documentation.rglob("*") if is_markdown(each.name)):
        text = source.read_text(errors="replace")
        front = _FRONT.match(text)
        said: Mapping[str, Sequence[str]] = from_front_matter(front[0].split("\n")) if front else {}
        path = without_ending(str(source.relative_to(documentation))) + ".md"
        for kind in ("title", "description"):
            found += [Question(kind=kind, words=words, path=path) for words in said.get(kind, ())[:1]]
        titles.update(words.lower() for words in said.get("title", ())[:1])
        page = workspace / path
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(_DESCRIPTION.sub("", front[0], count=1) + text[front.end() :] if front else text)
    known = {each.path for each in found if each.kind == "title" and titles[each.words.lower()] == 1}
    found = [
        each for each in found if each.path in known and (each.kind == "title" or len(each.words) > LEAST)
    ]
    random.Random(1).shuffle(found)
    kinds = ([each for each in found if each.kind == kind] for kind in ("title", "description"))
    return [each for some in kinds for each in some[:MOST]]


@contextmanager
def plain_fts5(workspace: Path, titles: Mapping[str, str]) -> Iterator[Ask]:
    """Index the pages in one FTS5 table, and give what asks it for ten windows."""
    connection = sqlite3.connect(":memory:")
    connection.execute(
        "CREATE VIRTUAL TABLE pages USING fts5(path UNINDEXED, name, title, body, tokenize = 'porter')"
    )
    for page in sorted(workspace.rglob("*.md")):
        path, lines = str(page.relative_to(workspace)), page.read_text().split("\n")
        for first in range(0, len(lines), WINDOW):
            row = (path, re.sub(r"[/._-]", " ", path), titles.get(path, page.stem))
            body = "\n".join(lines[first : first + WINDOW + OVERLAP])
            connection.execute("INSERT INTO pages VALUES (?, ?, ?, ?)", (*row, body))

    def ask(words: str) -> list[str]:
        asked = re.findall(r"\w+", words.lower())
        said = [word for word in asked if word not in stop_words_of("en")]
        match = " OR ".join(f'"{word}"' for word in said or asked)
        ranked = "SELECT path FROM pages WHERE pages MATCH ? ORDER BY bm25(pages, 0, 2, 5, 1) LIMIT 10"
        return [path for (path,) in connection.execute(ranked, (match,))]

    with closing(connection):
        yield ask


def shares(ask: Ask, questions: Sequence[Question]) -> str:
    """Say of which share of the questions the page comes first, and among the first three."""
    lists = [([*dict.fromkeys(ask(each.words))], each.path) for each in questions]
    within = (sum(path in pages[:most] for pages, path in lists) / len(lists) for most in (1, 3))
    return " / ".join(f"{share:.3f}" for share in within)


def row(folder: Path, made: Path) -> str:
    """Measure a folder, with an index in another one. Raises ValueError when it has no such page."""
    place = Bench(made).place("pages", made / "notes")
    questions = taken_apart(folder, place.workspace)
    kinds = [[each for each in questions if each.kind == kind] for kind in ("title", "description")]
    if not all(kinds):
        raise ValueError(f"{folder}: no page has a title and a description in its front matter")
    memory = {"provider": "none", "extraPaths": ["."]}
    place.config.write_text(json.dumps({"agents": {"defaults": {"memorySearch": memory}}}))
    run(memline(*place.options(), "index", "--json"))
    titles = {each.path: each.words for each in kinds[0]}
    opened = Memory(workspace=place.workspace, config=place.config, home=place.home)
    with closing(opened) as searched, plain_fts5(place.workspace, titles) as fts5:

        def ask(words: str) -> list[str]:
            return [hit.path for hit in searched.search(words, max_results=10).hits]

        cells = [shares(asked, some) for asked in (ask, fts5) for some in kinds]
    return f"| {folder} | {len(kinds[0])}, {len(kinds[1])} | {' | '.join(cells)} |"


def main(arguments: list[str] | None = None) -> int:
    """Print a table of all folders; 2 where one has no such page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.documentation", description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    options = parser.parse_args(arguments)
    print("| pages | questions | titles, first / in three | descriptions | FTS5: titles | descriptions |")
    print("|---" * 6 + "|")
    for folder in options.folders:
        with tempfile.TemporaryDirectory(prefix="memline-pages-") as made:
            try:
                print(row(folder, Path(made)), flush=True)
            except ValueError as error:
                print(error, file=sys.stderr)
                return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
