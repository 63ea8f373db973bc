"""HTTP over httpx: one endpoint of a provider, or a file that is for everybody.

The only module that knows httpx. Nothing is tried twice here, and nothing is made of an answer.
"""

from __future__ import annotations

import math
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

import httpx

from shared.clock import Clock
from shared.embedders.endpoint import Endpoint
from shared.embedders.masking import shown
from shared.errors import ProviderBrokenAnswer, ProviderLater, ProviderStop

#: A server that is there accepts a connection sooner than it answers.
CONNECT_TIMEOUT_S = 10.0

#: 2,048 vectors of 3,072 dimensions as JSON numbers are 130 MB; beyond this the answer is no answer.
MAX_ANSWER_BYTES = 256 * 1024 * 1024

#: A file may take as long as it takes, as long as it comes at this rate; a trickle holds a worker for ever.
MIN_BYTES_A_SECOND = 1024

#: Where a file is: at the address that was asked, or where that one sends to.
MAX_REDIRECTS = 3

#: What a call is for, in its errors: "openai embeddings failed: …".
EMBEDDINGS = "embeddings"

_LOOPBACK = ("localhost", "127.0.0.1", "::1")

Query = Mapping[str, str | int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer, read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    #: Size of the request it answers.
    sent_bytes: int = 0
    #: What the request was for.
    what: str = EMBEDDINGS


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """An answer whose body is still on its way; to be read and closed."""

    content_type: str
    pieces: Iterator[bytes]
    close: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A request body that is sent piece by piece."""

    content_type: str
    size: int
    #: Called for each try.
    pieces: Callable[[], Iterator[bytes]]
    #: More headers.
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request, and how long it may take."""

    method: str
    url: httpx.URL
    what: str
    timeout_s: float
    content: bytes | Upload | None = field(default=None, repr=False)
    #: It must not have its effect twice; see `ProviderError.maybe_done`.
    once: bool = False

    @property
    def size(self) -> int:
        if self.content is None:
            return 0
        return self.content.size if isinstance(self.content, Upload) else len(self.content)


class Connection:
    """The clients of one endpoint. Safe to use from several threads."""

    def __init__(self, endpoint: Endpoint, clock: Clock) -> None:
        """Raises ProviderStop when the address or a header cannot be sent."""
        self._endpoint = endpoint
        self._clock = clock
        try:
            self._base = httpx.URL(endpoint.base_url)
            self._client = self._new_client(_headers(endpoint))
        except (httpx.InvalidURL, ValueError, OSError) as error:
            # Not `from error`: a header that cannot be encoded is part of the message of its error.
            reason = "a header or key holds a character that cannot be sent"
            if not isinstance(error, UnicodeError):
                reason = shown(str(error), endpoint.secrets)
            raise ProviderStop(self.text(EMBEDDINGS, reason), hint=endpoint.key_hint) from None

    def url(self, path: str, query: Query | None = None, service: str = "") -> httpx.URL:
        """`path` behind the base address; see `HttpClient.post` and `upload`."""
        root = self._base.path.rstrip("/")
        if service:
            before, _, last = root.rpartition("/")
            root = "/".join(filter(None, [before, service, last]))
            root = root if root.startswith("/") else f"/{root}"
        url = self._base.copy_with(path=root + path)
        return url.copy_merge_params(dict(query)) if query else url

    def send(self, call: Call, deadline: float) -> Reply:
        """The answer, whatever its status. Raises a ProviderError when there is none before `deadline`."""
        content = call.content
        headers: dict[str, str] = {}
        if isinstance(content, Upload):
            # Its time is not bounded as a whole: only what is silent for so long is gone.
            deadline = math.inf
            headers = {"content-type": content.content_type, "content-length": str(content.size)}
            headers.update(content.headers)
        left_s = max(min(deadline - self._clock.now(), call.timeout_s), 0.01)
        with (
            self._translated(call),
            self._client.stream(
                call.method,
                call.url,
                content=content.pieces() if isinstance(content, Upload) else content,
                headers=headers,
                timeout=_timeout(left_s),
            ) as response,
        ):
            return self._read(response, call, deadline)

    def open(self, call: Call) -> File | Reply:
        """The file at an address, or the answer that there is none.

        Redirects are followed, to other places without key and headers, and never from https to http.
        """
        for _ in range(MAX_REDIRECTS + 1):
            url = call.url
            client = self._client if _origin(url) == _origin(self._base) else self._stranger
            with self._translated(call):
                request = client.build_request(
                    "GET", url, headers={"accept": "*/*"}, timeout=_timeout(call.timeout_s)
                )
                response = client.send(request, stream=True)
                if response.is_success:
                    return File(
                        content_type=response.headers.get("content-type", "").split(";")[0],
                        pieces=self._pieces(response, call),
                        close=response.close,
                    )
                try:
                    reply = self._read(response, call)
                finally:
                    response.close()
                if not response.has_redirect_location:
                    break
                url = url.join(reply.headers["location"])
            if self._base.scheme == "https" and url.scheme != "https":
                break
            call = replace(call, url=url)
        return reply

    def close(self) -> None:
        self._client.close()
        if "_stranger" in self.__dict__:
            self._stranger.close()

    def _read(self, response: httpx.Response, call: Call, deadline: float = math.inf) -> Reply:
        body = bytearray()
        for piece in response.iter_bytes():
            body += piece
            if len(body) > MAX_ANSWER_BYTES:
                raise ProviderBrokenAnswer(
                    self.text(call.what, "the answer has no end"), status=response.status_code
                )
            if self._clock.now() > deadline:
                raise httpx.ReadTimeout("answer too slow")
        return Reply(
            status=response.status_code,
            headers={name.lower(): value for name, value in response.headers.items()},
            body=bytes(body),
            sent_bytes=call.size,
            what=call.what,
        )

    def _pieces(self, response: httpx.Response, call: Call) -> Iterator[bytes]:
        pieces = response.iter_bytes()
        waited_s, received = 0.0, 0
        with self._translated(call):
            while True:
                # Only the time of waiting counts: whoever takes the pieces may be slow.
                asked = self._clock.now()
                piece = next(pieces, None)
                waited_s += self._clock.now() - asked
                if piece is None:
                    return
                received += len(piece)
                if waited_s > call.timeout_s and received < MIN_BYTES_A_SECOND * waited_s:
                    raise httpx.ReadTimeout("answer too slow")
                yield piece

    @contextmanager
    def _translated(self, call: Call) -> Iterator[None]:
        """Errors of httpx as ours."""
        url = call.url
        try:
            yield
        except httpx.TimeoutException as error:
            later = ProviderLater(self.text(call.what, f"no answer within {call.timeout_s:g} s"))
            later.maybe_done = call.once and not isinstance(error, _NEVER_SENT)
            raise later from error
        except httpx.DecodingError as error:
            raise ProviderBrokenAnswer(
                self.text(call.what, f"the answer cannot be unpacked: {error}"), status=200
            ) from error
        except (httpx.UnsupportedProtocol, httpx.LocalProtocolError, httpx.InvalidURL):
            # Their messages quote headers, so neither text nor cause is kept.
            raise ProviderStop(
                self.text(call.what, "the address or a header cannot be sent"),
                hint="check memorySearch.remote.baseUrl, remote.headers and the key",
            ) from None
        except httpx.TransportError as error:
            later = ProviderLater(
                self.text(call.what, shown(str(error) or type(error).__name__, self._endpoint.secrets)),
                hint=f"is a server running at {url.scheme}://{url.netloc.decode()}?",
            )
            later.maybe_done = call.once and not isinstance(error, _NEVER_SENT)
            raise later from error

    def _new_client(self, headers: Mapping[str, str]) -> httpx.Client:
        return httpx.Client(
            headers=headers,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=30),
            follow_redirects=False,
            # Reading all root certificates takes 30 ms, for nothing where no TLS is spoken.
            verify=True if self._base.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            # A proxy for the world outside cannot reach this machine's own server.
            trust_env=self._base.host not in _LOOPBACK,
        )

    @cached_property
    def _stranger(self) -> httpx.Client:
        """A client for other places: it knows no key."""
        return self._new_client({"user-agent": f"memline/{_version()}"})

    def text(self, what: str, said: str) -> str:
        """The words of an error of this provider."""
        return f"{self._endpoint.provider} {what} failed: {said}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicFile:
    """The answer at a public address, its body still on its way."""

    status: int
    headers: Mapping[str, str]
    #: The headers of all answers on the way, this one's last.
    history: Sequence[Mapping[str, str]]
    pieces: Iterator[bytes]


@contextmanager
def public_file(url: str, *, headers: Mapping[str, str], silence_s: float) -> Iterator[PublicFile]:
    """What is at an address, wherever it sends to. Raises ConnectionError, also while it is read."""
    # A file that is packed on the way has another size than the one announced.
    headers = {"accept-encoding": "identity", "user-agent": "memline", **headers}
    try:
        with (
            httpx.Client(timeout=silence_s, follow_redirects=True) as client,
            client.stream("GET", url, headers=headers) as response,
        ):
            yield PublicFile(
                status=response.status_code,
                headers=response.headers,
                history=[answer.headers for answer in (*response.history, response)],
                pieces=response.iter_bytes(),
            )
    except (httpx.TransportError, httpx.InvalidURL, httpx.TooManyRedirects) as error:
        raise ConnectionError(str(error) or type(error).__name__) from error


def timed_out(error: BaseException) -> bool:
    """Whether an error of ours stands for a time limit that was over."""
    return isinstance(error.__cause__, httpx.TimeoutException)


#: Errors of a request that never left.
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


def _timeout(left_s: float) -> httpx.Timeout:
    return httpx.Timeout(left_s, connect=min(left_s, CONNECT_TIMEOUT_S))


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return (url.scheme, url.host, url.port)


def _headers(endpoint: Endpoint) -> dict[str, str]:
    headers = {
        "content-type": "application/json",
        "accept": "application/json",
        "user-agent": f"memline/{_version()}",
    }
    if endpoint.key:
        is_bearer = endpoint.key_header == "authorization"
        headers[endpoint.key_header] = f"Bearer {endpoint.key}" if is_bearer else endpoint.key
    headers.update(endpoint.headers)
    return headers


@cache
def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("memline")
    except PackageNotFoundError:
        return "unknown"
