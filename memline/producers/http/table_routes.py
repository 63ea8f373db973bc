"""Serve the calls of the table that are not an agent's own over HTTP: jobs, and what changes them.

A token of one agent sees and changes what is of that agent alone.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from memline.producers.actions.perform import Asker, perform
from memline.producers.agents.pool import Pool
from memline.producers.calls.arguments import by_key, read
from memline.producers.calls.memory_calls import AGENT_ID
from memline.producers.calls.rows import OWNER, Call
from memline.producers.calls.table import CALLS
from memline.producers.http.arguments import read_arguments
from memline.producers.http.auth import access_of
from memline.producers.http.responses import JsonResponse, error_response
from memline.shared.config.schema import Settings
from memline.shared.errors import AccessDenied, UnknownAgent


class TableRoutes:
    """The routes of the calls with a function; each reads or changes rows in a thread of the pool."""

    def __init__(self, settings: Settings, agents: tuple[str, ...], pool: Pool) -> None:
        self._settings = settings
        self._agents = agents
        self._pool = pool
        self.routes = [self._route(call) for call in CALLS.values() if call.http and call.run]

    def _route(self, call: Call) -> Route:
        parameters = (*call.takes_json, AGENT_ID)

        async def answer(request: Request) -> Response:
            given = await read_arguments(request, parameters, example="{}", is_body_needed=False)
            arguments = read(parameters, {**given, **request.path_params})
            asker = self._asker(request, call, arguments.get("agent", ""))
            return await self._pool.run(partial(_answer, call, asker, by_key(call, arguments)))

        return Route(call.path, answer, methods=list(call.methods))

    def _asker(self, request: Request, call: Call, agent: str) -> Asker:
        """Return who asks, with the agents that it may mean. Raises AccessDenied and UnknownAgent."""
        access = access_of(request.scope)
        if call.rights == OWNER and access.only:
            raise AccessDenied("this is of all agents", hint=f"this token opens the agent {access.only}")
        names = self._agents
        if agent or access.only or call.is_of_one_agent:
            agent = access.caller(agent).agent
            if agent not in self._agents:
                hint = f"the agents are: {', '.join(self._agents)}"
                raise UnknownAgent(f"there is no agent {agent[:80]!r}", hint=hint)
            names = (agent,)
        agents = tuple(self._settings.agents[name] for name in names)
        return Asker(settings=self._settings, agents=agents, agent=agent, by=access.client)


def _answer(call: Call, asker: Asker, arguments: dict[str, Any]) -> Response:
    done = perform(call, asker, **arguments)
    if not done.is_changed:
        return error_response(
            409, done.words[0].rstrip("."), "its state does not allow that; it is unchanged"
        )
    return JsonResponse(done.answer() if done.answer else done.value)
