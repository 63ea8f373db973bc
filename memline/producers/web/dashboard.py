"""Serve the dashboard: routes of its pages, actions and static files, login and logout.

Every answer carries a policy that allows nothing inline and nothing of other origins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from memline.producers.actions.verbs import VERBS, Asker, Done
from memline.producers.api.arguments import check
from memline.producers.api.auth import Access, Authenticator, address_of
from memline.producers.api.calls import Calls, Pool
from memline.producers.api.responses import status_of
from memline.producers.reports.state import StateReader
from memline.producers.web import session
from memline.producers.web.pages import PAGES, Page, View
from memline.producers.web.rendering import HERE, ROOT, environment, path_of
from memline.producers.web.session import HEADERS, read_form
from memline.shared.errors import AccessDenied, MemlineError
from memline.shared.logs import Log

#: The commands that have a button, each with the page that has it.
ACTIONS = {
    **dict.fromkeys(("jobs pause", "jobs resume", "jobs cancel"), "/jobs"),
    **dict.fromkeys(("queue pause", "queue resume"), "/"),
    **dict.fromkeys(("queue requeue", "queue drop"), "/queue"),
}

_LOG = Log("web")


class LoginNeeded(Exception):
    """Sends the browser to the login."""


class Files(StaticFiles):
    """The static files; a browser asks each time whether one has changed, since their names stay."""

    def file_response(self, *args: Any, **options: Any) -> Response:
        response = super().file_response(*args, **options)
        response.headers.update(HEADERS | {"cache-control": "no-cache"})
        return response


class Dashboard:
    """The pages of one server: an application below ROOT."""

    def __init__(self, tools: Calls, authenticator: Authenticator, pool: Pool) -> None:
        self._tools = tools
        self._authenticator = authenticator
        self._pool = pool
        self._sessions = session.Sessions(authenticator)
        self._state = StateReader(tools.settings, tools.served)
        self._templates = environment(tools)
        router = Router(
            [
                Mount("/static", app=Files(directory=HERE / "static")),
                Route("/login", self._show_login, methods=["GET"]),
                Route("/login", self._log_in, methods=["POST"]),
                Route("/logout", self._log_out, methods=["POST"]),
                *(Route(page.path, self._page(page), methods=["GET"]) for page in PAGES),
                *(Route(path_of(name), self._action(name), methods=["POST"]) for name in ACTIONS),
            ],
            redirect_slashes=False,
        )
        handlers = {
            MemlineError: self._refuse,
            HTTPException: self._refuse,
            LoginNeeded: self._lead_to_login,
        }
        self._app = ExceptionMiddleware(router, handlers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def _page(self, page: Page) -> Callable[[Request], Any]:
        async def show(request: Request) -> Response:
            self._access(request)
            view = View(tools=self._tools, state=self._state, query=request.query_params)
            data = await self._pool.run(partial(page.data, view))
            return self._html(request, page.template, {"title": page.title, "page": page, **data})

        return show

    def _action(self, name: str) -> Callable[[Request], Any]:
        async def act(request: Request) -> Response:
            form = await read_form(request)
            self._access(request)
            self._check_form(request, form)
            try:
                await self._pool.run(partial(self._perform, VERBS[name], form))
            finally:
                self._state.forget()
            return RedirectResponse(ROOT + ACTIONS[name], 303, HEADERS)

        return act

    def _access(self, request: Request) -> Access:
        """Return what a browser that is logged in may do. Raises LoginNeeded for others."""
        if (access := self._sessions.access(request)) is None:
            raise LoginNeeded
        return access

    def _perform(self, verb: Callable[..., Done], form: QueryParams) -> None:
        """Do what a form asks, in a thread. Raises MemlineError."""
        named, settings = form.get("agent", ""), self._tools.settings
        agents = tuple(
            self._tools.memory(name).settings for name in ([named] if named else self._tools.agents)
        )
        texts = {name: text for name, text in form.items() if name not in ("form_token", "agent")}
        verb(Asker(settings=settings, agents=agents, agent=named), **check(verb, texts))

    def _check_form(self, request: Request, form: QueryParams) -> None:
        """Raise AccessDenied for a POST that no form of ours sent."""
        if not session.is_own_form(request.cookies, form.get("form_token", "")):
            raise AccessDenied(
                "this form is not from this page, or too old", hint="open the page again, and repeat it"
            )

    async def _show_login(self, request: Request) -> Response:
        if self._sessions.access(request):
            return RedirectResponse(ROOT + "/", 303, HEADERS)
        return self._login_page(request)

    def _login_page(self, request: Request, error: str = "", status: int = 200) -> Response:
        return self._html(request, "login.html", {"title": "Log in", "error": error}, status)

    async def _log_in(self, request: Request) -> Response:
        form = await read_form(request)
        self._check_form(request, form)
        token, address = form.get("token", "").strip(), address_of(request.scope)
        access = self._authenticator.access_by_token(token, address)
        wait_s = self._authenticator.wait_s(address, has_access=access is not None, has_token=bool(token))
        if wait_s:
            words = f"Too many wrong tokens: try again in {wait_s:.0f} s."
            return self._login_page(request, words, 429)
        if access is None or access.only or not self._authenticator.has_tokens:
            _LOG.warning("login.refused", address=address)
            words = "The dashboard is of all agents: log in with serve.token." if access else ""
            return self._login_page(request, words or "The token is not known.", 401)
        response = RedirectResponse(ROOT + "/", 303, HEADERS)
        cookie, seconds = self._sessions.cookie(), session.SESSION_S
        session.put_cookie(
            response, session.SESSION_COOKIE, cookie, headers=request.headers, max_age_s=seconds
        )
        return response

    async def _log_out(self, request: Request) -> Response:
        self._check_form(request, await read_form(request))
        response = RedirectResponse(ROOT + "/login", 303, HEADERS)
        for name in (session.SESSION_COOKIE, session.FORM_COOKIE):
            session.put_cookie(response, name, "", headers=request.headers, max_age_s=0)
        return response

    async def _lead_to_login(self, _request: Request, _error: Exception) -> Response:
        return RedirectResponse(f"{ROOT}/login", 303, HEADERS)

    async def _refuse(self, request: Request, error: Exception) -> Response:
        """Answer with a page that says what is wrong."""
        if isinstance(error, HTTPException):
            status, words, hint = error.status_code, error.detail, ""
            if status == 404:
                words = "there is no such page"
        else:
            assert isinstance(error, MemlineError)
            status, words = status_of(error), error.message
            hint = self._tools.options().as_typed(error.hint)
        return self._html(request, "error.html", {"title": "Error", "error": words, "hint": hint}, status)

    def _html(
        self, request: Request, template: str, context: Mapping[str, object], status: int = 200
    ) -> Response:
        """Render a template within the layout, and give the browser the cookie of its forms."""
        form_token, access = session.form_token(request.cookies), self._sessions.access(request)
        frame = {
            "page": None,
            "nav": PAGES,
            "client": access.client if access else "",
            "has_login": self._authenticator.has_tokens,
            "form_token": form_token,
        }
        text = self._templates.get_template(template).render({**frame, **context})
        # A lone surrogate of a file's name cannot be sent.
        content = text.encode("utf-8", "replace")
        response = Response(content, status, HEADERS, media_type="text/html; charset=utf-8")
        if request.cookies.get(session.FORM_COOKIE) != form_token:
            session.put_cookie(
                response, session.FORM_COOKIE, form_token, headers=request.headers, max_age_s=None
            )
        return response
