"""`memline metrics`: the state of a fleet for Prometheus."""

from __future__ import annotations

import click

from memline.producers.cli.options import Invocation, command, stop_event

#: The usual one of Prometheus exporters inside applications.
DEFAULT_PORT = 9464


@command("memline metrics", "memline metrics --port 9500", "memline metrics --once")
@click.option("--port", type=click.IntRange(0, 65_535), default=DEFAULT_PORT, show_default=True, help="Port.")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address; every client that reaches it may read."
)
@click.option("--once", is_flag=True, help="Print the metrics and end.")
def metrics(invocation: Invocation, port: int, host: str, once: bool) -> None:
    """Serve metrics of queues, backlog, workers and providers for Prometheus, until it is stopped.

    One process a host is enough; run it beside the index. The metrics are read anew at each scrape.
    """
    from memline.producers.reports.metrics import FleetCollector, page, serve

    invocation.log()
    collector = FleetCollector(invocation.settings, invocation.enabled_agents())
    if once:
        click.echo(page(collector), nl=False)
        return
    with stop_event() as stop, serve(collector, host=host, port=port) as url:
        click.echo(f"memline: metrics at {url}", err=True)
        stop.wait()
