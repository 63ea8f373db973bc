"""`memline jobs` and `reindex`."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import click

from memline.producers.actions.verbs import VERBS, Asker
from memline.producers.cli.invocation import AS_JSON, Invocation, command, group
from memline.producers.cli.output import print_result, table
from memline.producers.reports import estimate
from memline.producers.reports.jobs import SHORT, listed, named, report
from memline.shared.words import span


def act(verb: str, invocation: Invocation, as_json: bool, **arguments: Any) -> int | None:
    """Perform an action, and print what came of it: exit status 1 when the state did not allow it."""
    settings, agents = invocation.settings, invocation.agents()
    if verb == "reindex":
        agents = tuple(invocation.enabled_agents())
    asker = Asker(settings=settings, agents=agents, agent=invocation.options.agent or "")
    done = VERBS[verb](asker, **arguments)
    print_result(done.value, as_json, map(invocation.as_typed, done.words))
    return None if done.is_changed else 1


def add_verbs(
    parent: click.Group, parameters: Sequence[Callable[[Any], Any]], example: str, **verbs: str
) -> None:
    """Add commands that perform verbs of `producers.actions`: the name of each, and its help."""
    for name, text in verbs.items():
        words = f"{parent.name} {name}"
        function: Any = partial(act, words)
        for declare in (AS_JSON, *reversed(parameters)):
            function = declare(function)
        command(f"memline {words} {example}", parent=parent, name=name, help=text)(function)


@group(
    "memline jobs",
    "memline jobs --open --agent work --json",
    "memline jobs show 5f3a",
    "memline jobs pause 5f3a",
    invoke_without_command=True,
)
@click.option("--open", is_flag=True, help="Only those that are not over.")
@AS_JSON
def jobs(invocation: Invocation, open: bool, as_json: bool) -> None:
    """List jobs: reindexes, first imports, model changes, backfills, and batches of a provider's Batch API.

    All open jobs of each agent are listed, and the last ten that ended. A job is a row of the index and
    outlives every process. The older job goes first, and live edits before all jobs.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    reports = listed(invocation.agents(), only_open=open, queue=invocation.settings.queue)
    names = ("job", "agent", "what", "state", "files", "texts", "age")
    lines = table(names, map(_cells, reports)) if reports else ["No open jobs." if open else "No jobs."]
    print_result(reports, as_json, lines)


def _cells(job: dict[str, Any]) -> tuple[str, ...]:
    age = span(max(time.time() - job["createdAt"], 0.0))
    if job["kind"] == "batch":
        what = " ".join(filter(None, ("batch", job["jobId"], job["providerState"])))
        texts = f"{job['stored']:,}/{job['rows']:,}"
        return (job["id"][:SHORT], job["agentId"], what, job["progress"], "", texts, age)
    files, texts = job["files"], job["texts"]
    return (
        *(job[name] for name in ("id", "agentId", "name", "state")),
        f"{files['done']:,}/{files['total']:,}" if files["total"] else "",
        f"{texts['done']:,}/{texts['total']:,}",
        age,
    )


@command("memline jobs show 5f3a", "memline jobs show batch_68a1 --json", parent=jobs)
@click.argument("job")
@AS_JSON
def show(invocation: Invocation, job: str, as_json: bool) -> None:
    """Show all that is known of a job; JOB is its id, the beginning of it, or a provider's id of a batch."""
    answer = report(named(invocation.agents(), job), queue=invocation.settings.queue)
    print_result(answer, as_json, map(invocation.as_typed, _rows(answer)))


def _rows(answer: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each thing that is known: `Kind: reindex`, `Texts: done 3, left 4`."""
    for name, each in answer.items():
        label = re.sub(r"(?=[A-Z])", " ", name).capitalize()
        if isinstance(each, dict):
            known = {what: count for what, count in each.items() if count not in (None, "USD")}
            each = ", ".join(f"{what} {count}" for what, count in known.items())
        elif isinstance(each, float):
            each = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(each))
        if each not in (None, "", []):
            yield f"{label + ':':<20}{each}"


add_verbs(
    jobs,
    [click.argument("job")],
    "5f3a",
    pause="""Read no more files of a job and send none of its texts until `resume`; live edits go on.

    Requests and batches that are at the provider already are still stored. Exit status 1 when the job is not
    running.
    """,
    resume="Let a paused job go on. Exit status 1 when it is not paused.",
    cancel="""End a job: nothing more of it is read or sent; what is indexed stays.

    `memline reindex` or `memline index` takes its texts up again. Of a batch, the vectors that it brought are
    kept, and its other texts are sent in requests. Exit status 1 when it had ended already.
    """,
)


@command(
    "memline reindex --plan",
    "memline reindex --plan --force --json",
    "MEMLINE_QUEUE_URL=redis://127.0.0.1:6379/0 memline reindex --agent main",
)
@click.option("--force", is_flag=True, help="All files, not only those that changed.")
@click.option("--plan", is_flag=True, help="Only say what it would do: files, texts, tokens, cost.")
@AS_JSON
def reindex(invocation: Invocation, force: bool, plan: bool, as_json: bool) -> int | None:
    """Ask for a reindex, print the id of its job and return.

    The fleet goes on with a job after any restart. Its texts wait behind those of live edits and of older
    jobs. Asked for twice, it is one job. It needs queue.url; without a queue, `memline index` does the work.
    """
    if not plan:
        return act("reindex", invocation, as_json, force=force)
    plans = [estimate.estimate(each, force=force) for each in invocation.enabled_agents()]
    print_result(plans, as_json, (line for plan in plans for line in estimate.words(plan)))
    return None
