"""Serve jobs over HTTP: list and show them, ask for a reindex, pause, resume and cancel one.

A token of one agent sees and changes the jobs of that agent alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from memline.producers.actions import reindex_job
from memline.producers.agents.calls import Parameter, read
from memline.producers.agents.pool import Pool
from memline.producers.http.arguments import read_arguments
from memline.producers.http.auth import access_of
from memline.producers.http.responses import JsonResponse, error_response
from memline.producers.reports import job_reports as reports
from memline.shared.config.schema import AgentSettings, Settings
from memline.shared.errors import UnknownAgent

_AGENT = Parameter("agent", {"type": "string", "description": "Only this agent. Default: that of the token."})

#: Parameters of GET /jobs.
LIST = (
    _AGENT,
    Parameter("open", {"type": "boolean", "description": "Only jobs that are running or paused."}),
    Parameter(
        "limit",
        {
            "type": "integer",
            "minimum": 1,
            "maximum": 1000,
            "description": "Ended jobs of each agent at most. Default: 10.",
        },
    ),
)

#: Parameters of POST /jobs.
ASK = (
    _AGENT,
    Parameter("force", {"type": "boolean", "description": "All files, not only those that changed."}),
)

#: What can be done with a job: the last part of POST /jobs/{job}/{verb}.
VERBS = ("pause", "resume", "cancel")


class JobRoutes:
    """The routes of jobs; each reads or changes rows in a thread of the pool."""

    def __init__(self, settings: Settings, agents: tuple[str, ...], pool: Pool) -> None:
        self._settings = settings
        self._agents = agents
        self._pool = pool
        self.routes = (
            Route("/jobs", self._list, methods=["GET"]),
            Route("/jobs", self._ask, methods=["POST"]),
            Route("/jobs/{job}", self._show, methods=["GET"]),
            *(Route(f"/jobs/{{job}}/{verb}", self._changer(verb), methods=["POST"]) for verb in VERBS),
        )

    async def _list(self, request: Request) -> Response:
        arguments = read(LIST, await read_arguments(request, LIST, example="{}"))
        agents = self._opened(request, arguments.get("agent", ""))
        found = await self._pool.run(
            partial(
                reports.listed,
                agents,
                prices=self._settings.prices,
                now=time.time(),
                limit=arguments.get("limit", 10),
                only_open=arguments.get("open", False),
            )
        )
        return JsonResponse({"jobs": [job.to_json() for job in found]})

    async def _show(self, request: Request) -> Response:
        agents = self._opened(request)
        job = await self._pool.run(partial(reports.named, agents, request.path_params["job"]))
        return JsonResponse(await self._report(job))

    async def _ask(self, request: Request) -> Response:
        body = await read_arguments(request, ASK, example='{"force": true}', is_body_needed=False)
        arguments = read(ASK, body)
        access = access_of(request.scope)
        (settings,) = self._opened(request, access.caller(arguments.get("agent", "")).agent)
        asked = await self._pool.run(
            partial(
                reindex_job.start,
                settings,
                self._settings.queue.address,
                force=arguments.get("force", False),
                by=access.client,
            )
        )
        job = await self._pool.run(partial(reports.named, [settings], asked["id"]))
        return JsonResponse({**await self._report(job), "warning": asked["warning"]})

    def _changer(self, verb: str) -> Callable[[Request], Any]:
        async def change(request: Request) -> Response:
            agents, access = self._opened(request), access_of(request.scope)
            job = await self._pool.run(partial(reports.named, agents, request.path_params["job"]))
            url = self._settings.queue.address
            done = await self._pool.run(partial(reindex_job.change, job, verb, url, by=access.client))
            if not done["changed"]:
                what = f"job {done['id']} was left alone, it is {done['state']}"
                return error_response(409, what, f"GET /jobs/{done['id']} shows it")
            return JsonResponse(await self._report(job))

        return change

    async def _report(self, job: reports.NamedJob) -> dict[str, Any]:
        now, prices = time.time(), self._settings.prices
        report = await self._pool.run(partial(reports.report, job, prices=prices, now=now))
        return report.to_json()

    def _opened(self, request: Request, agent: str = "") -> list[AgentSettings]:
        """Return the agents whose jobs the request may see. Raises AccessDenied and UnknownAgent."""
        access = access_of(request.scope)
        if agent or access.only:
            agent = access.caller(agent).agent
            if agent not in self._agents:
                hint = f"the agents are: {', '.join(self._agents)}"
                raise UnknownAgent(f"there is no agent {agent[:80]!r}", hint=hint)
        return [self._settings.agents[each] for each in ([agent] if agent else self._agents)]
