"""Know who a browser is: a signed cookie after a token was given once, and a second token in every form.

The session cookie is `<end>.<signature>`, the end in seconds since the epoch. It is signed with a key that is
made of `serve.token`: it outlives a restart of the server, and ends when the token is changed. It holds no
secret. Where no token is set (loopback alone) there is no login.

A form carries the value of the form cookie (double submit): another site can neither read nor set it.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Mapping

from starlette.datastructures import Headers, QueryParams
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from memline.producers.api.auth import Access, Authenticator, address_of
from memline.producers.web.rendering import ROOT
from memline.shared.errors import BadRequest

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


class Sessions:
    """Sign and check session cookies. Only the token of all agents opens the dashboard."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    def access(self, request: Request) -> Access | None:
        """Return what a browser with these cookies may do; None when it has to log in."""
        if not self._authenticator.has_tokens:
            return Access(client=address_of(request.scope))
        end, _, signature = request.cookies.get(SESSION_COOKIE, "").partition(".")
        is_ours = signature and hmac.compare_digest(
            signature.encode(), self._authenticator.sign(end).encode()
        )
        return Access(client="token") if is_ours and int(end) >= time.time() else None

    def cookie(self) -> str:
        """Make the value of a session cookie for `serve.token`, which was checked."""
        end = str(int(time.time()) + SESSION_S)
        return f"{end}.{self._authenticator.sign(end)}"


def form_token(cookies: Mapping[str, str]) -> str:
    """Return the value that forms carry: that of the cookie, or a new one."""
    known = cookies.get(FORM_COOKIE, "")
    is_ours = len(known) == 2 * _FORM_BYTES and known.isascii() and known.isalnum()
    return known if is_ours else secrets.token_hex(_FORM_BYTES)


def is_own_form(cookies: Mapping[str, str], sent: str) -> bool:
    """Say whether a POST is a form of ours, by its double-submit token; the guard checks its origin."""
    cookie = cookies.get(FORM_COOKIE, "")
    return bool(cookie) and hmac.compare_digest(cookie.encode(), sent.encode("utf-8", "replace"))


def put_cookie(response: Response, name: str, text: str, *, headers: Headers, max_age_s: int | None) -> None:
    """Set a cookie that no script and no other site gets; 0 s removes it, None: until the browser ends."""
    # Behind a proxy the server itself sees http; the browser says in its POST where the page came from.
    is_secure = headers.get("origin", "").startswith("https://")
    response.set_cookie(
        name, text, max_age=max_age_s, path=ROOT, httponly=True, samesite="strict", secure=is_secure
    )


async def read_form(request: Request) -> QueryParams:
    """Return the fields of a form. Raises BadRequest."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise BadRequest("the body is not that of a form", hint="use the buttons of the page")
    try:
        return QueryParams((await request.body()).decode())
    except (ValueError, ClientDisconnect) as error:
        words = "the body of the form is incomplete, or not UTF-8"
        raise BadRequest(words, hint="use the buttons of the page") from error
