"""Speak HTTP to one provider. The only module that knows httpx; every failure is a `ProviderError`."""

from __future__ import annotations

import math
import ssl
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TypeVar

from memline.shared.clock import Clock
from memline.shared.embedders.endpoint import Endpoint
from memline.shared.embedders.provider_client import (
    CONNECT_TIMEOUT_S,
    EMBEDDINGS,
    LOOPBACK,
    MAX_ANSWER_BYTES,
    ProviderClient,
    Reply,
)
from memline.shared.embedders.provider_errors import redact_line, url_hint
from memline.shared.errors import ProviderBrokenAnswer, ProviderLater, ProviderStop, is_untrusted
from memline.shared.values import field, replace, value
from memline.shared.version import own_version

# httpx loads a command line program of its own where it finds click, rich and pygments: half of its import.
_PROGRAM = "httpx._main"
_is_left_out = "httpx" not in sys.modules
if _is_left_out:
    sys.modules[_PROGRAM] = None  # type: ignore[assignment]
import httpx  # noqa: E402

if _is_left_out:
    del sys.modules[_PROGRAM]

#: A file may take as long as it takes, as long as it comes at this rate; a trickle holds a worker for ever.
MIN_BYTES_A_SECOND = 1024

#: Redirects of a file: the provider's own address, or the storage behind it.
MAX_REDIRECTS = 3

TRUST_HINT = "set SSL_CERT_FILE to a file with the certificate of its authority, or check the address"

#: Errors of a request that was never sent.
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)

Query = Mapping[str, str | int]

T = TypeVar("T")


@value
class Upload:
    """A request body that is sent piece by piece."""

    content_type: str
    size: int
    #: Called for each attempt.
    pieces: Callable[[], Iterator[bytes]]
    #: More headers.
    headers: Mapping[str, str] = field(default_factory=dict)


@value
class _Call:
    """One request, and how long it may take."""

    method: str
    url: httpx.URL
    what: str
    content: bytes | Upload | None = field(repr=False)
    timeout_s: float
    #: Time at which all its attempts have to be over.
    deadline: float
    #: It must not have its effect twice; see `ProviderError.maybe_done`.
    once: bool


class HttpClient(ProviderClient):
    """Sends JSON and files to one endpoint of one provider. Safe to use from several threads."""

    def __init__(self, endpoint: Endpoint, *, timeout_s: float, clock: Clock | None = None) -> None:
        """`timeout_s` bounds a whole call, all its attempts and waits together; where a file is sent or
        received, the silence in between. Raises ProviderStop when the address or a header cannot be sent.
        """
        super().__init__(endpoint, timeout_s=timeout_s, clock=clock)
        try:
            self._base = httpx.URL(endpoint.base_url)
            self._client = self._new_client(self._headers(), has_tls=self._base.scheme == "https")
        except (httpx.InvalidURL, ValueError, OSError) as error:
            # Not `from error`: a header that cannot be encoded is part of the message of its error.
            reason = "a header or key holds a character that cannot be sent"
            if not isinstance(error, UnicodeError):
                reason = redact_line(str(error), endpoint.secrets)
            raise ProviderStop(self._message(EMBEDDINGS, reason), hint=endpoint.key_hint) from None

    def _post(self, path: str, content: bytes, what: str, *, timeout_s: float, once: bool) -> Reply:
        return self._ask(self._send, "POST", path, what, content, once=once, timeout_s=timeout_s)

    def get(self, path: str, *, query: Query | None = None, what: str) -> Reply:
        """Do as `post`, without a body."""
        return self._ask(self._send, "GET", path, what, query=query)

    def delete(self, path: str, *, what: str) -> Reply:
        """Do as `post`, without a body."""
        return self._ask(self._send, "DELETE", path, what)

    def upload(
        self, path: str, content: Upload, *, query: Query | None = None, service: str = "", what: str
    ) -> Reply:
        """Do as `post` with `once`, for a body of any size.

        `service`: a word before the last part of the base path, as Google has it (`/upload/v1beta`).
        """
        return self._ask(self._send, "POST", path, what, content, query=query, service=service, once=True)

    def download(
        self, path: str, *, query: Query | None = None, service: str = "", what: str
    ) -> Generator[bytes, None, None]:
        """Yield the bytes of a file as they arrive. Raises a ProviderError, also in the middle.

        Redirects are followed, to other places without key and headers: files may lie in another storage.
        """
        response, call = self._ask(self._open, "GET", path, what, query=query, service=service)
        waited_s, received = 0.0, 0
        with self._closing(response), self._translated(call):
            if response.headers.get("content-type", "").startswith("text/html"):
                text = self._message(what, "200, but a web page")
                raise ProviderBrokenAnswer(text, hint=url_hint(self._endpoint.provider), status=200)
            pieces = response.iter_bytes()
            while True:
                # Only the time of waiting counts: the caller may take its time between the pieces.
                asked = self._clock.now()
                piece = next(pieces, None)
                waited_s += self._clock.now() - asked
                if piece is None:
                    return
                received += len(piece)
                if waited_s > call.timeout_s and received < MIN_BYTES_A_SECOND * waited_s:
                    raise httpx.ReadTimeout("answer too slow")
                yield piece

    @property
    def is_closed(self) -> bool:
        return self._client.is_closed

    def close(self) -> None:
        self._client.close()
        if "_anonymous_client" in self.__dict__:
            self._anonymous_client.close()

    def _ask(
        self,
        send: Callable[[_Call], T],
        method: str,
        path: str,
        what: str,
        content: bytes | Upload | None = None,
        *,
        query: Query | None = None,
        service: str = "",
        once: bool = False,
        timeout_s: float | None = None,
    ) -> T:
        """Send a call until it works, its error is not one of a moment, or its attempts are over."""
        timeout_s = timeout_s or self._timeout_s
        url, deadline = self._url(path, query, service), self._clock.now() + timeout_s
        limits = {"timeout_s": timeout_s, "deadline": deadline}
        call = _Call(method=method, url=url, what=what, content=content, once=once, **limits)
        return self._attempt(lambda: send(call), deadline=deadline, once=once)

    def _url(self, path: str, query: Query | None, service: str) -> httpx.URL:
        root = self._base.path.rstrip("/")
        if service:
            before, _, last = root.rpartition("/")
            root = "/" + "/".join(filter(None, [before.lstrip("/"), service, last]))
        url = self._base.copy_with(path=root + path)
        return url.copy_merge_params(dict(query)) if query else url

    def _send(self, call: _Call) -> Reply:
        """Send a request once. Raises a ProviderError for a 5xx, and when there is no answer in time."""
        content, headers, deadline = call.content, {}, call.deadline
        if isinstance(content, Upload):
            # Its time is not bounded as a whole: only a silence of that length ends it.
            deadline = math.inf
            headers = {"content-type": content.content_type, "content-length": str(content.size)}
            headers.update(content.headers)
        body = content.pieces() if isinstance(content, Upload) else content
        timeout = _timeout(max(min(deadline - self._clock.now(), call.timeout_s), 0.01))
        with self._translated(call):
            request = self._client.build_request(
                call.method, call.url, content=body, headers=headers, timeout=timeout
            )
            with self._closing(self._client.send(request, stream=True)) as response:
                reply = self._read(response, call, deadline)
        return self._checked(reply)

    def _open(self, call: _Call) -> tuple[httpx.Response, _Call]:
        """Begin to receive a file. Redirects are followed, but never from https to http."""
        for _ in range(MAX_REDIRECTS + 1):
            is_own = call.url.join("/") == self._base.join("/")
            client = self._client if is_own else self._anonymous_client
            timeout = _timeout(call.timeout_s)
            with self._translated(call):
                request = client.build_request("GET", call.url, headers={"accept": "*/*"}, timeout=timeout)
                response = client.send(request, stream=True)
                if response.is_success:
                    return response, call
                with self._closing(response):
                    reply = self._read(response, call, math.inf)
                if not response.has_redirect_location:
                    break
                call = replace(call, url=call.url.join(reply.headers["location"]))
            if self._base.scheme == "https" and call.url.scheme != "https":
                break
        raise self.error(reply)

    @contextmanager
    def _closing(self, response: httpx.Response) -> Iterator[httpx.Response]:
        """Close a response after a block, and its connection too when the client was closed meanwhile.

        Closing a client forgets connections that other threads are opening at that moment.
        """
        try:
            yield response
        finally:
            response.close()
            # They hold each other until a collection, and the body of the request with them.
            response.stream = httpx.ByteStream(b"")
            if self._client.is_closed:
                response.extensions["network_stream"].close()

    def _read(self, response: httpx.Response, call: _Call, deadline: float) -> Reply:
        body = bytearray()
        for piece in response.iter_bytes():
            body += piece
            if len(body) > MAX_ANSWER_BYTES:
                raise self._too_large(call.what, response.status_code)
            if self._clock.now() > deadline:
                raise httpx.ReadTimeout("answer too slow")
        return Reply(
            status=response.status_code,
            headers={name.lower(): value for name, value in response.headers.items()},
            body=bytes(body),
            sent_bytes=len(call.content) if isinstance(call.content, bytes) else 0,
            what=call.what,
        )

    @contextmanager
    def _translated(self, call: _Call) -> Iterator[None]:
        """Raise errors of httpx as ours."""
        address = f"{call.url.scheme}://{call.url.netloc.decode()}"
        try:
            yield
        except httpx.DecodingError as error:
            text = self._message(call.what, f"the answer cannot be unpacked: {error}")
            raise ProviderBrokenAnswer(text, status=200) from error
        except (httpx.UnsupportedProtocol, httpx.LocalProtocolError, httpx.InvalidURL):
            # Their messages quote headers, so neither text nor cause is kept.
            raise ProviderStop(
                self._message(call.what, "the address or a header cannot be sent"),
                hint="check memorySearch.remote.baseUrl, remote.headers and the key",
            ) from None
        except RuntimeError as error:
            if not self._client.is_closed:
                raise
            # By a process that is ending, or begins its work again: nothing is wrong with the provider.
            raise ProviderLater(self._message(call.what, "this process is ending")) from error
        except httpx.TransportError as error:
            if is_untrusted(error):
                reason = redact_line(str(error), self._endpoint.secrets)
                text = self._message(call.what, f"the certificate of {address} is not trusted: {reason}")
                raise ProviderStop(text, hint=TRUST_HINT) from error
            raise self._not_answered(
                error,
                call.what,
                address,
                was_sent=not isinstance(error, _NEVER_SENT),
                waited_s=call.timeout_s if isinstance(error, httpx.TimeoutException) else None,
                once=call.once,
            ) from error

    def _new_client(self, headers: Mapping[str, str], *, has_tls: bool) -> httpx.Client:
        return httpx.Client(
            headers=headers,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=30),
            follow_redirects=False,
            # Reading all root certificates takes 30 ms, for nothing where no TLS is spoken.
            verify=httpx.create_ssl_context() if has_tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            # A proxy for the world outside cannot reach this machine's own server.
            trust_env=self._base.host not in LOOPBACK,
        )

    @cached_property
    def _anonymous_client(self) -> httpx.Client:
        """A client for the addresses that redirects name: it knows no key."""
        return self._new_client({"user-agent": f"memline/{own_version()}"}, has_tls=True)


@contextmanager
def public_file(url: str, *, headers: Mapping[str, str], silence_s: float) -> Iterator[httpx.Response]:
    """Open a file that needs no key, redirects included. Raises ConnectionError, also while it is read.

    An untrusted certificate raises ProviderStop: another attempt does not help.
    """
    # A file that is packed on the way has another size than the one announced.
    headers = {"accept-encoding": "identity", "user-agent": "memline", **headers}
    try:
        with (
            httpx.Client(timeout=silence_s, follow_redirects=True) as client,
            client.stream("GET", url, headers=headers) as response,
        ):
            yield response
    except (httpx.TransportError, httpx.InvalidURL, httpx.TooManyRedirects) as error:
        if is_untrusted(error):
            message = f"the certificate of {url} is not trusted: {error}"
            raise ProviderStop(message, hint=TRUST_HINT) from error
        raise ConnectionError(str(error) or type(error).__name__) from error


def _timeout(left_s: float) -> httpx.Timeout:
    return httpx.Timeout(left_s, connect=min(left_s, CONNECT_TIMEOUT_S))
