"""Move an agent to another index host of its fleet: the old host lets go of it, the new one takes it up.

Each step is a row or a key, so a command that was killed is run again and goes on:

1. On the old host `meta.MOVING` of the index holds the dispatcher: nothing new is read for jobs or sent.
2. When no request is in flight and no worker holds a batch, the same row says that the index has been left,
   in the transaction that looked. From then on it is neither read nor written.
3. In Redis the agent is on its way (`shared.queue.hosts`), so its messages wait or are left. Then the index
   is backed up; the copy says which host it is for.
4. The operator copies the backup and the notes; this program has no way between two disks.
5. On the new host the copy is put in place, the agent is that host's in Redis, and the row is removed.

Vectors travel in the copy, so nothing is embedded again. Until step 5 the move can be undone on the old host.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from memline.producers.actions.backup import Saved, back_up, backups_at, restore
from memline.shared.clock import SystemClock
from memline.shared.config.schema import AgentSettings, Settings
from memline.shared.errors import IndexElsewhere, IndexFault, IndexMissing, QueueError
from memline.shared.index import copies, meta
from memline.shared.index.batches import open_batches
from memline.shared.index.driver import faults, open_writer, reading_if_any, transaction
from memline.shared.queue import hosts, redis_client, routes
from memline.shared.queue.hosts import is_served
from memline.shared.scheduling import leases
from memline.shared.words import counted

#: Seconds between two looks at what is in flight.
LOOK_EVERY_S = 0.2


def listed(settings: Settings) -> list[dict[str, Any]]:
    """List the agents of this configuration and of the fleet, with the index host that serves each."""
    found: dict[str, hosts.AgentHost] = {}
    if settings.queue.url:
        with redis_client.connected(settings.queue.address) as client:
            found = hosts.hosts_of_agents(client)
    return [
        {
            "agentId": agent,
            "indexHost": found[agent].host if agent in found else "",
            "movingTo": found[agent].next if agent in found else "",
            "isConfigured": agent in settings.agents,
        }
        for agent in sorted({*settings.agents, *found})
    ]


def leave(
    settings: Settings,
    agent: AgentSettings,
    *,
    to: str,
    folder: Path,
    on_wait: Callable[[str], None] = lambda _: None,
) -> Saved:
    """Let go of an agent on its old host, and back its index up for the host `to`; may be run again.

    Raises IndexFaults, and QueueError when requests are in flight that no store worker takes the answers of.
    """
    clock, host = SystemClock(), settings.queue.host
    with redis_client.connected(settings.queue.address) as client:
        found = hosts.host_of(client, agent.agent)
        on_its_way = hosts.AgentHost(host=host, next=to)
        if found not in (on_its_way, hosts.AgentHost(host="")) or not _moving(agent).get("left"):
            hosts.serve_agent(client, agent)
        with closing(_opened(agent)) as connection, faults(agent.index_path):
            with transaction(connection):
                moving = meta.get(connection, meta.MOVING) or {"host": to, "left": False}
                if moving["host"] != to:
                    raise IndexElsewhere(
                        f"the agent {agent.agent} is being moved to the index host {moving['host']}",
                        hint=f"memline agent move {agent.agent} --to {host}   (undoes that)",
                    )
                meta.put(connection, meta.MOVING, moving)
            while True:
                with transaction(connection):
                    what = _in_flight(connection, clock.now())
                    if not what:
                        meta.put(connection, meta.MOVING, {"host": to, "left": True})
                        break
                if not is_served(client, routes.queue_of(client, "store")):
                    raise QueueError(
                        f"{what}, and no store worker is there to take the answers",
                        hint="memline worker store, and run this again",
                    )
                on_wait(f"{what}; their answers are waited for")
                clock.sleep(LOOK_EVERY_S)
        on_the_way = f"{host}>{to}"
        hosts.hand_over(client, agent.agent, expected=("", host, on_the_way), to=on_the_way)
    # Each host has the notes in a folder of its own.
    (saved,) = back_up([agent], folder, any_workspace=True)
    return saved


def stay(settings: Settings, agent: AgentSettings) -> bool:
    """Undo `leave` on the old host, while no other one has the agent; whether there was anything."""
    host = settings.queue.host
    with redis_client.connected(settings.queue.address) as client:
        moving = _moving(agent)
        found = hosts.host_of(client, agent.agent)
        if found.host not in ("", host):
            hosts.serve_agent(client, agent)
        if not moving and not found.next:
            return False
        if moving.get("host") == host:
            raise IndexElsewhere(
                f"the index of the agent {agent.agent} has just been put in place here",
                hint=f"memline agent move {agent.agent} --to {host} --backup PATH   (finishes that)",
            )
        hosts.hand_over(client, agent.agent, expected=("", host, f"{host}>{found.next}"), to=host)
        if moving:
            _clear(agent)
    return True


def arrive(settings: Settings, agent: AgentSettings, path: Path) -> Saved | None:
    """Take an agent up on its new host from the backup at `path`; may be run again. None: it is here already.

    Raises IndexFaults, also for a backup that `leave` did not make for this host.
    """
    host = settings.queue.host
    with redis_client.connected(settings.queue.address) as client:
        found, moving = hosts.host_of(client, agent.agent), _moving(agent)
        if found == hosts.AgentHost(host=host) and not moving:
            return None
        # A copy that is in place already is not put there again: after step 5 it may have changed.
        if moving.get("host") != host:
            (saved,) = backups_at(path, [agent], agent)
            _check_copy(saved, host)
        if found.host not in ("", host) and found.next != host:
            raise IndexElsewhere(
                f"the agent {agent.agent} is served by the index host {found.host}",
                hint=f"on {found.host}: memline agent move {agent.agent} --to {host} --backup PATH",
            )
        if moving.get("host") != host:
            if moving:
                # An index that left this host before: its batches and pauses went along and are in the copy.
                with closing(open_writer(agent.index_path)) as connection, transaction(connection):
                    connection.execute("DELETE FROM batches WHERE state <> 'closed'")
                    meta.put(connection, meta.PAUSED, None)
                    meta.put(connection, meta.PAUSED_MODES, None)
            restore(saved, agent)
        hosts.hand_over(client, agent.agent, expected=("", host, f"{found.host}>{host}"), to=host)
        _clear(agent)
    return backups_at(agent.index_path, [agent], agent)[0]


def _opened(agent: AgentSettings) -> Any:
    if not agent.index_path.exists():
        raise IndexMissing(
            f"there is no index of the agent {agent.agent} here to move", hint="memline agent ls"
        )
    return open_writer(agent.index_path)


def _moving(agent: AgentSettings) -> dict[str, Any]:
    """Read what the index says of a move; empty without one."""
    with reading_if_any(agent.index_path) as reader:
        return (meta.get(reader, meta.MOVING) if reader else None) or {}


def _clear(agent: AgentSettings) -> None:
    with closing(open_writer(agent.index_path)) as connection, transaction(connection):
        meta.put(connection, meta.MOVING, None)


def _in_flight(connection: Any, now: float) -> str:
    """Say what keeps an index from being copied as a whole; empty when nothing does."""
    if count := len(leases.tokens(connection)):
        return f"{counted(count, 'request', 'are')} in flight"
    if count := sum(bool(batch.owner) and batch.owner_until > now for batch in open_batches(connection)):
        return f"{counted(count, 'batch', 'are')} being worked on"
    return ""


def _check_copy(saved: Saved, host: str) -> None:
    with copies.reading_raw(saved.path) as connection, faults(saved.path):
        moving = meta.get(connection, meta.MOVING) or {}
    if not moving.get("left"):
        raise IndexFault(
            f"{saved.path} was not written by memline agent move: its index may have changed since",
            hint=f"on the host that serves it: memline agent move {saved.agent} --to {host} --backup PATH",
        )
    if moving["host"] != host:
        raise IndexElsewhere(
            f"{saved.path} was made for the index host {moving['host']}; this one is {host}",
            hint=f"run this on {moving['host']}",
        )
