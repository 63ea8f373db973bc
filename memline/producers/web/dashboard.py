"""Serve the dashboard: routes of its pages, actions and static files, login and logout.

The session cookie is `<end>.<signature>`, the end in seconds since the epoch. It is signed with a key that is
made of `serve.token`: it outlives a restart of the server, and ends when the token is changed. Where no token
is set (loopback alone) there is no login. A form carries the value of the form cookie (double submit):
another site can neither read nor set it.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.staticfiles import StaticFiles
from starlette.types import Message, Receive, Scope, Send

from memline.producers.actions.verbs import VERBS, Asker, Done
from memline.producers.api.arguments import check
from memline.producers.api.auth import Authenticator, address_of
from memline.producers.api.calls import Calls, Pool
from memline.producers.api.responses import status_of
from memline.producers.reports.state import StateReader
from memline.producers.web.pages import PAGES, Page, View
from memline.producers.web.rendering import HERE, ROOT, environment, path_of
from memline.shared.errors import AccessDenied, BadRequest, MemlineError
from memline.shared.logs import Log

#: The commands that have a button, each with the page that has it.
ACTIONS = {
    **dict.fromkeys(("jobs pause", "jobs resume", "jobs cancel"), "/jobs"),
    **dict.fromkeys(("queue pause", "queue resume"), "/"),
    **dict.fromkeys(("queue requeue", "queue drop"), "/queue"),
}

SESSION_COOKIE = "memline_session"
FORM_COOKIE = "memline_form"

#: Seconds that a login is good for.
SESSION_S = 12 * 3600

#: Bytes of the value of a form cookie.
_FORM_BYTES = 18


#: Of every answer. Same-origin, not no-referrer: with that, browsers send `Origin: null` with the forms of
#: the page itself.
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}

_LOG = Log("web")


class LoginNeeded(Exception):
    """Sends the browser to the login."""


class Dashboard:
    """The pages of one server: an application below ROOT."""

    def __init__(self, tools: Calls, authenticator: Authenticator, pool: Pool) -> None:
        self._tools = tools
        self._authenticator = authenticator
        self._pool = pool
        self._state = StateReader(tools.settings, tools.served)
        self._templates = environment(tools)
        router = Router(
            [
                Mount("/static", app=StaticFiles(directory=HERE / "static")),
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
        async def with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self._app(scope, receive, with_policy)

    def _page(self, page: Page) -> Callable[[Request], Any]:
        async def show(request: Request) -> Response:
            self._require_login(request)
            view = View(tools=self._tools, state=self._state, query=request.query_params)
            data = await self._pool.run(partial(page.data, view))
            return self._html(request, page.template, {"title": page.title, "page": page, **data})

        return show

    def _action(self, name: str) -> Callable[[Request], Any]:
        async def act(request: Request) -> Response:
            self._require_login(request)
            form = await self._read_form(request)
            try:
                await self._pool.run(partial(self._perform, VERBS[name], form))
            finally:
                self._state.forget()
            return RedirectResponse(ROOT + ACTIONS[name], 303)

        return act

    def _is_known(self, request: Request) -> bool:
        """Say whether a browser with these cookies may see the pages; else it has to log in."""
        if not self._authenticator.has_tokens:
            return True
        end, _, signature = request.cookies.get(SESSION_COOKIE, "").partition(".")
        signed = self._authenticator.sign(end)
        is_ours = bool(signature) and hmac.compare_digest(signature.encode(), signed.encode())
        return is_ours and int(end) >= time.time()

    def _require_login(self, request: Request) -> None:
        """Raise LoginNeeded for a browser that is not logged in."""
        if not self._is_known(request):
            raise LoginNeeded

    def _perform(self, verb: Callable[..., Done], form: QueryParams) -> None:
        """Do what a form asks, in a thread. Raises MemlineError."""
        named, settings = form.get("agent", ""), self._tools.settings
        agents = tuple(
            self._tools.memory(name).settings for name in ([named] if named else self._tools.agents)
        )
        texts = {name: text for name, text in form.items() if name not in ("form_token", "agent")}
        verb(Asker(settings=settings, agents=agents, agent=named), **check(verb, texts))

    async def _read_form(self, request: Request) -> QueryParams:
        """Return the fields of a form of ours; the guard has checked its origin.

        Raises BadRequest, and AccessDenied for a form without the value of its cookie.
        """
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/x-www-form-urlencoded":
            raise BadRequest("the body is not that of a form", hint="use the buttons of the page")
        try:
            form = QueryParams((await request.body()).decode())
        except (ValueError, ClientDisconnect) as error:
            words = "the body of the form is incomplete, or not UTF-8"
            raise BadRequest(words, hint="use the buttons of the page") from error
        cookie, sent = request.cookies.get(FORM_COOKIE, ""), form.get("form_token", "")
        if not cookie or not hmac.compare_digest(cookie.encode(), sent.encode("utf-8", "replace")):
            words = "this form is not from this page, or too old"
            raise AccessDenied(words, hint="open the page again, and repeat it")
        return form

    async def _show_login(self, request: Request) -> Response:
        if self._is_known(request):
            return RedirectResponse(ROOT + "/", 303)
        return self._login_page(request)

    def _login_page(self, request: Request, error: str = "", status: int = 200) -> Response:
        return self._html(request, "login.html", {"title": "Log in", "error": error}, status)

    async def _log_in(self, request: Request) -> Response:
        form = await self._read_form(request)
        token, address = form.get("token", "").strip(), address_of(request.scope)
        access, wait_s = self._authenticator.admit(token, address)
        if wait_s:
            words = f"Too many wrong tokens: try again in {wait_s:.0f} s."
            return self._login_page(request, words, 429)
        if access is None or access.only or not self._authenticator.has_tokens:
            _LOG.warning("login.refused", address=address)
            words = "The dashboard is of all agents: log in with serve.token." if access else ""
            return self._login_page(request, words or "The token is not known.", 401)
        response = RedirectResponse(ROOT + "/", 303)
        end = str(int(time.time()) + SESSION_S)
        cookie = f"{end}.{self._authenticator.sign(end)}"
        put_cookie(response, SESSION_COOKIE, cookie, headers=request.headers, max_age_s=SESSION_S)
        return response

    async def _log_out(self, request: Request) -> Response:
        await self._read_form(request)
        response = RedirectResponse(ROOT + "/login", 303)
        for name in (SESSION_COOKIE, FORM_COOKIE):
            put_cookie(response, name, "", headers=request.headers, max_age_s=0)
        return response

    async def _lead_to_login(self, _request: Request, _error: Exception) -> Response:
        return RedirectResponse(f"{ROOT}/login", 303)

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
        form_token = request.cookies.get(FORM_COOKIE, "")
        if len(form_token) != 2 * _FORM_BYTES or not form_token.isalnum() or not form_token.isascii():
            form_token = secrets.token_hex(_FORM_BYTES)
        frame = {
            "page": None,
            "nav": PAGES,
            "is_known": self._is_known(request),
            "has_login": self._authenticator.has_tokens,
            "form_token": form_token,
        }
        text = self._templates.get_template(template).render({**frame, **context})
        # A lone surrogate of a file's name cannot be sent.
        content = text.encode("utf-8", "replace")
        response = Response(content, status, media_type="text/html; charset=utf-8")
        if request.cookies.get(FORM_COOKIE) != form_token:
            put_cookie(response, FORM_COOKIE, form_token, headers=request.headers, max_age_s=None)
        return response


def put_cookie(response: Response, name: str, text: str, *, headers: Headers, max_age_s: int | None) -> None:
    """Set a cookie that no script and no other site gets; 0 s removes it, None: until the browser ends."""
    # Behind a proxy the server itself sees http; the browser says in its POST where the page came from.
    is_secure = headers.get("origin", "").startswith("https://")
    response.set_cookie(
        name, text, max_age=max_age_s, path=ROOT, httponly=True, samesite="strict", secure=is_secure
    )
