"""Know who a browser is: a signed cookie after a token was given once, and a second token in every form.

The session cookie is `<name of the token>.<end>.<signature>`, the name in base64 and the end in seconds
since the epoch. It is signed with a key that is made of the token: it outlives a restart of the server,
and ends when the token is changed. It holds no secret. Where no token is set (loopback alone) there is no
login.

A form carries the value of the form cookie (double submit): another site can neither read nor set it.
"""

from __future__ import annotations

import base64
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from hashlib import sha256

from starlette.datastructures import Headers
from starlette.responses import Response

from memline.producers.api.auth import Access, Authenticator
from memline.producers.web.rendering import ROOT

SESSION_COOKIE = "memline_session"
FORM_COOKIE = "memline_form"
#: What came of the last action, until the next page has shown it.
DONE_COOKIE = "memline_done"

#: Seconds that a login is good for.
SESSION_S = 12 * 3600

#: Bytes of the value of a form cookie.
_FORM_BYTES = 18


class Sessions:
    """Sign and check session cookies. Only the token of all agents opens the dashboard."""

    def __init__(self, authenticator: Authenticator, *, now: Callable[[], float] = time.time) -> None:
        self._authenticator = authenticator
        self._now = now

    @property
    def need_login(self) -> bool:
        return self._authenticator.has_tokens

    def access(self, cookies: Mapping[str, str], address: str) -> Access | None:
        """Return what a browser with these cookies may do; None when it has to log in."""
        if not self.need_login:
            return self._authenticator.access({}, address)
        name, _, rest = cookies.get(SESSION_COOKIE, "").partition(".")
        end, _, signature = rest.partition(".")
        client = _decoded(name)
        key = self._authenticator.key_of(client)
        if key is None or not hmac.compare_digest(signature.encode(), _sign(key, name, end)):
            return None
        if not end.isdecimal() or int(end) < self._now():
            return None
        access = self._authenticator.access_by_name(client)
        return None if access is None or access.only else access

    def cookie(self, access: Access) -> str:
        """Make the value of a session cookie for a token that was checked."""
        key = self._authenticator.key_of(access.client)
        assert key is not None
        name = base64.urlsafe_b64encode(access.client.encode()).decode().rstrip("=")
        end = str(int(self._now()) + SESSION_S)
        return f"{name}.{end}.{_sign(key, name, end).decode()}"


def _sign(key: bytes, name: str, end: str) -> bytes:
    return hmac.new(key, f"dashboard session {name}.{end}".encode(), sha256).hexdigest().encode()


def _decoded(name: str) -> str:
    try:
        return base64.urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode()
    except ValueError:
        return ""


def form_token(cookies: Mapping[str, str]) -> str:
    """Return the value that forms carry: that of the cookie, or a new one."""
    known = cookies.get(FORM_COOKIE, "")
    is_ours = len(known) == 2 * _FORM_BYTES and known.isascii() and known.isalnum()
    return known if is_ours else secrets.token_hex(_FORM_BYTES)


def is_own_form(headers: Headers, cookies: Mapping[str, str], sent: str) -> bool:
    """Say whether a POST comes from a form of ours: by its origin, and by the double-submit token."""
    host = headers.get("host", "").lower()
    if origin := headers.get("origin", "").lower():
        is_same_origin = origin in (f"http://{host}", f"https://{host}")
    else:
        is_same_origin = headers.get("sec-fetch-site") == "same-origin"
    cookie = cookies.get(FORM_COOKIE, "")
    return (
        is_same_origin
        and bool(cookie)
        and hmac.compare_digest(cookie.encode(), sent.encode("utf-8", "replace"))
    )


def put_cookie(response: Response, name: str, text: str, *, headers: Headers, max_age_s: int | None) -> None:
    """Set a cookie that no script and no other site gets; 0 s removes it, None: until the browser ends."""
    # Behind a proxy the server itself sees http; the browser says in its POST where the page came from.
    is_secure = headers.get("origin", "").startswith("https://")
    response.set_cookie(
        name, text, max_age=max_age_s, path=ROOT, httponly=True, samesite="strict", secure=is_secure
    )
