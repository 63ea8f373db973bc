"""`memline bench`: how good search is, on questions of your own, by its metrics."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from memline.producers.bridges.public_benchmarks import QUESTIONS, import_benchmark
from memline.producers.calls.table import CALLS
from memline.producers.cli.invocation import Invocation, Misuse, echo, print_json, print_result
from memline.producers.cli.options import advise, once_a_minute
from memline.producers.cli.table_commands import asks, group
from memline.producers.memory import Memory
from memline.shared.config.schema import Experimental, ExtraPath, Settings
from memline.shared.errors import MemlineError
from memline.shared.note_names import is_markdown
from memline.shared.search.request import SearchRequest
from memline.shared.search.results import Hit
from memline.shared.sources.paths import MEMORY, SESSIONS
from memline.shared.values import replace, to_json, value
from memline.shared.words import counted

if TYPE_CHECKING:
    from memline.shared.config.schema import AgentSettings
    from memline.shared.search.results import Answer

#: Metrics of one question, or their means; None where one means nothing.
Scored = dict[str, float | None]

#: The row of the same questions with every chunk cited alone.
UNMERGED = "all, unmerged"

#: What `--run` keeps of a hit.
RUN_KEYS = ("path", "startLine", "endLine", "score")


bench = group(CALLS["bench"])


@asks(CALLS["bench retrieval"], parent=bench)
def retrieval(
    invocation: Invocation,
    queries: Path,
    root: Path | None,
    view: str | None,
    provider: str | None,
    run_file: Path | None,
    as_json: bool,
) -> None:
    view, provider = view or MEMORY, provider or "none"
    is_published = queries.is_dir()
    if is_published == (root is not None):
        raise Misuse("a file of QUERIES needs a ROOT, and a folder that was imported takes none")
    root = root or queries
    queries = root / QUESTIONS if is_published else queries
    # The configured settings with another provider; the workspaces are those of the questions.
    settings = Invocation(options=replace(invocation.options, workspace=root)).agent()
    settings = replace(settings, memory=replace(settings.memory, provider=provider))
    questions = read_questions(queries, root, view, keeps_all=is_published)
    depth = FILES_DEPTH if is_published else DEPTH
    groups: dict[str, list[Scored]] = {"all": []}
    run: list[dict[str, Any]] = []
    by_workspace: dict[str, list[LabelledQuestion]] = {}
    for question in questions:
        by_workspace.setdefault(question.workspace, []).append(question)
    say = once_a_minute()
    for number, (workspace, asked) in enumerate(sorted(by_workspace.items())):
        say(f"{number} of {counted(len(by_workspace), 'workspace')} asked" * bool(number))
        for question, answer, unmerged in _answers(settings, root / workspace, asked, view, depth):
            scored = score(question, answer.hits)
            if is_published:
                scored |= published_score(question, answer.hits)
            groups["all"].append(scored)
            if unmerged is not None:
                groups.setdefault(UNMERGED, []).append(score(question, unmerged.hits))
            if question.category:
                groups.setdefault(question.category, []).append(scored)
            results = [{key: hit[key] for key in RUN_KEYS} for hit in answer.to_json()["results"]]
            run.append({"query_id": question.id, "results": results})
    if run_file is not None:
        run_file.write_text("".join(json.dumps(row) + "\n" for row in run), encoding="utf-8")
    names = sorted(groups, key=lambda name: (name != "all", name != UNMERGED, name))
    report: dict[str, Scored] = {
        name: {"questions": len(groups[name]), **mean(groups[name])} for name in names
    }
    if as_json:
        print_json({"all": report.pop("all"), "unmerged": report.pop(UNMERGED, None), "by": report})
    else:
        _print_table(report, (*PUBLISHED, "R@6", "nDCG@10") if is_published else METRICS)


@asks(CALLS["bench import"], parent=bench)
def import_command(invocation: Invocation, benchmark: str, file: Path, out: Path, as_json: bool) -> None:
    made = import_benchmark(benchmark, file, out)
    words = f"{counted(made.notes, 'note')} in {counted(made.workspaces, 'workspace')}"
    print_result(to_json(made), as_json, [f"{words}, {counted(made.questions, 'question')}: {out}"])
    if not as_json:
        advise(f"memline bench retrieval {shlex.quote(str(out))}")


def _answers(
    settings: AgentSettings,
    workspace: Path,
    questions: Sequence[LabelledQuestion],
    view: str,
    depth: int,
) -> Iterator[tuple[LabelledQuestion, Answer, Answer | None]]:
    """Ask the questions of one workspace over a throw-away index of its notes, or of its transcripts.

    Each comes with its answer, and, unless it wants many hits or a provider is paid for it, with one in which
    no hits are merged.
    """
    if not workspace.is_dir():
        raise MemlineError(
            f"there is no folder {workspace}", hint="name a ROOT with a folder for every workspace"
        )
    with TemporaryDirectory(prefix="memline-bench-") as folder:
        state_dir = Path(folder)
        if view == SESSIONS:
            # Links are not followed, so the transcripts are copied to where those of an agent are.
            copytree(workspace / "sessions", state_dir / "agents" / settings.agent / "sessions")
        settings = replace(
            settings,
            workspace=workspace,
            index_path=state_dir / "index.sqlite",
            state_dir=state_dir,
            # What a provider costs is counted with the rest; without one nothing is left behind.
            home=state_dir if settings.memory.provider == "none" else settings.home,
            memory=replace(
                settings.memory,
                sources=(view,),
                extra_paths=(ExtraPath(path="."),),
                experimental=Experimental(session_memory=True),
            ),
        )
        alone = Settings(agents={settings.agent: settings}, default_agent=settings.agent, home=state_dir)
        with Memory.of(alone, settings, long_lived=True) as memory:
            report = memory.index()
            unread = [each for each in report.failures if "textHash" not in each]
            is_whole = not (report.vectors["pending"] or report.vectors["failed"])
            if report.failed and not (unread and is_whole and report.chunks):
                reason = report.warning or "; ".join(failure["reason"] for failure in report.failures[:3])
                raise MemlineError(f"{workspace} was not indexed: {reason}", hint=report.action)
            for each in unread:
                echo(f"left out: {workspace / each['path']}: {each['reason']}", err=True)
            for question in questions:
                request = SearchRequest(query=question.text, max_results=depth, today=question.today)
                answer, unmerged = memory.ask(request), None
                # What could not be read was said once.
                if any(each.is_trouble and each.code != "file_failed" for each in answer.findings):
                    # A mean over half of the retrievers would look like a worse ranking.
                    raise MemlineError(f"{question.id}: {answer.warning}", hint=answer.action)
                if settings.memory.provider == "none" and depth == DEPTH:
                    unmerged = memory.ask(replace(request, merge=False))
                yield question, answer, unmerged


def _print_table(report: dict[str, Scored], metrics: Sequence[str]) -> None:
    width, wide = max(map(len, report)), max(11, *(len(metric) + 2 for metric in metrics))
    echo(f"{'':{width}} {'n':>5}" + "".join(f"{metric:>{wide}}" for metric in metrics))
    for name, row in report.items():
        values = "".join(
            f"{'-':>{wide}}" if row[metric] is None else f"{row[metric]:{wide}.3f}" for metric in metrics
        )
        echo(f"{name:{width}} {row['questions']:5.0f}{values}")


#: Hits a question is asked for, and where ten different files are wanted.
DEPTH, FILES_DEPTH = 10, 100

METRICS = ("R@3", "R@6", "R@10", "hit@6", "MRR@10", "nDCG@10", "snippet@6")

#: Those of public benchmarks, as their authors define them, over files.
PUBLISHED = ("recall@5", "recall@10", "recall_any@5", "recall_any@10", "MRR")

#: Characters of an evidence line that must be readable: a longer line cannot be in a snippet whole.
READABLE_CHARS = 200


@value
class Place:
    """The place of a piece of evidence."""

    path: str
    #: None: anywhere in the file.
    line: int | None
    #: What the line says; empty when it is not known.
    text: str = ""


@value
class LabelledQuestion:
    """A question with its evidence: each piece with the places that hold it."""

    id: str
    text: str
    workspace: str
    category: str
    evidence: tuple[tuple[Place, ...], ...]
    #: ISO day on which it is asked; empty: the present one.
    today: str = ""


#: A labelled question, to be copied.
LINE = (
    'a line is {"query_id": "q1", "query": "where do kestrels nest", "workspace": "home",'
    ' "evidence": [[{"view": "memory", "path": "docs/birds.md", "line": 12}]]}'
)


def read_questions(path: Path, root: Path, view: str, *, keeps_all: bool = False) -> list[LabelledQuestion]:
    """Read the questions of a JSONL file with the evidence of a view. Raises MemlineError for a bad line.

    `keeps_all`: also those without evidence.
    """
    questions: list[LabelledQuestion] = []
    for number, row in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not row.strip():
            continue
        try:
            question = _question(json.loads(row), root, view)
        except (ValueError, KeyError, TypeError) as error:
            raise MemlineError(
                f"{path}, line {number} is not a labelled question: {type(error).__name__}: {error}",
                hint=LINE,
            ) from error
        if question.evidence or keeps_all:
            questions.append(question)
    if questions:
        return questions
    if not path.read_text(encoding="utf-8").strip():
        raise MemlineError(f"{path} has no question", hint=LINE)
    raise MemlineError(
        f"{path} has no question with evidence of the view {view!r}", hint="try another --view"
    )


def _question(row: Any, root: Path, view: str) -> LabelledQuestion:
    folder = root / row["workspace"]
    pieces = (
        tuple(_place(folder, place) for place in places if place.get("view", view) == view)
        for places in row["evidence"]
    )
    return LabelledQuestion(
        id=str(row["query_id"]),
        text=str(row["query"]),
        workspace=str(row["workspace"]),
        category=str(row.get("category", "")),
        evidence=tuple(piece for piece in pieces if piece),
        today=str(row.get("today", "")),
    )


def _place(folder: Path, place: Mapping[str, Any]) -> Place:
    lines, number = _lines(folder / place["path"]), place.get("line")
    text = lines[number - 1] if number is not None and 0 < number <= len(lines) else ""
    return Place(path=place["path"], line=number, text=text.strip())


@cache
def _lines(file: Path) -> list[str]:
    # Only the lines of a note are what a hit shows; those of a transcript are JSON.
    is_note = is_markdown(file.name) and file.is_file()
    return file.read_text(encoding="utf-8").split("\n") if is_note else []


def score(question: LabelledQuestion, hits: Sequence[Hit]) -> Scored:
    """Compute the metrics of one question; None where one means nothing for it."""
    wanted = len(question.evidence)
    if not wanted:
        return dict.fromkeys(METRICS)
    #: For each piece that is covered, the rank of the first hit that does.
    ranks: list[int] = []
    shown = covered = 0
    for piece in question.evidence:
        pairs = product(enumerate(hits[:DEPTH], 1), piece)
        covering = [(rank, hit.snippet, place.text) for (rank, hit), place in pairs if _covers(hit, place)]
        ranks += [rank for rank, _, _ in covering[:1]]
        readable = [
            text[:READABLE_CHARS] in snippet for rank, snippet, text in covering if text and rank <= 6
        ]
        covered += bool(readable)
        shown += any(readable)
    ideal = sum(_gain(rank) for rank in range(1, min(wanted, DEPTH) + 1))
    return {
        **{f"R@{depth}": sum(rank <= depth for rank in ranks) / wanted for depth in (3, 6, 10)},
        "hit@6": float(any(rank <= 6 for rank in ranks)),
        "MRR@10": 1 / min(ranks) if ranks else 0.0,
        "nDCG@10": min(1.0, sum(map(_gain, ranks)) / ideal),
        "snippet@6": shown / covered if covered else None,
    }


def published_score(question: LabelledQuestion, hits: Sequence[Hit]) -> Scored:
    """Compute the published metrics of one question over the files of its hits, each at its best rank.

    As in the benchmark of basic-memory (recall, MRR) and that of LongMemEval (recall_any).
    """
    wanted = {place.path for piece in question.evidence for place in piece}
    files = dict.fromkeys(path for hit in hits for path in (hit.path, *hit.also_in))
    ranks = [rank for rank, path in enumerate(files, 1) if path in wanted]
    found = {depth: sum(rank <= depth for rank in ranks) for depth in (5, 10)}
    return {
        **{f"recall@{depth}": found[depth] / (len(wanted) or 1) for depth in found},
        **{f"recall_any@{depth}": float(found[depth] > 0) for depth in found},
        "MRR": 1 / ranks[0] if found[10] else 0.0,
    }


def mean(rows: Sequence[Mapping[str, float | None]]) -> Scored:
    """Compute the mean of each metric over the questions it means something for; None where there is none."""
    means: Scored = {}
    for metric in rows[0] if rows else METRICS:
        known = [each for row in rows if (each := row[metric]) is not None]
        means[metric] = sum(known) / len(known) if known else None
    return means


def _covers(hit: Hit, place: Place) -> bool:
    if hit.path != place.path and not hit.path.endswith(f"/{place.path}"):
        return False
    return place.line is None or hit.start_line <= place.line <= hit.end_line


def _gain(rank: int) -> float:
    return 1 / math.log2(rank + 1)
