"""`memline reindex`: ask the fleet for a reindex, or say what one would do and cost."""

from __future__ import annotations

import click

from producers.cli.options import Invocation, examples, global_options, json_option, print_json


@click.command(
    epilog=examples(
        "memline reindex --plan",
        "memline reindex --plan --force --json",
        "MEMLINE_QUEUE_URL=redis://127.0.0.1:6379/0 memline reindex --agent main",
    )
)
@click.option("--force", is_flag=True, help="All files, not only those that changed.")
@click.option(
    "--plan", "plan_only", is_flag=True, help="Only say what it would do: files, texts, tokens, cost."
)
@json_option
@global_options
def reindex(invocation: Invocation, force: bool, plan_only: bool, as_json: bool) -> None:
    """Put a reindex on the queue and return; with --plan, say what it would do and do nothing.

    Needs queue.url. Without a queue, `memline index` does the work and waits for it.
    """
    from producers.reindex import enqueue, estimate
    from shared.errors import QueueError

    agents = [settings for settings in invocation.agents() if settings.memory.enabled]
    if plan_only:
        plans = [estimate(settings, force=force) for settings in agents]
        if as_json:
            print_json([plan.to_json() for plan in plans])
            return
        for plan in plans:
            click.echo(
                f"{plan.agent}: {plan.files} files to read, {plan.chunks} chunks; {plan.texts} texts to embed"
                f" ({plan.cached} more are cached), about {plan.tokens} tokens"
            )
            click.echo(f"  {plan.provider} {plan.model}".rstrip() + f": {plan.cost_words}")
        return
    url = invocation.settings.queue.url
    if not url:
        raise QueueError(
            "there is no queue to put a reindex on (queue.url is not set)",
            hint=f"memline index{' --force' if force else ''}",
        )
    sent = {settings.agent: enqueue(settings, url, force=force) for settings in agents}
    if as_json:
        print_json([{"agentId": agent, "files": files} for agent, files in sent.items()])
        return
    for agent, files in sent.items():
        click.echo(f"{agent}: {files} files are on the queue; memline status shows how far they are.")
