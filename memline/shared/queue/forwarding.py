"""Keep an index host from working on the agents of another: forward their messages, or leave them.

An agent moves while its messages are on the way (`memline agent move`): what only its old host would get,
such as vectors that were paid for, goes to the queue of the new one. What the new host finds by itself, from
the files and the rows that it was given, is left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dramatiq.middleware import Middleware, SkipMessage

from memline.shared.logs import Log
from memline.shared.queue import hosts
from memline.shared.queue.messages import MessageRefused, agent_of
from memline.shared.queue.routes import actor_of

_LOG = Log("queue")


class ForwardMoved(Middleware):
    """Looks before each message who serves its agent; the last middleware, since it may raise."""

    def __init__(self, claim: Callable[[str], None]) -> None:
        """`claim` is called with an agent that no index host serves; it raises when this one must not."""
        self._claim = claim

    def before_process_message(self, broker: Any, message: Any) -> None:
        """Return if this host serves the agent. Raises SkipMessage, or MessageRefused for what must wait."""
        role, host = hosts.split(message.queue_name)
        agent = agent_of(message.args)
        if not host or not agent:
            return
        found = broker.retry(hosts.holder, broker.client, agent)
        if not found.host:
            self._claim(agent)
            return
        if found == hosts.Holder(host=host):
            return
        fields = {"agent": agent, "actor": message.actor_name, "message_id": message.message_id}
        if found.next:
            if message.actor_name == "store_vectors":
                # Paid for: kept for the host that gets the agent.
                raise MessageRefused(
                    f"the agent {agent} is on its way to the index host {found.next}",
                    hint="when it is there: memline queue requeue",
                )
            if message.actor_name == "run_query":
                # It is answered: by whom the caller may ask instead.
                return
        elif actor_of(message.actor_name).is_forwarded:
            # The index of the same agent has another name where its notes are in another folder.
            about = message.args[0]
            about = {**about, "index": ""} if "index" in about else about
            queue = hosts.queue_name(role, found.host)
            broker.enqueue(message._message.copy(queue_name=queue, args=(about,)))
            _LOG.info("message.forwarded", **fields, to=queue)
            raise SkipMessage("another index host serves the agent")
        _LOG.info("message.left", **fields, index_host=found.next or found.host)
        raise SkipMessage("the index host that serves the agent finds it by itself")
