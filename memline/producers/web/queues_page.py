"""Show the queues and the workers of a fleet; pause what is sent to providers, and drain a worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memline.producers.reports import breakers
from memline.producers.web.page import Action, Data, Done, Page, View, command_line
from memline.producers.web.series import Chart, draw
from memline.producers.web.snapshot import AgentFigures
from memline.shared.config.schema import FALLBACKS
from memline.shared.errors import BadRequest
from memline.shared.queue.depth import QueueDepth, rates
from memline.shared.queue.fleet_workers import wake
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
    commands = {each["id"]: command_line("queue", "drain", _name(each)) for each in workers}
    return {
        "workers": workers,
        "commands": commands,
        "missing": [role for role in snapshot.expected if role not in alive and role != "api"],
        "fleet_error": snapshot.fleet_error,
        "worker_failure": snapshot.fleet.worker_failure if snapshot.fleet else "",
    }


def _name(worker: Mapping[str, Any]) -> str:
    return f"{worker['host']}:{worker['pid']}"


def _drain(view: View) -> Done:
    from memline.shared.queue import heartbeat

    found = heartbeat.drain(view.queue_url, view.form.get("worker", ""))
    name = f"{found.host}:{found.pid}"
    words = f"The {'+'.join(found.queues)} worker {name} finishes what it has taken, and ends."
    return Done(words=words, page="/workers", audit={"worker": name, "roles": "+".join(found.queues)})


def _pause(view: View) -> Done:
    return _set_paused(view, is_paused=True)


def _resume(view: View) -> Done:
    return _set_paused(view, is_paused=False)


def check_target(view: View) -> tuple[str, str]:
    """Read the provider and the mode that a form means; empty for all. Raises BadRequest."""
    provider, mode = view.form.get("provider", ""), view.form.get("mode", "")
    if provider not in ("", *FALLBACKS):
        raise BadRequest(f"{provider[:80]!r} is not a provider", hint=f"they are: {', '.join(FALLBACKS)}")
    if mode not in ("", *_MODES.values()):
        raise BadRequest(f"{mode[:80]!r} is not a mode", hint=f"the modes are: {', '.join(_MODES.values())}")
    return provider, mode


def _set_paused(view: View, *, is_paused: bool) -> Done:
    """Pause or resume the provider of an agent, or of all that the token opens, in a mode or in both."""
    provider, mode = check_target(view)
    named = view.form.get("agent", "")
    chosen = (view.agent(named),) if named or not view.is_owner else view.agents
    change = breakers.pause if is_paused else breakers.resume
    for settings in chosen:
        change(settings, provider=provider, mode=mode)
        if not is_paused and view.queue_url:
            wake(view.queue_url, settings.agent)
    what = {REQUESTS: "embedding by requests", BATCH: "embedding by batches", "": "embedding"}[mode]
    names = ", ".join(settings.agent for settings in chosen)
    words = f"{names}: {what} {'is paused' if is_paused else 'goes on'}."
    page = "/providers" if view.form.get("from") == "providers" else "/queues"
    return Done(words=words, page=page, audit={"agents": names, "mode": mode, "provider": provider})


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

ACTIONS = (
    Action(path="/queues/pause", verb="pause", run=_pause, is_for_all=True),
    Action(path="/queues/resume", verb="resume", run=_resume, is_for_all=True),
    Action(path="/workers/drain", verb="drain", run=_drain, is_for_all=True, needs_queue=True),
)
