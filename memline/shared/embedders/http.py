"""Speak HTTP to one provider. The only module that knows httpx; every failure is a `ProviderError`.

A transport error or a 5xx is tried again at once, a few times. Anything longer (a rate limit, an outage) is
left to the caller, who can wait without holding a worker. A call that must not have its effect twice (`once`)
is only tried again when no connection came about.
"""

from __future__ import annotations

import json
import math
import random
import ssl
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from importlib import import_module
from typing import Any, TypeVar

from memline.shared.clock import Clock, SystemClock
from memline.shared.embedders.endpoint import Endpoint
from memline.shared.embedders.protocol import max_attempts, note_lost_attempt
from memline.shared.embedders.provider_errors import classify, redact_line, url_hint
from memline.shared.errors import (
    ProviderBrokenAnswer,
    ProviderError,
    ProviderLater,
    ProviderStop,
    ProviderTimeout,
    is_untrusted,
)
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

#: Backoff between attempts: 0.2 s, doubled, plus a jitter.
FIRST_WAIT_S = 0.2
JITTER_S = 0.2

#: A server that is there accepts a connection sooner than it answers.
CONNECT_TIMEOUT_S = 10.0

#: 2,048 vectors of 3,072 dimensions as JSON numbers are 130 MB; a larger answer is an error.
MAX_ANSWER_BYTES = 256 * 1024 * 1024

#: A file may take as long as it takes, as long as it comes at this rate; a trickle holds a worker for ever.
MIN_BYTES_A_SECOND = 1024

#: Redirects of a file: the provider's own address, or the storage behind it.
MAX_REDIRECTS = 3

#: What a call is for, in its errors: "openai embeddings failed: …".
EMBEDDINGS = "embeddings"

TRUST_HINT = "set SSL_CERT_FILE to a file with the certificate of its authority, or check the address"

_LOOPBACK = ("localhost", "127.0.0.1", "::1")

#: Errors of a request that was never sent.
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)

Query = Mapping[str, str | int]

T = TypeVar("T")


@value
class Reply:
    """An answer, read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    #: Size of the JSON it answers.
    sent_bytes: int = 0
    #: What the request was for.
    what: str = EMBEDDINGS


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


def loaded_msgspec() -> Any:
    """Return msgspec where the process has it anyway; one answer is not worth its import, 14 ms."""
    return import_module("msgspec") if "msgspec" in sys.modules else None


def parse_json(text: bytes | str) -> Any:
    """Parse JSON, with msgspec where the process has it: 1,536 numbers in 0.1 ms, not 0.5.

    Raises ValueError and RecursionError, as `json.loads` does.
    """
    if msgspec := loaded_msgspec():
        # Python takes more, such as NaN, and half of a surrogate.
        with suppress(msgspec.DecodeError, ValueError):
            return msgspec.json.decode(text)
    return json.loads(text)


class HttpClient:
    """Sends JSON and files to one endpoint of one provider. Safe to use from several threads."""

    def __init__(self, endpoint: Endpoint, *, timeout_s: float, clock: Clock | None = None) -> None:
        """`timeout_s` bounds a whole call, all its attempts and waits together; where a file is sent or
        received, the silence in between. Raises ProviderStop when the address or a header cannot be sent.
        """
        self._endpoint = endpoint
        self._timeout_s = timeout_s
        self._clock = clock or SystemClock()
        try:
            self._base = httpx.URL(endpoint.base_url)
            self._client = self._new_client(self._headers(), has_tls=self._base.scheme == "https")
        except (httpx.InvalidURL, ValueError, OSError) as error:
            # Not `from error`: a header that cannot be encoded is part of the message of its error.
            reason = "a header or key holds a character that cannot be sent"
            if not isinstance(error, UnicodeError):
                reason = redact_line(str(error), endpoint.secrets)
            raise ProviderStop(self._message(EMBEDDINGS, reason), hint=endpoint.key_hint) from None

    def post(
        self,
        path: str,
        body: Mapping[str, object],
        *,
        timeout_s: float | None = None,
        what: str = EMBEDDINGS,
        once: bool = False,
    ) -> Reply:
        """Return the provider's answer, whatever its status below 500. Raises a ProviderError without one.

        `path` goes behind the base address, percent-encoded where it must be. `once`: see above; the error
        then says in `maybe_done` whether the request may have been received.
        """
        # A lone surrogate cannot be sent as UTF-8; one "?" is better than a text without a vector.
        content = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
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

    def error(self, reply: Reply) -> ProviderError:
        """Make the error of a reply that is not a success."""
        return classify(
            self._endpoint.provider,
            reply.status,
            reply.headers,
            reply.body,
            what=reply.what,
            secrets=self._endpoint.secrets,
            key_hint=self._endpoint.key_hint,
            sent_bytes=reply.sent_bytes,
            now=self._clock.now(),
        )

    def json(self, reply: Reply) -> Any:
        """Parse a successful reply. Raises a ProviderError for any other, and for an error inside it."""
        answer = self.any_json(reply)
        error = answer.get("error") if isinstance(answer, dict) and "data" not in answer else None
        if not error:
            return answer
        # A gateway (OpenRouter) puts the provider's status into a 200.
        status = error.get("code") if isinstance(error, dict) else None
        if isinstance(status, int) and 400 <= status < 600:
            raise self.error(replace(reply, status=status))
        text = redact_line(reply.body.decode("utf-8", "replace"), self._endpoint.secrets)
        raise ProviderBrokenAnswer(self._message(reply.what, f"{reply.status} {text}"), status=reply.status)

    def any_json(self, reply: Reply) -> Any:
        """Do as `json`, for answers in which an error is something else than the answer's own."""
        if reply.status >= 300 or reply.status < 200:
            raise self.error(reply)
        try:
            return parse_json(reply.body)
        except (ValueError, RecursionError):
            kind = reply.headers.get("content-type", "no content type").split(";")[0]
            shown = redact_line(reply.body[:2000].decode("utf-8", "replace"), self._endpoint.secrets)
            text = self._message(reply.what, f"{reply.status}, but no JSON ({kind}): {shown}")
            hint = url_hint(self._endpoint.provider)
            raise ProviderBrokenAnswer(text, hint=hint, status=reply.status) from None

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
        # Not tenacity, as elsewhere: importing it costs every search with vectors 5 ms.
        for attempt in range(1, max_attempts()):
            try:
                return send(call)
            except ProviderLater as error:
                if (
                    (error.status is not None and error.status < 500)
                    or error.retry_after_s is not None
                    or isinstance(error.__cause__, httpx.TimeoutException)
                    or (once and (error.status is not None or error.maybe_done))
                    or self._clock.now() + FIRST_WAIT_S >= deadline
                    or self._client.is_closed
                ):
                    raise
                if error.maybe_paid:
                    note_lost_attempt()
            self._clock.sleep(FIRST_WAIT_S * 2.0 ** (attempt - 1) + random.uniform(0, JITTER_S))
        return send(call)

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
        if reply.status >= 500:
            error = self.error(reply)
            # Of a gateway that gave up waiting the server behind it may have done its work.
            error.maybe_paid = reply.status == 504
            raise error
        return reply

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
            if self._client.is_closed:
                response.extensions["network_stream"].close()

    def _read(self, response: httpx.Response, call: _Call, deadline: float) -> Reply:
        body = bytearray()
        for piece in response.iter_bytes():
            body += piece
            if len(body) > MAX_ANSWER_BYTES:
                text = self._message(call.what, f"the response exceeds {MAX_ANSWER_BYTES >> 20} MB")
                raise ProviderBrokenAnswer(text, status=response.status_code)
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
            reason = redact_line(str(error) or type(error).__name__, self._endpoint.secrets)
            if is_untrusted(error):
                text = self._message(call.what, f"the certificate of {address} is not trusted: {reason}")
                raise ProviderStop(text, hint=TRUST_HINT) from error
            was_sent = not isinstance(error, _NEVER_SENT)
            if isinstance(error, httpx.TimeoutException):
                kind = ProviderTimeout if was_sent else ProviderLater
                later = kind(self._message(call.what, f"no answer within {call.timeout_s:g} s"))
            else:
                hint = f"is a server running at {address}?"
                later = ProviderLater(self._message(call.what, reason), hint=hint)
            later.maybe_paid = was_sent
            later.maybe_done = call.once and was_sent
            raise later from error

    def _new_client(self, headers: Mapping[str, str], *, has_tls: bool) -> httpx.Client:
        return httpx.Client(
            headers=headers,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=30),
            follow_redirects=False,
            # Reading all root certificates takes 30 ms, for nothing where no TLS is spoken.
            verify=httpx.create_ssl_context() if has_tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            # A proxy for the world outside cannot reach this machine's own server.
            trust_env=self._base.host not in _LOOPBACK,
        )

    @cached_property
    def _anonymous_client(self) -> httpx.Client:
        """A client for the addresses that redirects name: it knows no key."""
        return self._new_client({"user-agent": f"memline/{own_version()}"}, has_tls=True)

    def _headers(self) -> dict[str, str]:
        json_type, key = "application/json", self._endpoint.key
        headers = {"content-type": json_type, "accept": json_type, "user-agent": f"memline/{own_version()}"}
        if key:
            is_bearer = self._endpoint.key_header == "authorization"
            headers[self._endpoint.key_header] = f"Bearer {key}" if is_bearer else key
        return {**headers, **self._endpoint.headers}

    def _message(self, what: str, reason: str) -> str:
        return f"{self._endpoint.provider} {what} failed: {reason}"


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
