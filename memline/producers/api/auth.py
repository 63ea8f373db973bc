"""Decide about a request before anything is done for it: Host and Origin, token, limits, body.

Host and Origin come first: a web page that a browser shows must not reach a server on loopback, neither by
its own name turned to 127.0.0.1 (DNS rebinding) nor across origins. Then the token and the limits. The scope
then carries what the request may do.
"""

import hashlib
import hmac
import ipaddress
import re
import socket
import time
from typing import cast

import msgspec
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memline.producers.api.calls import Caller
from memline.producers.api.responses import error_response
from memline.shared.config.installation import Serve
from memline.shared.errors import AccessDenied

#: Where `Access` is found in the scope of a request.
ACCESS = "memline.access"

#: Where pages for browsers are; a session cookie opens them instead of a bearer token.
DASHBOARD = "/ui/"

#: Answered without a token: they show nothing but that the server is there.
OPEN_PATHS = frozenset({"/health", "/ready", "/", "/ui"})

#: Bytes of a body at most.
MAX_BODY_BYTES = 1_048_576

#: Wrong tokens that an address may send in a minute.
MAX_WRONG_TOKENS = 20

#: Seconds that a wrong token counts.
WINDOW_S = 60.0

#: Clients that are counted; the one that was silent for longest is dropped first.
MAX_CLIENTS = 2_000

#: A name or an address, and maybe a port; nothing that another reader could take for a part of a URL.
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::\d*)?", re.ASCII)


class Access(msgspec.Struct, frozen=True):
    """What a request may do."""

    #: The one agent that the token opens; empty: all.
    only: str = ""

    def caller(self, agent: str, session_key: str, *, default_agent: str) -> Caller:
        """Return the caller that the request names. Raises AccessDenied for an agent of another token."""
        if self.only and agent not in ("", self.only):
            # The same words for agents that exist and that do not.
            words = f"this token does not open the agent {agent[:80]!r}"
            raise AccessDenied(words, hint=f"leave agent out, or name {self.only}")
        agent = agent or self.only or default_agent
        return Caller(agent=agent, session_key=session_key)

    def require_all(self) -> None:
        """Raise AccessDenied for the token of one agent."""
        if self.only:
            raise AccessDenied("this is of all agents", hint="use serve.token")


class Authenticator:
    """Find what a token opens.

    Tokens are compared as digests in constant time, all of them for every request, so that neither the answer
    nor its time tells how much of a guess was right.
    """

    def __init__(self, serve: Serve) -> None:
        tokens = {"": serve.token, **serve.tokens}
        #: Digest of each token, by the agent that it opens alone; "" for all.
        self._tokens = {agent: _digest(token) for agent, token in tokens.items() if token}
        #: When each address sent wrong tokens in the last minute, the address of the latest last.
        self._wrong_tokens: dict[str, list[float]] = {}

    @property
    def has_tokens(self) -> bool:
        """Say whether a token is needed; without any, every client may ask."""
        return bool(self._tokens)

    def admit(self, token: str, address: str) -> tuple[Access | None, float]:
        """Return what a token opens, and the seconds that its sender has to wait after many wrong ones.

        A good token never waits: behind a proxy all clients have one address. No token is none that is wrong.
        """
        if not self._tokens:
            return Access(), 0.0
        guess = _digest(token)
        opened = [agent for agent, each in self._tokens.items() if hmac.compare_digest(guess, each)]
        if opened or not token:
            return (Access(opened[0]) if opened else None), 0.0
        now = time.monotonic()
        recent = [at for at in self._wrong_tokens.pop(address, ()) if at > now - WINDOW_S]
        is_over = len(recent) >= MAX_WRONG_TOKENS
        self._wrong_tokens[address] = recent if is_over else [*recent, now]
        if len(self._wrong_tokens) > MAX_CLIENTS:
            self._wrong_tokens.pop(next(iter(self._wrong_tokens)))
        return None, recent[0] + WINDOW_S - now if is_over else 0.0

    def sign(self, text: str) -> str:
        """Sign a text with a key that is made of `serve.token`; empty without that token."""
        key = self._tokens.get("", b"")
        return hmac.new(key, f"dashboard session {text}".encode(), "sha256").hexdigest() if key else ""


class OriginCheck:
    """Refuses a foreign Host or Origin; a server on all addresses answers to any of them."""

    def __init__(self, serve: Serve) -> None:
        is_open = serve.host in ("0.0.0.0", "::", "")
        own_name = socket.gethostname() if is_open else serve.host
        names = ("localhost", "127.0.0.1", "::1", serve.host, own_name, *serve.allowed_hosts)
        self._hosts = frozenset(name.lower() for name in names if name)
        #: On all addresses and without names in the settings: an address cannot be turned to this machine.
        self._any_address = is_open and not serve.allowed_hosts

    def check(self, headers: Headers) -> Response | None:
        """Return an error for a foreign Host or Origin."""
        if not self._is_known_host(headers.getlist("host")):
            words = "this server does not answer to that Host"
            return error_response(421, words, "add the name to serve.allowedHosts")
        origin, host = ",".join(headers.getlist("origin")), headers.get("host", "").lower()
        is_foreign = not host or origin.lower() not in (f"http://{host}", f"https://{host}")
        if not origin:
            # A browser says this much: a picture or a form of another page asks.
            is_foreign = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        if is_foreign:
            words = "cross-origin requests are not allowed"
            return error_response(403, words, "ask from a program, or from a page of this server")
        return None

    def _is_known_host(self, values: list[str]) -> bool:
        if not values:
            # HTTP/1.0, as of the health check of a proxy. Every browser says the name that it asks for.
            return True
        match = _HOST.fullmatch(values[0]) if len(values) == 1 else None
        name = match[1].strip("[]").lower() if match else ""
        return name in self._hosts or (self._any_address and parse_address(name) is not None)


class Guard:
    """Middleware that checks Host and Origin, the token, and the size of the body as it is read."""

    def __init__(self, app: ASGIApp, *, serve: Serve, authenticator: Authenticator) -> None:
        self._app = app
        self._origins = OriginCheck(serve)
        self._authenticator = authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal, size = None, 0
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            refusal = self._origins.check(headers) or self._check_access(scope, headers)

        async def limited() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            # A little more is read: a client that is cut off may not see the answer.
            if size > MAX_BODY_BYTES * (2 if message.get("more_body") else 1):
                words = f"the request is larger than {MAX_BODY_BYTES} bytes"
                raise HTTPException(413, words, {"connection": "close"})
            return message

        if refusal is not None:
            await refusal(scope, receive, send)
        else:
            await self._app(scope, limited, send)

    def _check_access(self, scope: Scope, headers: Headers) -> Response | None:
        # The dashboard looks at its own cookie, and shows a login form.
        if scope["path"] in OPEN_PATHS or scope["path"].startswith(DASHBOARD):
            return None
        kind, _, token = headers.get("authorization", "").partition(" ")
        token = token.strip() if kind.lower() == "bearer" else ""
        access, wait_s = self._authenticator.admit(token, address_of(scope))
        if wait_s:
            seconds = str(int(wait_s) + 1)
            return error_response(
                429,
                "too many wrong tokens from this address",
                f"try again in {seconds} s",
                headers={"retry-after": seconds},
            )
        if access is None:
            what = "the token is not known" if token else "a token is needed"
            keys = "serve.token or serve.tokens in the configuration"
            hint = f"send the header Authorization: Bearer TOKEN ({keys})"
            return error_response(401, what, hint, headers={"www-authenticate": "Bearer"})
        scope[ACCESS] = access
        return None


def parse_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Read a numeric address; None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def address_of(scope: Scope) -> str:
    """Return the address of the client."""
    return scope["client"][0] if scope.get("client") else "?"


def access_of(scope: Scope) -> Access:
    """Return what the request may do; only of requests that passed the guard."""
    return cast(Access, scope[ACCESS])


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
