"""`memline jobs` and `reindex`."""

import time
from collections.abc import Iterable
from typing import Any

import click

from memline.producers.actions.perform import Asker, Verb, perform
from memline.producers.actions.verbs import VERBS
from memline.producers.cli.invocation import AS_JSON, Invocation, command, group
from memline.producers.cli.output import note, print_result, table
from memline.producers.reports import estimate
from memline.producers.reports.jobs import SHORT, listed, named, report
from memline.shared.config.schema import AgentSettings
from memline.shared.index.jobs import asker as this_user
from memline.shared.words import money, span

#: What a job is named by.
_JOB = click.argument("job")


def act_on(
    invocation: Invocation,
    verb: Verb,
    as_json: bool,
    *,
    agents: Iterable[AgentSettings] | None = None,
    **arguments: Any,
) -> int | None:
    """Perform an action, for these agents or those of the options, and print what came of it.

    The exit status is 1 when the state did not allow it.
    """
    done = perform(verb, asker(invocation, agents), **arguments)
    print_result(done.value, as_json, done.words)
    for line in done.notes:
        note(line)
    return None if done.is_changed else 1


def asker(invocation: Invocation, agents: Iterable[AgentSettings] | None = None) -> Asker:
    """Return this process's user as the one who asks, for these agents or those that the options name."""
    named = invocation.agents() if agents is None else tuple(agents)
    return Asker(
        settings=invocation.settings,
        agents=named,
        agent=invocation.options.agent or "",
        by=this_user(),
    )


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

    Of those that are over the last ten of each agent are listed. A job is a row of the index, with a queue
    and without: it outlives every process. The older job goes first, and live edits before all of them.
    Batches are made when remote.batch.enabled is true and the backlog is worth one.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    reports = listed(invocation.agents(), only_open=open, queue=invocation.settings.queue)
    columns = ("job", "agent", "what", "state", "files", "texts", "left", "cost", "age")
    lines = table(columns, map(_cells, reports))
    print_result(reports, as_json, lines if reports else ["No open jobs." if open else "No jobs."])


def _cells(job: dict[str, Any]) -> tuple[str, ...]:
    age = span(max(time.time() - job["createdAt"], 0.0))
    if job["kind"] == "batch":
        provider = " ".join(filter(None, (job["jobId"], job["providerState"])))
        what = f"batch {provider}".strip()
        texts = f"{job['stored']:,}/{job['rows']:,}"
        return (job["id"][:SHORT], job["agentId"], what, job["progress"], "", texts, "", "", age)
    files, texts, eta_s = job["files"], job["texts"], job["etaSeconds"]
    return (
        *(job[name] for name in ("id", "agentId", "name", "state")),
        f"{files['done']:,}/{files['total']:,}" if files["total"] else "",
        f"{texts['done']:,}/{texts['total']:,}",
        span(eta_s) if eta_s is not None else "",
        _cost(job),
        age,
    )


def _cost(job: dict[str, Any]) -> str:
    """Say what a job has cost and will have cost; empty when no price is known."""
    cost = job["cost"]
    if cost["soFar"] is None:
        return ""
    is_open = job["state"] in ("running", "paused") and cost["expected"] is not None
    return money(cost["soFar"]) + (f" of about {money(cost['expected'])}" if is_open else "")


@command("memline jobs show 5f3a", "memline jobs show batch_68a1 --json", parent=jobs, name="show")
@_JOB
@AS_JSON
def show(invocation: Invocation, job: str, as_json: bool) -> None:
    """Show all that is known of a job; JOB is its id, the beginning of it, or a provider's id of a batch."""
    queue = invocation.settings.queue
    answer = report(named(invocation.agents(), job), queue=queue)
    rows = _batch_rows(answer) if answer["kind"] == "batch" else _job_rows(answer)
    lines = [f"{label + ':':<15}{text}" for label, text in rows.items() if text]
    print_result(answer, as_json, lines)


def _job_rows(job: dict[str, Any]) -> dict[str, str | None]:
    return {
        "Job": job["id"],
        "Agent": job["agentId"],
        "What": job["name"],
        "Asked by": job["askedBy"],
        "State": job["state"],
        "Progress": job["progress"],
        "Tokens": f"{job['tokens']['done']:,} of {job['tokens']['total']:,}",
        "Cost": _cost(job),
        "Because": job["reason"],
        "Try": job["action"],
    }


def _batch_rows(batch: dict[str, Any]) -> dict[str, str | None]:
    done = batch["providerRowsDone"]
    texts = f"{batch['rows']:,}: {batch['stored']:,} stored, {batch['textsLeft']:,} to come"
    texts += f" (the provider has done {done:,})" if done else ""
    return {
        "Batch": batch["id"],
        "Agent": batch["agentId"],
        "Provider": f"{batch['provider']} {batch['model']}",
        "Job": batch["jobId"],
        "State": batch["progress"],
        "Provider says": batch["providerState"],
        "Texts": texts,
        "Made": _moment(batch["createdAt"]),
        "Submitted": _moment(batch["submittedAt"]),
        "Next poll": _moment(batch["nextLookAt"]),
        "Closed": _moment(batch["closedAt"]),
        "Cancelled": batch["cancelReason"],
        "File": batch["fileId"],
        "Error": next((each["what"] for each in batch["findings"]), batch["error"]),
        "Try": batch["action"],
    }


def _moment(at: float | None) -> str | None:
    return None if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


@command("memline jobs pause 5f3a", parent=jobs)
@_JOB
@AS_JSON
def pause(invocation: Invocation, job: str, as_json: bool) -> int | None:
    """Read no more files of a job and send none of its texts until `resume`; live edits go on.

    Requests and batches that are at the provider already are still stored. Exit status 1 when the job is not
    running.
    """
    return act_on(invocation, VERBS["jobs pause"], as_json, job=job)


@command("memline jobs resume 5f3a", parent=jobs)
@_JOB
@AS_JSON
def resume(invocation: Invocation, job: str, as_json: bool) -> int | None:
    """Let a paused job go on. Exit status 1 when it is not paused."""
    return act_on(invocation, VERBS["jobs resume"], as_json, job=job)


@command("memline jobs cancel 5f3a", "memline jobs cancel 5f3a --json", parent=jobs)
@_JOB
@AS_JSON
def cancel(invocation: Invocation, job: str, as_json: bool) -> int | None:
    """End a job: nothing more of it is read or sent; what is indexed stays.

    Its texts stay known as missing: `memline reindex` or `memline index` takes them up. Batches that hold
    nothing else are cancelled at the provider. Of a batch, the vectors that it brought are kept, and its
    other texts are sent in requests. Exit status 1 when it had ended already.
    """
    return act_on(invocation, VERBS["jobs cancel"], as_json, job=job)


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

    A job is a row of the index: the fleet goes on with it after any restart, also with an emptied Redis. Its
    texts wait behind those of live edits and of older jobs. Asked for twice, it is one job. It needs
    queue.url; without a queue, `memline index` does the work and waits for it.
    """
    agents = tuple(invocation.enabled_agents())
    if not plan:
        return act_on(invocation, VERBS["reindex"], as_json, agents=agents, force=force)
    plans = [estimate.estimate(each, force=force) for each in agents]
    print_result(plans, as_json, (line for plan in plans for line in estimate.words(plan)))
    return None
