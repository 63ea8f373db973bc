"""Serve the dashboard: routes of its pages, actions and static files, login, and the stream of events.

`producers.http.auth.Guard` has looked at the session cookie before: a request of a browser that is logged
in has its `Access` in the scope. Every answer carries a policy that allows nothing inline and nothing of
other origins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote, unquote

import anyio.to_thread
from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from memline.producers.agents.pool import Pool
from memline.producers.agents.tools import MemoryTools
from memline.producers.calls.rows import OWNER
from memline.producers.calls.table import CALLS
from memline.producers.http.auth import ACCESS, Access, Authenticator, address_of
from memline.producers.http.responses import error_response, status_of, wants_page
from memline.producers.web import (
    charts_page,
    files_page,
    jobs_page,
    overview_page,
    queues_page,
    search_page,
    session,
)
from memline.producers.web.event_stream import EventStream
from memline.producers.web.forms import HEADERS, address_here, lead_on, own_page, read_form, words_before
from memline.producers.web.live import LiveFigures
from memline.producers.web.page import (
    GROUPS,
    Action,
    FormFrame,
    Page,
    PageMissing,
    Redirect,
    Runs,
    Site,
    View,
    acting,
    require_owner,
)
from memline.producers.web.rendering import ROOT, Renderer, Static
from memline.producers.web.snapshot import Snapshot
from memline.producers.web.strip import Strip, strip_of
from memline.shared.config.installation import Serve
from memline.shared.config.load import Loaded
from memline.shared.errors import AccessDenied, MemlineError, QueueError
from memline.shared.figures.kept_actions import keep
from memline.shared.logs import AUDIT, Log

#: Fields of a form that the one which asks first makes anew.
_OF_FORM = frozenset(("ask", "form_token", "once"))

#: The header by which the script asks for one block of a page.
FRAGMENT = "memline-fragment"

_LOG = Log("web")
_AUDIT = Log(AUDIT)


#: A module of pages has `PAGES`, and `ACTIONS` where it has some.
MODULES = (overview_page, search_page, files_page, queues_page, jobs_page, charts_page)

PAGES: tuple[Page, ...] = tuple(page for module in MODULES for page in module.PAGES)

#: What the forms of the pages do: the actions of the table with a button, and those with a form of their own.
ACTIONS: tuple[Action, ...] = (
    *(acting(call) for call in CALLS.values() if call.button and call.run),
    *(action for module in MODULES for action in getattr(module, "ACTIONS", ())),
)


class Dashboard:
    """The pages of one server, as an application below ROOT."""

    def __init__(
        self,
        tools: MemoryTools,
        serve: Serve,
        authenticator: Authenticator,
        pool: Pool,
        *,
        loaded: Loaded | None = None,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._pool = pool
        self._authenticator = authenticator
        self.sessions = session.Sessions(authenticator, ended=tools.settings.home / "sessions.ended")
        self._is_stopping = is_stopping
        agents = [tools.settings.agents[name] for name in tools.agents]
        self.live = LiveFigures(tools.settings, agents, warnings=loaded.warnings if loaded else ())
        self._site = Site(
            tools=tools,
            loaded=loaded,
            live=self.live,
            runs=Runs(),
            is_read_only=serve.read_only,
            has_page=self._has_page,
        )
        self._static = Static(serve.base_path)
        self._renderer = Renderer(self._static)
        self._events_of = EventStream(self.live, self._renderer, self._strip)
        self.app = Starlette(
            routes=[
                Route("/static/{digest}/{name}", self._send_static, methods=["GET"]),
                Route("/login", self._show_login, methods=["GET"]),
                Route("/login", self._log_in, methods=["POST"]),
                Route("/logout", self._log_out, methods=["POST"]),
                Route("/events", self._events, methods=["GET"]),
                *(
                    Route(page.path, self._page(page), methods=["GET"])
                    for page in PAGES
                    if self._is_served(page)
                ),
                *(
                    Route(each.path, self._action(each), methods=["POST"])
                    for each in ACTIONS
                    if self._is_served(each)
                ),
            ],
            exception_handlers={
                MemlineError: self._refuse,
                HTTPException: self._refuse,
                Redirect: self._redirect,
            },
        )
        self.app.router.redirect_slashes = False

    def access(self, cookies: Mapping[str, str], address: str) -> Access | None:
        """Return what a browser with these cookies may do; None when it has to log in."""
        return self.sessions.access(cookies, address)

    async def follow(self, is_stopping: Callable[[], bool]) -> None:
        """Read the state while browsers watch, until cancelled."""
        await self.live.run(is_stopping)

    def _is_served(self, entry: Page | Action) -> bool:
        return self._site.has_queue or not entry.needs_queue

    def _opens(self, page: Page, only: str) -> bool:
        """Say whether a page is there for a token; `only`: the agent that it opens, empty for all."""
        return self._is_served(page) and not (only and page.is_for_all)

    def _has_page(self, path: str, only: str) -> bool:
        return any(page.path == path and self._opens(page, only) for page in PAGES)

    def _strip(self, snapshot: Snapshot, only: str) -> Strip:
        return strip_of(snapshot, only, has_page=lambda path: self._has_page(path, only))

    def _view(self, request: Request, form: QueryParams | None = None) -> View:
        """Return the view of a browser that is logged in. Raises Redirect to the login for others."""
        access: Access | None = request.scope.get(ACCESS)
        if access is None:
            raise Redirect(f"{ROOT}/login?next={quote(address_here(request))}")
        return View(
            site=self._site,
            access=access,
            query=request.query_params,
            path=request.path_params,
            form=form or QueryParams(),
        )

    def _page(self, page: Page) -> Callable[[Request], Any]:
        async def show(request: Request) -> Response:
            view = self._view(request)
            if page.is_for_all:
                require_owner(view)
            fragment = request.headers.get(FRAGMENT, "")
            form_token = session.form_token(request.cookies)
            done = unquote(request.cookies.get(session.DONE_COOKIE, ""))
            here = address_here(request)
            text = await self._pool.run(partial(self._draw, page, view, fragment, form_token, here, done))
            if text is None:
                raise PageMissing("there is no such part of the page")
            response = self._html(request, text, form_token)
            if done and not fragment:
                session.put_cookie(response, session.DONE_COOKIE, "", headers=request.headers, max_age_s=0)
            return response

        return self._guarded(show)

    def _draw(
        self, page: Page, view: View, fragment: str, form_token: str, here: str, done: str
    ) -> str | None:
        """Read what the page shows and render it, or one block of it. In a thread."""
        # A part is asked for because something was just read.
        snapshot = self.live.read() if fragment else self.live.read(0.0)
        frame = self._frame(view, page.title, form_token, here, snapshot)
        told = view.told(*page.tells) if page.tells else None
        context = {**frame, "done": done, "told": told, **page.data(view)}
        if fragment:
            return self._renderer.fragment(page.template, fragment, context)
        return self._renderer.page(page.template, context)

    def _frame(
        self,
        view: View | None,
        title: str,
        form_token: str,
        here: str = ROOT + "/",
        snapshot: Snapshot | None = None,
    ) -> dict[str, object]:
        """Return what the layout needs; without a view, where no user is logged in."""
        pages = [each for each in PAGES if view and self._opens(each, view.access.only)]
        groups = [(name, [each for each in pages if each.group == name]) for name in GROUPS]
        return {
            "title": title,
            "strip": self._strip(snapshot, view.access.only) if view and snapshot else None,
            "nav": [(name, found) for name, found in groups if found],
            "view": view,
            "form": FormFrame(token=form_token, can_act=bool(view and view.can_act), here=here),
            "has_login": self.sessions.need_login,
            "done": "",
            "told": None,
        }

    def _action(self, action: Action) -> Callable[[Request], Any]:
        async def act(request: Request) -> Response:
            form = await read_form(request)
            view = self._view(request, form)
            self._check_form(request, form)
            if action.call.rights == OWNER:
                require_owner(view)
            view.access.caller().check_acting()
            if not view.can_act:
                raise AccessDenied("this server is read-only", hint="start memline serve without --read-only")
            if form.get("ask") == "1":
                return await self._ask(request, action, view)
            number = form.get("once", "")[:64]
            if number and not session.FORMS.begin(number):
                words, target = session.FORMS.said(number)
                return lead_on(request, target or form.get("next", ""), f"Done already, and once: {words}")
            said: str | None = None
            try:
                done = await self._pool.run(partial(action.run, view))
                target = ROOT + done.page if done.page else form.get("next", "")
                said = " ".join((*done.words, *done.notes))
            finally:
                session.FORMS.end(number, None if said is None else (said, target))
                self.live.forget()
            return lead_on(request, target, said)

        return self._guarded(act)

    async def _ask(self, request: Request, action: Action, view: View) -> Response:
        """Show what an action would lose and cost, and the button that does it."""
        form_token, target = session.form_token(request.cookies), view.form.get("next", "")
        lines = await self._pool.run(partial(words_before, action.call.name, view))
        snapshot = await self._pool.run(self.live.read)
        label = action.call.button or action.call.name.rpartition(" ")[2].capitalize()
        context: Mapping[str, object] = {
            **self._frame(view, f"{label}?", form_token, snapshot=snapshot),
            "lines": lines,
            "path": action.path,
            "label": label,
            "back": own_page(target),
            "fields": [each for each in view.form.multi_items() if each[0] not in _OF_FORM],
        }
        return self._html(request, self._renderer.page("confirm.html", context), form_token)

    def _check_form(self, request: Request, form: QueryParams) -> None:
        """Raise AccessDenied for a POST that no form of ours sent."""
        if not session.is_own_form(request.headers, request.cookies, form.get("form_token", "")):
            raise AccessDenied(
                "this form is not from this page, or too old", hint="open the page again, and repeat it"
            )

    async def _show_login(self, request: Request) -> Response:
        if ACCESS in request.scope:
            return RedirectResponse(ROOT + "/", 303, HEADERS)
        return self._login_page(request, request.query_params.get("next", ""))

    def _login_page(self, request: Request, target: str, error: str = "", status: int = 200) -> Response:
        form_token = session.form_token(request.cookies)
        context = {**self._frame(None, "Log in", form_token), "next": target, "error": error}
        return self._html(request, self._renderer.page("login.html", context), form_token, status)

    async def _log_in(self, request: Request) -> Response:
        form = await read_form(request)
        self._check_form(request, form)
        target, token = form.get("next", ""), form.get("token", "").strip()
        address = address_of(request.scope)
        access = self._authenticator.access_by_token(token, address)
        wait_s = self._authenticator.wait_s(address, has_access=access is not None, has_token=bool(token))
        if wait_s or access is None or not self.sessions.need_login:
            _AUDIT.warning(
                "audit.login", by=address, error="wrong token" if access is None else "has to wait"
            )
            error = (
                f"Too many wrong tokens: try again in {wait_s:.0f} s."
                if wait_s
                else "The token is not known."
            )
            return self._login_page(request, target, error, 429 if wait_s else 401)
        _AUDIT.info("audit.login", by=access.client, address=address)
        path, fields = self._site.settings.account_path, {"address": address}
        login = partial(keep, path, by=access.client, action="login", agent=access.only, fields=fields)
        await anyio.to_thread.run_sync(login)
        response = RedirectResponse(own_page(target), 303, HEADERS)
        session.put_cookie(
            response,
            session.SESSION_COOKIE,
            self.sessions.cookie(access),
            headers=request.headers,
            max_age_s=session.SESSION_S,
        )
        return response

    async def _log_out(self, request: Request) -> Response:
        self._check_form(request, await read_form(request))
        self.sessions.end(request.cookies, address_of(request.scope))
        response = RedirectResponse(ROOT + "/login", 303, HEADERS)
        for name in (session.SESSION_COOKIE, session.FORM_COOKIE, session.DONE_COOKIE):
            session.put_cookie(response, name, "", headers=request.headers, max_age_s=0)
        return response

    async def _send_static(self, request: Request) -> Response:
        found = self._static.find(request.path_params["digest"], request.path_params["name"])
        if found is None:
            raise HTTPException(404, "not found")
        content, media_type = found
        caching = {"cache-control": "public, max-age=31536000, immutable"}
        return Response(content, media_type=media_type, headers=HEADERS | caching)

    async def _events(self, request: Request) -> Response:
        access: Access | None = request.scope.get(ACCESS)
        # 204 tells an EventSource not to try again. Who wants no body must not take the place of a page.
        if access is None or request.method == "HEAD":
            return Response(status_code=204, headers=HEADERS)
        if self.live.is_full:
            raise QueueError("too many browsers watch", hint="close some, or refresh the page by hand")

        def is_allowed() -> bool:
            """Say whether it is not logged out meanwhile."""
            return self.access(request.cookies, address_of(request.scope)) is not None

        said = self._events_of.told(access.only, is_allowed, self._is_stopping)
        return StreamingResponse(said, media_type="text/event-stream", headers=HEADERS)

    def _html(self, request: Request, text: str, form_token: str, status: int = 200) -> Response:
        response = Response(text.encode("utf-8", "replace"), status, HEADERS, "text/html")
        if request.cookies.get(session.FORM_COOKIE) != form_token:
            session.put_cookie(
                response, session.FORM_COOKIE, form_token, headers=request.headers, max_age_s=None
            )
        return response

    async def _redirect(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, Redirect)
        if request.headers.get(FRAGMENT):
            return Response(status_code=401, headers=HEADERS)
        return RedirectResponse(error.target, 303, HEADERS)

    async def missing(self, request: Request) -> Response:
        """Answer a browser that asked for an address that is not there."""
        return await self._refuse(request, HTTPException(404, "there is no such page"))

    async def _refuse(self, request: Request, error: Exception) -> Response:
        """Answer an error with a page that says what happened and what to do."""
        if isinstance(error, HTTPException):
            status, what, hint = error.status_code, error.detail, "the links above lead to what there is"
        else:
            assert isinstance(error, MemlineError)
            status = 404 if isinstance(error, PageMissing) else status_of(error)
            what, hint = error.message, error.hint
        if not wants_page(request.headers):
            return error_response(status, what, hint)
        return await self._error_page(request, status, what, hint)

    def _guarded(self, answer: Callable[[Request], Any]) -> Callable[[Request], Any]:
        """Answer at the boundary to the browser: it must not see the inside, and the log must, once."""

        async def guarded(request: Request) -> Response:
            try:
                response: Response = await answer(request)
                return response
            except (MemlineError, HTTPException, Redirect):
                raise
            except Exception as error:
                kind = type(error).__name__
                _LOG.exception("request.failed", path=request.url.path, kind=kind)
                what = f"The request failed unexpectedly ({kind})."
                return await self._error_page(request, 500, what, "look at the log of the server")

        return guarded

    async def _error_page(self, request: Request, status: int, what: str, hint: str) -> Response:
        access: Access | None = request.scope.get(ACCESS)
        view = View(site=self._site, access=access) if access else None
        form_token = session.form_token(request.cookies)
        # Not of the pool, which may be full; and not where it may be what failed.
        snapshot = await anyio.to_thread.run_sync(self.live.read) if view and status != 500 else None
        context: Mapping[str, object] = {
            **self._frame(view, "Not possible", form_token, snapshot=snapshot),
            "status": status,
            "what": what,
            "hint": hint,
        }
        return self._html(request, self._renderer.page("error.html", context), form_token, status)
