"""`memline bench`: how good search is, on questions of your own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from producers.cli.options import Invocation, examples, global_options, json_option, print_json
from shared.config.schema import PROVIDERS
from shared.sources.transcript_names import MEMORY, SESSIONS

if TYPE_CHECKING:
    from shared.config.schema import AgentSettings
    from shared.embedders.protocol import Embedder
    from shared.index.rows import FileRow
    from shared.index.writer import IndexWriter
    from shared.search.evaluation import LabelledQuestion
    from shared.search.results import Answer

#: Seconds a question may wait for its vector: a measurement is no conversation.
QUERY_TIMEOUT_S = 60.0

#: Metrics of one question, or their means; None where one means nothing.
Scored = dict[str, float | None]


@click.group(epilog=examples("memline bench retrieval questions.jsonl ./workspaces"))
def bench() -> None:
    """Measure the quality of search."""


@bench.command(
    epilog=examples(
        "memline bench retrieval questions.jsonl ./workspaces",
        "memline bench retrieval questions.jsonl ./workspaces --provider openai --json",
    )
)
@click.argument("queries", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("root", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--view",
    type=click.Choice([MEMORY, SESSIONS]),
    default=MEMORY,
    help="What is searched.",
)
@click.option(
    "--provider", type=click.Choice(PROVIDERS), default="none", help="Embed with it; none: keywords only."
)
@click.option(
    "--run", "run_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the hits to this file."
)
@json_option
@global_options
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
    """
    from shared.search.evaluation import METRICS, mean, read_questions, score

    settings = _bench_settings(invocation, root, provider)
    questions = read_questions(queries, root, view)
    scored: list[tuple[str, Scored]] = []
    run: list[dict[str, Any]] = []
    for workspace in sorted({question.workspace for question in questions}):
        here = [question for question in questions if question.workspace == workspace]
        for question, answer in _answers(settings, root / workspace, here, view):
            scored.append((question.category, score(question, answer.hits)))
            run.append({"query_id": question.id, "results": answer.to_json()["results"]})
    if run_file is not None:
        _write_run(run_file, run)
    groups = {"all": [row for _, row in scored]}
    for category in sorted({category for category, _ in scored if category}):
        groups[category] = [row for name, row in scored if name == category]
    report: dict[str, Scored] = {
        name: {"questions": len(rows), **mean(rows)} for name, rows in groups.items()
    }
    if as_json:
        print_json({"all": report.pop("all"), "by": report})
    else:
        _print_table(report, METRICS)


def _bench_settings(invocation: Invocation, root: Path, provider: str) -> AgentSettings:
    """The configured settings with another provider; the workspaces are those of the questions."""
    options = replace(invocation.options, workspace=root)
    settings = Invocation(options=options).agent()
    return replace(settings, memory=replace(settings.memory, provider=provider))


def _answers(
    settings: AgentSettings, workspace: Path, questions: Sequence[LabelledQuestion], view: str
) -> Iterator[tuple[LabelledQuestion, Answer]]:
    from shared.errors import MemlineError
    from shared.search.answer import search
    from shared.search.evaluation import DEPTH
    from shared.search.reader import SearchIndex
    from shared.search.results import SearchRequest

    if not workspace.is_dir():
        raise MemlineError(f"there is no folder {workspace}", hint="ROOT holds a folder for every workspace")
    with _throw_away_index(settings, workspace, view) as (path, embed_query):
        index = SearchIndex(path, long_lived=True)
        try:
            for question in questions:
                request = SearchRequest(query=question.text, max_results=DEPTH)
                answer = search(index, request, settings.memory.query, embed_query=embed_query)
                if answer.warning:
                    # A mean over half the legs would look like a worse ranking.
                    raise MemlineError(f"{question.id}: {answer.warning}", hint=answer.action)
                yield question, answer
        finally:
            index.close()


@contextmanager
def _throw_away_index(
    settings: AgentSettings, workspace: Path, view: str
) -> Iterator[tuple[Path, Callable[[str], bytes] | None]]:
    """An index of the notes below a folder, or of its transcripts, and how to embed questions for it."""
    from tempfile import TemporaryDirectory

    from shared.embedders.choice import NONE, choose
    from shared.errors import ProviderStop
    from shared.index.writer import IndexWriter

    choice = choose(settings)
    if choice.identity is None and settings.memory.provider != NONE:
        raise ProviderStop(choice.reason, hint=choice.action)
    with TemporaryDirectory(prefix="memline-bench-") as folder:
        path = Path(folder) / "index.sqlite"
        writer = IndexWriter(path)
        embedder = choice.build() if choice.identity is not None else None
        try:
            for row in _notes(settings, workspace) if view == MEMORY else _transcripts(settings, workspace):
                writer.store_file(row)
            if embedder is None:
                yield path, None
            else:
                _embed_all(writer, embedder)
                yield path, lambda text: embedder.embed_query(text, timeout_s=QUERY_TIMEOUT_S)
        finally:
            writer.close()
            if embedder is not None:
                embedder.close()


def _notes(settings: AgentSettings, workspace: Path) -> Iterator[FileRow]:
    from shared.clock import SystemClock
    from shared.config.schema import ExtraPath
    from shared.index.intake import look_at
    from shared.sources.discover import discover_scope
    from shared.sources.scope import Scope

    scope = Scope(workspace, (ExtraPath(path="."),))
    for found in discover_scope(scope).found:
        if found.problem is None:
            yield look_at(
                found.path,
                scope=scope,
                chunking=settings.memory.chunking,
                known=None,
                force=False,
                clock=SystemClock(),
            )


def _transcripts(settings: AgentSettings, workspace: Path) -> Iterator[FileRow]:
    from shared.clock import SystemClock
    from shared.index.transcript_intake import look_at_transcript
    from shared.sources.transcript_files import TranscriptScope

    scope = TranscriptScope(str(workspace), SESSIONS)
    for found in scope.discover().found:
        yield from look_at_transcript(
            found.path,
            scope=scope,
            chunking=settings.memory.chunking,
            known=None,
            force=False,
            clock=SystemClock(),
        )


def _embed_all(writer: IndexWriter, embedder: Embedder) -> None:
    from shared.index.rows import LearnedCaps, VectorRow

    writer.retarget(embedder.identity)
    while requests := writer.lease(embedder.caps, credits=1, only_full=False):
        for request in requests:
            vectors = embedder.embed_documents([row.text for row in request.texts])
            rows = [
                VectorRow(hash=text.hash, vector=vector)
                for text, vector in zip(request.texts, vectors, strict=True)
            ]
            writer.store_vectors(request.identity, request.lease, rows, LearnedCaps())


def _write_run(path: Path, run: list[dict[str, Any]]) -> None:
    import json

    kept = ("path", "startLine", "endLine", "score")
    with path.open("w", encoding="utf-8") as file:
        for row in run:
            results = [{key: hit[key] for key in kept} for hit in row["results"]]
            file.write(json.dumps({"query_id": row["query_id"], "results": results}) + "\n")


def _print_table(report: dict[str, Scored], metrics: Sequence[str]) -> None:
    width = max(map(len, report))
    click.echo(f"{'':{width}} {'n':>5}" + "".join(f"{metric:>11}" for metric in metrics))
    for name, row in report.items():
        values = "".join(
            f"{'-':>11}" if row[metric] is None else f"{row[metric]:11.3f}" for metric in metrics
        )
        click.echo(f"{name:{width}} {row['questions']:5.0f}{values}")
