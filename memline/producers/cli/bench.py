"""`memline bench`: how good search is, on questions of your own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from memline.producers.cli.options import Invocation, command, echo, examples, print_json
from memline.producers.evaluation import DEPTH, METRICS, mean, read_questions, score
from memline.producers.memory import Memory
from memline.shared.config.schema import PROVIDER_CHOICES, Experimental, ExtraPath, Settings
from memline.shared.errors import MemlineError
from memline.shared.search.request import SearchRequest
from memline.shared.sources.paths import MEMORY, SESSIONS
from memline.shared.values import replace

if TYPE_CHECKING:
    from memline.producers.evaluation import LabelledQuestion
    from memline.shared.config.schema import AgentSettings
    from memline.shared.search.results import Answer

#: Metrics of one question, or their means; None where one means nothing.
Scored = dict[str, float | None]

#: The row of the same questions with every chunk cited alone.
UNMERGED = "all, unmerged"

#: What `--run` keeps of a hit.
RUN_KEYS = ("path", "startLine", "endLine", "score")


@click.group(epilog=examples("memline bench retrieval questions.jsonl ./workspaces"))
def bench() -> None:
    """Measure the quality of search."""


@command(
    "memline bench retrieval questions.jsonl ./workspaces",
    "memline bench retrieval questions.jsonl ./workspaces --provider openai --json",
    parent=bench,
    json=True,
)
@click.argument("queries", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("root", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--view", type=click.Choice([MEMORY, SESSIONS]), default=MEMORY, help="What is searched.")
@click.option(
    "--provider",
    type=click.Choice(PROVIDER_CHOICES),
    default="none",
    help="Embed with it; none: keywords only.",
)
@click.option(
    "--run", "run_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the hits to this file."
)
def retrieval(
    invocation: Invocation,
    queries: Path,
    root: Path,
    view: str,
    provider: str,
    run_file: Path | None,
    as_json: bool,
) -> None:
    """Ask the labelled questions of QUERIES and say how much of their evidence is found.

    QUERIES has a JSON object a line: query_id, query, workspace, category, evidence. Every Markdown file
    below ROOT/<workspace>, or with --view sessions every transcript in ROOT/<workspace>/sessions, goes into a
    throw-away index, and every question is answered as `memline search` would, with the configured chunking
    and query settings.

    \b
    R@k        share of the evidence in the first k hits
    hit@6      share of the questions with any of it in the first six
    MRR@10     1 / rank of the first hit with evidence
    nDCG@10    rank-weighted evidence, each piece counted once
    snippet@6  of the evidence found in the first six, the share the snippets show

    Without a provider the second row is for the same questions with every chunk cited alone.
    """
    # The configured settings with another provider; the workspaces are those of the questions.
    settings = Invocation(options=replace(invocation.options, workspace=root)).agent()
    settings = replace(settings, memory=replace(settings.memory, provider=provider))
    questions = read_questions(queries, root, view)
    groups: dict[str, list[Scored]] = {"all": []}
    run: list[dict[str, Any]] = []
    for workspace in sorted({question.workspace for question in questions}):
        asked = [question for question in questions if question.workspace == workspace]
        for question, answer, unmerged in _answers(settings, root / workspace, asked, view):
            scored = score(question, answer.hits)
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
        _print_table(report, METRICS)


def _answers(
    settings: AgentSettings, workspace: Path, questions: Sequence[LabelledQuestion], view: str
) -> Iterator[tuple[LabelledQuestion, Answer, Answer | None]]:
    """Ask the questions of one workspace over a throw-away index of its notes, or of its transcripts.

    Each comes with its answer, and without a provider, which is paid for every question, with one in which no
    hits are merged.
    """
    if not workspace.is_dir():
        raise MemlineError(f"there is no folder {workspace}", hint="ROOT holds a folder for every workspace")
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
            if report.failed:
                reason = report.warning or "; ".join(failure["reason"] for failure in report.failures[:3])
                raise MemlineError(f"{workspace} was not indexed: {reason}", hint=report.action)
            for question in questions:
                request = SearchRequest(query=question.text, max_results=DEPTH)
                answer, unmerged = memory.ask(request), None
                if answer.warning:
                    # A mean over half of the retrievers would look like a worse ranking.
                    raise MemlineError(f"{question.id}: {answer.warning}", hint=answer.action)
                if settings.memory.provider == "none":
                    unmerged = memory.ask(replace(request, merge=False))
                yield question, answer, unmerged


def _print_table(report: dict[str, Scored], metrics: Sequence[str]) -> None:
    width = max(map(len, report))
    echo(f"{'':{width}} {'n':>5}" + "".join(f"{metric:>11}" for metric in metrics))
    for name, row in report.items():
        values = "".join(
            f"{'-':>11}" if row[metric] is None else f"{row[metric]:11.3f}" for metric in metrics
        )
        echo(f"{name:{width}} {row['questions']:5.0f}{values}")
