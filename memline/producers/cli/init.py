"""`memline init`: the index of a folder."""

import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from memline.producers.bridges.clients import CLIENTS
from memline.producers.cli.index import index_agent, print_report
from memline.producers.cli.invocation import Invocation, command
from memline.producers.cli.output import echo
from memline.shared.config import config_file, environment
from memline.shared.config.agents import is_same
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.local.model_file import ENGINES
from memline.shared.errors import ConfigError, MemlineError
from memline.shared.providers import LOCAL, PROVIDERS
from memline.shared.sources.discover import discover
from memline.shared.sources.paths import MemoryPaths, is_transcript
from memline.shared.sync.plan import Plan, plan_of
from memline.shared.words import counted

#: More Markdown files than a folder of notes mostly has: an import of them is not begun by mistake.
MANY_FILES = 2_000


@command(
    "memline init",
    "memline init ~/notes --yes",
    "memline init ~/vault --provider local   # a small model on this machine, downloaded once",
    "memline init --provider openai --model nomic-embed-text --base-url http://127.0.0.1:11434/v1",
)
@click.argument("folder", required=False, metavar="[DIR]")
@click.option("--yes", is_flag=True, help="Ask nothing.")
@click.option("--provider", type=click.Choice(list(PROVIDERS)), help="Search by meaning with this provider.")
@click.option(
    "--model", metavar="NAME", help="Its model; for local a GGUF or ONNX file, or hf:owner/repo/file."
)
@click.option("--base-url", metavar="URL", help="Its address, where it is not the usual one.")
@click.option("--anyway", is_flag=True, help="Take a home directory, or one of thousands of files, too.")
def init(
    invocation: Invocation, folder: str | None, yes: bool, anyway: bool, **embedding: str | None
) -> int | None:
    """Make a folder of Markdown searchable: its index, and how to connect an agent.

    DIR is the current folder unless it is given. Nothing is written into it. Commands in this folder and
    below it then use its notes. With --provider a configuration is written if there is none. One that is
    there is not changed: what to add to it is printed, and nothing is indexed yet.
    """
    workspace = _folder(folder or str(invocation.options.workspace or Path.cwd()))
    if not (count := len(discover(MemoryPaths(workspace, is_whole=True)).files)):
        first = shlex.quote(str(workspace / "MEMORY.md"))
        raise MemlineError(
            f"there is no Markdown in {workspace}", hint=f"write a first note: echo 'A note.' > {first}"
        )
    if not anyway and (reason := _much(workspace, count)):
        if yes or not sys.stdin.isatty():
            again = shlex.join(["memline", "init", str(workspace), "--yes", "--anyway"])
            hint = f"memline init DIR, or all of it: {again}"
            raise ConfigError(f"{reason}; nothing was written", hint=hint)
        if not click.confirm(f"{reason}. Index all of it?", default=False):
            return 1
    if any(embedding.values()):
        _configure(invocation, workspace, **embedding)
    invocation = Invocation(msgspec.structs.replace(invocation.options, workspace=workspace))
    settings = invocation.agent()
    for line in _described(settings, plan_of(settings)):
        echo(line)
    report = index_agent(invocation.settings, settings)
    # That only words are searched was said before.
    print_report(invocation, report, (each for each in report.findings if each.code != "no_provider"))
    echo(f"\nAsk it: {invocation.as_typed('memline search QUESTION')}")
    client, *others = CLIENTS
    echo(f"Connect an agent ({client}; or {', '.join(others)}):")
    echo(f"  {invocation.as_typed(f'memline setup {client} --write')}")
    return 1 if report.failed else None


def _configure(
    invocation: Invocation, workspace: Path, provider: str | None, model: str | None, base_url: str | None
) -> None:
    """Write a configuration with this provider where there is none.

    One that is there is not changed: unless it says the same, what to add is printed, and ConfigError raised,
    because what it says may send the notes to another provider than the one that was asked for.
    """
    keys: dict[str, object] = {"provider": provider or "openai"}
    if provider == LOCAL:
        keys["local"] = {"modelPath": model or _small_model(workspace)}
    elif model:
        keys["model"] = model
    if base_url:
        keys["remote"] = {"baseUrl": base_url}
    path = config_file.find(invocation.options.config, os.environ)
    if path is None:
        path = config_file.default_places(os.environ)[0]
        content = {"agents": {"defaults": {"memorySearch": keys}}}
        config_file.write(path, json.dumps(content, ensure_ascii=False, indent=2) + "\n")
        echo(f"Wrote {path}")
        return
    memory = Invocation(msgspec.structs.replace(invocation.options, workspace=workspace)).agent().memory
    known = {memory.provider, memory.model, memory.local.model_path, memory.remote.base_url}
    if not {keys["provider"], model, base_url} - {None} <= known:
        echo(json.dumps(keys, ensure_ascii=False, indent=2))
        again = shlex.join(["memline", "init", str(workspace)])
        hint = f"add that to agents.defaults.memorySearch in it, then: {again}"
        raise ConfigError(f"{path} says otherwise, and is not changed; nothing was indexed", hint=hint)


def _small_model(workspace: Path) -> str:
    """Return the small model of the installed engine. Raises MemlineError when none is installed."""
    engine = next((engine for engine in ENGINES if engine.is_installed), None)
    if engine is None:
        again = shlex.join(["memline", "init", str(workspace), "--provider", "local"])
        what = f"{ENGINES[0].not_usable().message}; nothing was written"
        raise MemlineError(what, hint=f"{ENGINES[0].install()} && {again}")
    echo(f"Downloads {engine.small_model} (about 25 MB); nothing of your notes leaves this machine.")
    return engine.small_model


def _folder(text: str) -> Path:
    path = Path(os.path.normpath(Path(text).expanduser().absolute()))
    if not path.is_dir():
        is_file = path.exists()
        words = f"is a file, not a folder: memline init {shlex.quote(str(path.parent))}"
        raise click.UsageError(f"{path} {words}" if is_file else f"{path}: no such folder")
    return path


def _much(folder: Path, count: int) -> str:
    """Say why a folder is hardly meant as a whole; empty when it may be."""
    home = Path(os.path.realpath(environment.user_home(os.environ)))
    if home.is_relative_to(os.path.realpath(folder)):
        verb = "is" if is_same(home, folder) else "contains"
        return f"{folder} {verb} your home directory, with {counted(count, 'Markdown file')}"
    signs = (".git", ".obsidian", "logseq")
    is_whole = any((each / sign).exists() for each in (folder, *folder.parents) for sign in signs)
    if count > MANY_FILES and not is_whole:
        return f"{folder} has {count:,} Markdown files and is not a repository, vault or graph"
    return ""


def _described(settings: AgentSettings, plan: Plan) -> Iterator[str]:
    """Say what of the folder is read, and what embeds it."""
    left_out, choice = len(plan.discovery.left_out), plan.choice
    files = plan.total_files - sum(is_transcript(each.path) for each in plan.discovery.files)
    more = f", {left_out:,} more left out (memline status --verbose)" * bool(left_out)
    yield f"{settings.workspace}: {counted(files, 'Markdown file')}{more}."
    if choice.identity is None and choice.requested == "auto":
        yield "Search is by words; a key such as OPENAI_API_KEY, or --provider local, adds search by meaning."
    elif choice.identity is None:
        # A model that is still to be downloaded is a reason, too.
        yield f"Search is by words: {choice.reason}."
    elif choice.provider == LOCAL:
        yield f"Its texts are embedded by {choice.model} on this machine."
    else:
        yield f"Its texts are sent to {choice.provider} ({choice.model}) to be embedded."
