"""Read the arguments of a request, and serve the calls of the table that are not an agent's own.

A token of one agent sees and changes what is of that agent alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from memline.producers.actions.perform import Asker, perform
from memline.producers.agents.pool import Pool
from memline.producers.calls.arguments import by_key, parse_texts, read, whole
from memline.producers.calls.memory_calls import AGENT_ID
from memline.producers.calls.rows import OWNER, Call, Parameter
from memline.producers.calls.table import CALLS
from memline.producers.http.auth import access_of
from memline.producers.http.request_log import note
from memline.producers.http.responses import JsonResponse, error_response
from memline.shared.config.schema import Settings
from memline.shared.errors import AccessDenied, BadRequest, UnknownAgent


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
        if call.audit:
            access.caller().check_acting()
        if call.rights == OWNER and access.only:
            raise AccessDenied("this is of all agents", hint=f"this token opens the agent {access.only}")
        names = self._agents
        if agent or access.only or call.is_of_one_agent:
            agent = access.caller(agent).agent
            if agent not in self._agents:
                hint = f"the agents are: {', '.join(self._agents)}"
                raise UnknownAgent(f"there is no agent {agent[:80]!r}", hint=hint)
            names = (agent,)
        note(request.scope, agent=agent)
        agents = tuple(self._settings.agents[name] for name in names)
        return Asker(settings=self._settings, agents=agents, agent=agent, by=access.client)


def _answer(call: Call, asker: Asker, arguments: dict[str, Any]) -> Response:
    done = perform(call, asker, **arguments)
    if not done.is_changed:
        return error_response(
            409, done.words[0].rstrip("."), "its state does not allow that; it is unchanged"
        )
    return JsonResponse(done.answer() if done.answer else done.value)


async def read_arguments(
    request: Request, parameters: Iterable[Parameter], *, example: str, is_body_needed: bool = True
) -> dict[str, Any]:
    """Return the arguments of a request, not checked yet. Raises BadRequest and HTTPException.

    `example`: a body that is allowed, for the hint of an error. `is_body_needed`: whether an empty body of a
    POST is an error.
    """
    parameters = tuple(parameters)
    lists = {name for each in parameters if each.kind == "array" for name in (each.name, *each.aliases)}
    given: dict[str, list[str]] = {}
    for name, text in request.query_params.multi_items():
        if name in given and name not in lists:
            raise BadRequest(f"{name[:80]} is given twice", hint="give it once")
        given.setdefault(name, []).append(text)
    if request.method != "POST":
        texts = {name: each[0] for name, each in given.items() if name not in lists}
        return parse_texts(parameters, texts) | {name: given[name] for name in lists & given.keys()}
    if given:
        raise BadRequest("a POST takes its parameters in the body alone", hint="send them as JSON")
    if not is_body_needed and not await request.body():
        return {}
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, "the body has to be JSON")
    hint = f"such as {example}"
    try:
        body = await request.json()
    except (ValueError, RecursionError) as error:
        raise BadRequest("the body is not valid JSON", hint=hint) from error
    if not isinstance(body, dict):
        raise BadRequest("the body is not a JSON object", hint=hint)
    return {name: whole(each) for name, each in body.items()}
