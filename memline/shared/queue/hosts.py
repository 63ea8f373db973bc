"""Tell the index hosts of a fleet apart, and say which of them serves an agent.

An index host is a home with indexes that has a name in its fleet (`queue.host`). Without one the fleet has a
single index host. Each has queues of its own, but for those that all share (`shared.queue.routes`).

    <fleet>:hosts    hash: index host -> home of its indexes
    <fleet>:agents   hash: agent -> index host that serves it; `OLD>NEW` while it is on its way and none does

What is in Redis may be lost. An index that was handed to another host says so itself (`meta.MOVING`), so that
its old host never takes the agent back by mistake.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memline.shared.config.schema import AgentSettings
from memline.shared.errors import IndexElsewhere, QueueError
from memline.shared.index.driver import reading_if_any
from memline.shared.index.ownership import refuse_left
from memline.shared.queue import redis_client
from memline.shared.queue.redis_client import key, own_host
from memline.shared.values import value

if TYPE_CHECKING:
    from redis import Redis


def on_host(role: str, host: str) -> str:
    """Name the queue of a role on an index host; roles have no hyphen, so `split` tells them apart again."""
    return f"{role}-{host}" if host else role


def split(queue: str) -> tuple[str, str]:
    """Give the role and the index host of a queue's name."""
    role, _, host = queue.partition("-")
    return role, host


def known(client: Redis) -> list[str]:
    """List the index hosts of the client's fleet; `[""]` for a fleet with a single one, without a name."""
    names: Any = client.hkeys(key(client, "hosts"))
    return sorted({name.decode() for name in names} | {own_host(client)} - {""}) or [""]


def register(url: str, home: Path) -> None:
    """Keep the name of the fleet, or of the index host in it, for the indexes of a home.

    Raises QueueError when it is another home's, and when some index hosts of a fleet have a name and others
    have none.
    """
    ours = str(home.resolve())
    with redis_client.connected(url) as server:
        host, fleet = own_host(server), redis_client.namespace(server)
        owner, hosts = key(server, "owner"), key(server, "hosts")
        if host:
            holder: Any = None if server.hsetnx(hosts, host, ours) else server.hget(hosts, host)
            what, gone = (
                f"the index host {host} of the fleet",
                f"{redis_client.command_line(url)} hdel {hosts} {host}",
            )
            unnamed: Any = server.get(owner)
            if unnamed is not None and unnamed.decode() == ours:
                # This home is given a name.
                server.delete(owner)
            elif unnamed is not None:
                raise QueueError(
                    f"this fleet has an index host without a name, {unnamed.decode()}; this one is {host}",
                    hint=f"set queue.host there too; if it is gone for good:"
                    f" {redis_client.command_line(url)} del {owner}",
                )
        else:
            named: Any = server.hkeys(hosts)
            if named:
                names = ", ".join(sorted(name.decode() for name in named))
                raise QueueError(
                    f"the index hosts of this fleet have names ({names}), and this one has none",
                    hint="set queue.host, or MEMLINE_QUEUE_HOST",
                )
            holder = None if server.set(owner, ours, nx=True) else server.get(owner)
            what, gone = "the name of this fleet", f"{redis_client.command_line(url)} del {owner}"
    if holder is not None and holder.decode() != ours:
        name = fleet.partition(":")[2]
        words = f"{what}, {name}, is taken on its Redis by the fleet of {holder.decode()}"
        if host:
            words = f"{what} {name} is taken by {holder.decode()}"
        raise QueueError(
            f"{words}; this worker is of {ours}",
            hint=f"set another {'queue.host' if host else 'queue.name'}; if that"
            f" {'host' if host else 'fleet'} is gone for good: {gone}",
        )


def other_home(url: str, home: Path) -> str:
    """Return the home on whose indexes a fleet without names of hosts works, if that is not this one.

    Empty otherwise. In a container the same home may have another path. Raises QueueError.
    """
    with redis_client.connected(url) as server:
        holder: Any = None if own_host(server) else server.get(key(server, "owner"))
    found = holder.decode() if holder is not None else ""
    return found if found != str(home.resolve()) else ""


def serving_key(client: Redis, queue: str) -> str:
    """Name the key that is there while a worker process takes messages from `queue`."""
    return key(client, f"serving:{queue}")


def is_served(client: Redis, queue: str) -> bool:
    """Tell whether a live worker process takes messages from `queue`; one command."""
    return bool(client.exists(serving_key(client, queue)))


@value
class AgentHost:
    """Which index host serves an agent."""

    #: Empty: none has worked on it yet.
    host: str
    #: The host that it is on its way to, and that does not serve it yet.
    next: str = ""


def host_of(client: Redis, agent: str) -> AgentHost:
    """Read which index host serves an agent."""
    stored: Any = client.hget(key(client, "agents"), agent)
    return _agent_host(stored)


def serving_host(url: str, agent: str) -> str:
    """Name the other index host that serves an agent, and is alive; empty when there is none such."""
    with redis_client.connected(url) as client:
        host = host_of(client, agent).host
        is_other = host not in ("", own_host(client))
        return host if is_other and is_served(client, on_host("store", host)) else ""


def hosts_of_agents(client: Redis) -> dict[str, AgentHost]:
    """Read which index host serves each agent that one has worked on."""
    stored: Any = client.hgetall(key(client, "agents"))
    return {agent.decode(): _agent_host(text) for agent, text in stored.items()}


def serve_agent(client: Redis, settings: AgentSettings) -> None:
    """Make this index host the one that serves an agent, unless another does; nothing without a name.

    Raises IndexElsewhere when another one does, and when the index here was handed to another.
    """
    host, agent = own_host(client), settings.agent
    if not host:
        return
    found = host_of(client, agent)
    if not found.host:
        with reading_if_any(settings.index_path) as reader:
            if reader is not None:
                refuse_left(reader, agent)
        client.hsetnx(key(client, "agents"), agent, host)
        found = host_of(client, agent)
    if found == AgentHost(host=host):
        return
    if found.next:
        words = f"the agent {agent} is on its way from the index host {found.host} to {found.next}"
        raise IndexElsewhere(words, hint=f"there: memline agent move {agent} --to {found.next} --backup PATH")
    raise IndexElsewhere(
        f"the agent {agent} is served by the index host {found.host}; this one is {host}",
        hint=f"give the agent here another id, or on {found.host}:"
        f" memline agent move {agent} --to {host} --backup PATH",
    )


def hand_over(client: Redis, agent: str, *, expected: Collection[str], to: str) -> None:
    """Change who serves an agent, in one step. Raises IndexElsewhere when it is none of `expected`.

    `expected` and `to` are as they are stored; an empty text is an agent without a host.
    """
    script = client.register_script(_HAND_OVER)
    stored: Any = script(keys=[key(client, "agents")], args=[agent, to, *expected])
    if stored.decode() != to:
        served = f"the agent {agent} is served by the index host {_agent_host(stored).host} now"
        raise IndexElsewhere(served)


_HAND_OVER = """
local found = redis.call('HGET', KEYS[1], ARGV[1]) or ''
for i = 3, #ARGV do
    if found == ARGV[i] then
        redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
        return ARGV[2]
    end
end
return found
"""


def _agent_host(stored: bytes | None) -> AgentHost:
    host, _, following = (stored or b"").decode().partition(">")
    return AgentHost(host=host, next=following)
