"""`memline metrics`: the state of a fleet for Prometheus."""

from __future__ import annotations

import click

from producers.cli.options import Invocation, examples, global_options

#: The usual one of Prometheus exporters inside applications.
DEFAULT_PORT = 9464


@click.command(
    epilog=examples(
        "memline metrics",
        "memline metrics --port 9500",
        "memline metrics --once",
    )
)
@click.option("--port", type=click.IntRange(0, 65_535), default=DEFAULT_PORT, show_default=True, help="Port.")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address; anybody who reaches it may read."
)
@click.option("--once", is_flag=True, help="Print them and end.")
@global_options
def metrics(invocation: Invocation, port: int, host: str, once: bool) -> None:
    """Serve metrics of queues, backlog, workers and providers for Prometheus, until it is stopped.

    One process a host is enough; run it beside the index. They are read anew at each scrape.
    """
    from producers.cli.signals import stop_event
    from producers.metrics import FleetCollector, MetricsServer, page

    invocation.log()
    agents = [settings for settings in invocation.agents() if settings.memory.enabled]
    collector = FleetCollector(invocation.settings, agents)
    if once:
        click.echo(page(collector), nl=False)
        return
    with stop_event() as stop, MetricsServer(collector, host=host, port=port) as server:
        click.echo(f"memline: metrics at {server.url}", err=True)
        stop.wait()
