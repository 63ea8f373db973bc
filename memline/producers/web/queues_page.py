"""Show the queues and the workers of a fleet; pause what is sent to providers, and drain a worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memline.producers.reports import breakers
from memline.producers.web.page import Data, Page, View
from memline.producers.web.series import Chart, draw
from memline.producers.web.snapshot import AgentFigures
from memline.shared.queue.depth import QueueDepth, rates
from memline.shared.scheduling.health import BATCH, REQUESTS
from memline.shared.values import value

#: Role whose queue an operator can pause -> the mode of the provider behind it.
_MODES = {"embed": REQUESTS, "batch": BATCH}


@value
class QueueRow:
    """A queue with its rate of the last minutes."""

    depth: QueueDepth
    chart: Chart
    #: Whether a worker takes its messages.
    is_served: bool
    #: Mode of the provider behind it; empty where none is.
    mode: str
    #: Agents whose provider is paused in that mode.
    paused: tuple[str, ...]


def _queues(view: View) -> Data:
    snapshot = view.site.live.read(0.0)
    queues = snapshot.fleet.queues if snapshot.fleet else ()
    counts = rates(view.queue_url) if queues else {}
    workers = snapshot.fleet.workers if snapshot.fleet else ()
    serving = {(role, each.index_host) for each in workers for role in each.queues}
    paused = {mode: _paused(list(snapshot.agents.values()), mode) for mode in _MODES.values()}
    rows = []
    for depth in queues:
        mode = _MODES.get(depth.role, "")
        hosts = {host for role, host in serving if role == depth.role}
        rows.append(
            QueueRow(
                depth=depth,
                chart=draw([float(count) for count in counts.get(depth.name, ())]),
                is_served=bool(hosts) if depth.is_shared else depth.host in hosts,
                mode=mode,
                paused=paused.get(mode, ()),
            )
        )
    return {
        "rows": rows,
        "fleet_error": snapshot.fleet_error,
        "worker_failure": snapshot.fleet.worker_failure if snapshot.fleet else "",
        "names": [settings.agent for settings in view.agents],
    }


def _paused(agents: Sequence[AgentFigures], mode: str) -> tuple[str, ...]:
    """Name the agents whose provider an operator paused in a mode."""

    def is_paused(provider: Mapping[str, Any]) -> bool:
        modes = [each for each in provider["modes"] if each["mode"] == mode]
        is_all = provider["reason"] == breakers.PAUSED_MANUALLY
        return is_all or any(each["pausedByHand"] for each in modes)

    return tuple(each.agent for each in agents if each.state and any(map(is_paused, each.state["providers"])))


def _workers(view: View) -> Data:
    snapshot = view.site.live.read(0.0)
    workers = [each.to_json() for each in snapshot.fleet.workers] if snapshot.fleet else []
    alive = {role for each in workers for role in each["queues"]}
    return {
        "workers": workers,
        "missing": [role for role in snapshot.expected if role not in alive and role != "api"],
        "fleet_error": snapshot.fleet_error,
        "worker_failure": snapshot.fleet.worker_failure if snapshot.fleet else "",
    }


PAGES = (
    Page(
        path="/queues",
        title="Queues",
        template="queues.html",
        data=_queues,
        is_for_all=True,
        needs_queue=True,
    ),
    Page(
        path="/workers",
        title="Workers",
        template="workers.html",
        data=_workers,
        is_for_all=True,
        needs_queue=True,
    ),
)
