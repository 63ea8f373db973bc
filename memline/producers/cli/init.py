"""`memline init`, `add` and `remove`: from a folder to a cited answer, and which others belong to it."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memline.producers.bridges.clients import CLIENTS
from memline.producers.calls.table import CALLS
from memline.producers.cli.hits import rows_of
from memline.producers.cli.index import index_agents
from memline.producers.cli.invocation import Invocation, echo, put
from memline.producers.cli.options import advise
from memline.producers.cli.table_commands import asks
from memline.producers.memory import Memory
from memline.shared.config import environment, workspace_file, workspaces
from memline.shared.config.transcript_programs import READ_IN_PLACE, TRANSCRIPT_PROGRAMS
from memline.shared.embedders.local.downloads import HUB_PREFIX, configured, missing
from memline.shared.embedders.local.engines import ENGINES
from memline.shared.errors import ConfigError, MemlineError
from memline.shared.findings.diagnosis import of_agent
from memline.shared.index import driver, ledger
from memline.shared.note_names import MARKDOWN, is_markdown
from memline.shared.providers import LOCAL
from memline.shared.sources.discover import first_link, markdown_below
from memline.shared.sources.outcomes import EMPTY, INDEXED
from memline.shared.sources.paths import LONG_TERM, OPENCLAW_FILES, MemoryPaths
from memline.shared.sources.transcripts.formats import format_named
from memline.shared.sync.plan import plan_of
from memline.shared.values import replace, value
from memline.shared.words import counted

if TYPE_CHECKING:
    from memline.producers.backends import IndexReport
    from memline.shared.config.schema import AgentSettings
    from memline.shared.embedders.local.engines import Engine
    from memline.shared.sync.plan import Plan


#: More Markdown files than a folder of notes mostly has: an import of them is not begun by mistake.
MANY_FILES = 2_000


@asks(CALLS["init"])
def init(
    invocation: Invocation, folder: str | None, yes: bool, model: str | None, anyway: bool
) -> int | None:
    workspace = _folder(folder or str(invocation.options.workspace or Path.cwd()))

    count = markdown_below(str(workspace))
    if not count:
        echo(f"Error: there is no Markdown in {workspace}", err=True)
        echo(
            f"Try: write a first note: echo 'A note.' > {shlex.quote(str(workspace / 'MEMORY.md'))}", err=True
        )
        return 1
    kind = kind_of(workspace)
    invocation = Invocation(options=replace(invocation.options, workspace=workspace, new_agent=True))
    extra = (".",) if kind.is_whole else ()
    is_new = not workspace_file.exists(workspace, os.environ)
    if is_new and not anyway and (what := _much(workspace, count)):
        again = shlex.join(["memline", "init", str(workspace), "--yes", "--anyway"])
        if not _is_meant(what, f"memline init DIR, or all of it: {again}", yes):
            return 1
    if is_new and not anyway and (found := invocation.former(workspace)) is not None:
        again = shlex.join(["memline", "--workspace", str(workspace), "index", "--adopt", str(found[1])])
        words = f"{workspace} was {found[1]}, which has settings and an index; nothing was written"
        raise ConfigError(words, hint=f"{again}   (or start afresh with --anyway)")
    settings = invocation.agent()
    if is_new:
        settings = workspace_file.with_extra_paths(settings, extra)
    plan = plan_of(settings)
    for line in _described(settings, plan, kind.name, model or ""):
        echo(line)
    engine = _engine(workspace, settings) if model else None
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError(f"there is no terminal to ask on: memline init {workspace} --yes")
        if not click.confirm(CALLS["init"].asks, default=True):
            return 1
        if not engine and plan.choice.identity is None and plan.choice.requested == "auto":
            engine = _offered_engine(workspace)
    file, _ = workspace_file.create(workspace, kind.name, extra, os.environ)
    if engine:
        workspace_file.use_local_model(file, engine.small_model)
    echo(f"{'Wrote' if is_new or engine else 'Kept'} {file}")
    # Read again: the file counts from now on.
    invocation = Invocation(options=invocation.options)
    settings = invocation.agent()
    (report,) = index_agents(invocation.settings, [settings])
    for line in _indexed(settings, report):
        echo(line)
    if report.warning:
        echo(report.warning, err=True)
    if report.action:
        advise(report.action)
    _ask(invocation, settings)
    _mention_sessions(settings, file)
    for line in _connections(settings):
        echo(line)
    return 1 if report.failed else None


@asks(CALLS["add"])
def add(invocation: Invocation, folder: str, yes: bool, anyway: bool) -> int | None:
    target = _folder(folder, file_too=True)
    if target.is_file() and not is_markdown(target.name):
        hint = f"name a folder, or a file that ends with {', '.join(MARKDOWN)}"
        raise MemlineError(f"{target} is not Markdown", hint=hint)
    settings = invocation.agent()
    _refuse_link(settings, target)
    if (named := workspace_file.file_naming(invocation.loaded, settings.agent, target)) is not None:
        echo(f"{target} is in extraPaths already ({named}).")
        return None
    paths = MemoryPaths.of(settings)
    root = paths.root_reading(str(target))
    # A workspace that is read as a whole by rule is no more once it has a MEMORY.md: then the entry counts.
    if root is not None and (root.named or not paths.is_whole):
        part = "" if workspaces.is_same(target, Path(root.path)) else f", as part of {root.path}"
        echo(f"{target} is read already{part}.")
        return None
    if not anyway and target.is_dir() and (what := _much(target, markdown_below(str(target)))):
        again = _command(settings, "add", str(target), "--anyway")
        if not _is_meant(what, f"memline add DIR, or all of it: {again}", yes):
            return 1
    file = workspace_file.add_path(invocation.loaded, settings.agent, target)
    plan = plan_of(Invocation(options=invocation.options).agent())
    new = (settings.workspace / path for path in plan.changes.added)
    added = sum(each == target or target in each.parents for each in new)
    echo(f"Added {target} ({file}): {counted(added, 'file')} to index.")
    advise(_command(settings, "index"))
    return None


@asks(CALLS["remove"])
def remove(invocation: Invocation, folder: str) -> None:
    target = Path(os.path.normpath(Path(folder).expanduser().absolute()))
    settings = invocation.agent()
    file = workspace_file.remove_path(invocation.loaded, settings.agent, target)
    echo(f"Removed {target} ({file}).")
    paths = MemoryPaths.of(Invocation(options=invocation.options).agent())
    root = paths.root_reading(str(target))
    if root is None:
        advise(_command(settings, "index"))
        return
    is_by_rule = paths.is_whole and not root.named
    why = " without MEMORY.md and memory/, which is read as a whole" * is_by_rule
    echo(f"It is searched as before, as part of {root.path}{why}.")
    advise(f"leave out what is not wanted by memorySearch.exclude ({file})")


def _folder(text: str, *, file_too: bool = False) -> Path:
    path = Path(os.path.normpath(Path(text).expanduser().absolute()))
    if not path.is_dir() and not (file_too and path.is_file()):
        raise click.UsageError(f"{path}: no such folder")
    return path


def _refuse_link(settings: AgentSettings, target: Path) -> None:
    """Raise MemlineError for what would be named and not read: at or below a link that is not followed."""
    if workspaces.is_same(target, settings.workspace):
        # Named by the user, the workspace may be a link.
        return
    link = first_link(MemoryPaths.of(settings).anchor(str(target)), str(target))
    if link is not None:
        hint = _command(settings, "add", os.path.realpath(target))
        raise MemlineError(f"{link} is a symbolic link, and these are never followed", hint=hint)


def _much(folder: Path, count: int) -> str:
    """Say why a folder is hardly meant as a whole; empty when it may be."""
    files = counted(count, "Markdown file")
    home = Path(os.path.realpath(environment.user_home(os.environ)))
    if home.is_relative_to(os.path.realpath(folder)):
        is_home = "is" if workspaces.is_same(home, folder) else "holds"
        return f"{folder} {is_home} your home directory, with {files}"
    above = (folder, *folder.parents)
    if count > MANY_FILES and not any((each / ".git").exists() or kind_of(each) in _NOTES for each in above):
        return f"{folder} has {files} and is not a repository, vault or graph"
    return ""


def _is_meant(what: str, hint: str, is_answered: bool) -> bool:
    """Ask whether all of a folder is meant. Raises ConfigError where that cannot be asked."""
    if is_answered or not sys.stdin.isatty():
        raise ConfigError(f"{what}; nothing was written", hint=hint)
    return click.confirm(CALLS["add"].asks.format(what=what), default=False)


def _described(settings: AgentSettings, plan: Plan, kind: str, model: str) -> Iterator[str]:
    """Say what the folder is, what of it is read, and what embeds it; `model`: the one that is asked for."""
    found = plan.total_files
    yield f"{settings.workspace} is {kind}: {counted(found, 'Markdown file')}."
    reasons = sorted({reason for _, reason in plan.discovery.left_out})
    if reasons:
        yield f"Left out by {', '.join(reasons)}: {len(plan.discovery.left_out):,}."
    for each in of_agent(settings, choice=plan.choice, plan=plan, codes=("notes_beside",)):
        yield each.what[0].upper() + each.what[1:]
        yield f"Try: {each.action}"
    choice, local = plan.choice, configured(settings.memory.local)
    if choice.identity is None and choice.requested == "auto":
        more = "a key such as OPENAI_API_KEY, or --model local, adds search by meaning"
        yield from [] if model else [f"Search is by words; {more}."]
    elif choice.identity is None and local in (each.name for each in missing(settings)):
        yield f"Its texts are embedded by {local} on this machine, once that is downloaded."
    elif choice.identity is None:
        yield f"Search is by words: {choice.reason}."
    elif choice.provider == "local":
        yield f"Its texts are embedded by {choice.model} on this machine."
    else:
        yield f"Its texts are sent to {choice.provider} ({choice.model}) to be embedded."


def _engine(workspace: Path, settings: AgentSettings) -> Engine | None:
    """Return the engine that will run the small model; None where a local model is configured already.

    Raises MemlineError when none is installed.
    """
    if settings.memory.provider == LOCAL and configured(settings.memory.local).startswith(HUB_PREFIX):
        # Another file of the same model is another model: all texts would be embedded again.
        return None
    engine = next((engine for engine in ENGINES if engine.is_installed), None)
    if engine is None:
        what = f"{ENGINES[0].not_installed().message}; nothing was written"
        again = shlex.join(["memline", "init", str(workspace), "--model", "local"])
        raise MemlineError(what, hint=f"{ENGINES[0].install()} && {again}")
    echo(f"Downloads {engine.offer}")
    return engine


def _offered_engine(workspace: Path) -> Engine | None:
    """Offer the small model where something can run it, else name what would; None: it is not wanted."""
    engine = next((engine for engine in ENGINES if engine.is_installed), None)
    if engine is None:
        again = shlex.join(["memline", "init", str(workspace), "--model", "local"])
        echo(f"Search by meaning too: {ENGINES[0].install()} && {again}")
        return None
    size = f"A model of {engine.small_mb} MB is loaded once and runs here"
    if not click.confirm(f"Search by meaning too? {size}", default=True):
        return None
    echo(f"Downloads {engine.offer}")
    return engine


def _indexed(settings: AgentSettings, report: IndexReport) -> Iterator[str]:
    """Say how many files were read, and what of the others became."""
    with driver.reading(settings.index_path) as reader:
        outcomes = ledger.outcome_counts(reader)
    read = outcomes.pop(INDEXED, 0) + outcomes.pop(EMPTY, 0)
    chunks = counted(report.chunks, "chunk")
    yield f"Indexed {counted(read, 'file')}, {chunks}, in {report.seconds:.1f} s."
    if outcomes:
        others = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in outcomes.items())
        yield f"Not read: {others} ({_command(settings, 'status', '--verbose')})."


def _ask(invocation: Invocation, settings: AgentSettings) -> None:
    """Ask one question that the notes can answer: the heading of a chunk."""
    with driver.reading(settings.index_path) as reader:
        rows = reader.execute(
            "SELECT heading, text FROM chunks ORDER BY length(heading) BETWEEN 8 AND 60 DESC, id LIMIT 50"
        ).fetchall()
    questions = [heading.rpartition(" > ")[2] or " ".join(text.split()[:6]) for heading, text in rows]
    # What begins like an option is asked for behind `--`.
    question = next((each for each in questions if not each.startswith("-")), "")
    question = question or next(filter(None, (each.lstrip("- ") for each in questions)), "")
    if not question:
        return
    echo(f"\n$ memline search {shlex.quote(question)}")
    with Memory.of(invocation.settings, settings) as memory:
        answer = memory.search(question, max_results=2)
    for hit in answer.hits:
        has_vectors = answer.mode != "keyword"
        shown = hit.to_json()
        for row in rows_of(shown, with_vectors=has_vectors, workspace=settings.workspace):
            put(row)


def _mention_sessions(settings: AgentSettings, file: Path) -> None:
    """Say what past sessions of other programs there are: they are private, and read only when asked for."""
    if "sessions" in settings.memory.sources and settings.memory.transcripts:
        return
    counts = {
        TRANSCRIPT_PROGRAMS[name].title: sum(
            each.problem is None
            for store in format_named(name).find(settings)
            for each in store.discover().files
        )
        for name in READ_IN_PLACE
        if name not in settings.memory.transcripts
    }
    for title, count in counts.items():
        if count:
            sessions = f"{counted(count, 'past session')} of {title}"
            echo(f"\n{sessions} in this folder can be searched, too: {file} says how.")


def _connections(settings: AgentSettings) -> Iterator[str]:
    """Yield the lines that connect an agent."""
    yield "\nConnect an agent, from the folder in which you start Claude Code:"
    for name, client in CLIENTS.items():
        yield f"  {client.title:<12} {_command(settings, 'setup', name, '--write')}"


def _command(settings: AgentSettings, *words: str) -> str:
    """Return a command line for the workspace that works as it is typed."""
    return shlex.join(["memline", "--workspace", str(settings.workspace), *words])


@value
class Kind:
    """A kind of folder, in words for a user."""

    name: str
    #: Whether all Markdown of the folder is memory, also beside `MEMORY.md` and `memory/`.
    is_whole: bool = True


OPENCLAW = Kind(name="an OpenClaw workspace", is_whole=False)
MEMORY_FOLDER = Kind(name="a folder with MEMORY.md or memory/", is_whole=False)
OBSIDIAN = Kind(name="an Obsidian vault")
LOGSEQ = Kind(name="a Logseq graph")
CLAUDE_CODE = Kind(name="the project memory of Claude Code")
REPOSITORY = Kind(name="a repository with documentation")
PLAIN = Kind(name="a folder of Markdown")

#: Those whose files are notes, however many there are.
_NOTES = (OBSIDIAN, LOGSEQ)


def kind_of(folder: Path) -> Kind:
    """Return the kind of a folder."""

    def has(*names: str) -> int:
        return sum(os.path.lexists(folder / name) for name in names)

    if has(".obsidian"):
        return OBSIDIAN
    if has("logseq") and has("pages", "journals"):
        return LOGSEQ
    if folder.name == "memory" and ".claude" in folder.parts and "projects" in folder.parts:
        return CLAUDE_CODE
    if has(*OPENCLAW_FILES) >= 2:
        return OPENCLAW
    if has(*LONG_TERM, "memory"):
        return MEMORY_FOLDER
    return REPOSITORY if has(".git", "mkdocs.yml", "docusaurus.config.js", "docs") else PLAIN
