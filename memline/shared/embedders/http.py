"""Speak HTTP to one provider: the only module that knows httpx. Every failure is a `ProviderError`.

A connection that broke or a 5xx is tried again at once, a few times; anything longer is left to the caller,
who can wait without holding a worker. A call that must not have its effect twice is made in
`counted_call(1)`. A proxy, a certificate or a host that cannot be used is named at once.
"""

from __future__ import annotations

import json
import math
import random
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpx
import msgspec

from memline.shared.clock import Clock, SystemClock
from memline.shared.embedders.endpoint import Endpoint
from memline.shared.embedders.protocol import current_call
from memline.shared.embedders.provider_errors import classify, redact_line, url_hint
from memline.shared.errors import (
    ProviderBrokenAnswer,
    ProviderError,
    ProviderLater,
    ProviderStop,
    ProviderTimeout,
)
from memline.shared.packages import own_version

#: Seconds between attempts: 0.2, doubled, plus a jitter.
FIRST_WAIT_S, JITTER_S = 0.2, 0.2

#: A server that is there accepts a connection sooner than it answers.
CONNECT_TIMEOUT_S = 10.0

#: 2,048 vectors of 3,072 dimensions as JSON numbers are 130 MB; a larger answer is an error.
MAX_ANSWER_BYTES = 256 << 20

#: Redirects of a file: to the storage behind an address, and within it.
MAX_REDIRECTS = 5

#: What a call is for, in its errors: "openai embeddings failed: …".
EMBEDDINGS = "embeddings"

#: Addresses of this machine.
LOOPBACK = ("localhost", "127.0.0.1", "::1")

_CHECK_ADDRESS = "check memorySearch.remote.baseUrl, remote.headers and the key"
_TRUST = "set SSL_CERT_FILE to a file with the certificate of its authority, or check the address"

#: Errors of a request that was never sent.
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    #: Size of the JSON it answers.
    sent_bytes: int = 0
    #: What the request was for.
    what: str = EMBEDDINGS


class HttpClient:
    """Calls one endpoint of one provider. Safe to use from several threads."""

    def __init__(self, endpoint: Endpoint, *, timeout_s: float, clock: Clock | None = None) -> None:
        """`timeout_s` bounds a whole call, all its attempts and waits together; where a file is sent or
        received, the silence in between. Raises ProviderStop when the address, a header or the proxy of the
        environment cannot be used.
        """
        self._endpoint, self._timeout_s, self._clock = endpoint, timeout_s, clock or SystemClock()
        self._secrets = endpoint.secrets
        key = {endpoint.key_header: endpoint.key} if endpoint.key else {}
        if "authorization" in key:
            key["authorization"] = f"Bearer {endpoint.key}"
        headers = {"accept": "application/json", **_AGENT, **key, **endpoint.headers}
        try:
            self._base = httpx.URL(endpoint.base_url)
        except httpx.InvalidURL as error:
            raise self._stop(EMBEDDINGS, str(error), hint=_CHECK_ADDRESS, code="bad_address") from None
        try:
            has_tls = self._base.scheme == "https"
            self._client = httpx.Client(
                headers=headers,
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=30),
                # Reading all root certificates takes 30 ms, for nothing where no TLS is spoken.
                verify=httpx.create_ssl_context() if has_tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
                # A proxy for the world outside cannot reach this machine's own server.
                trust_env=self._base.host not in LOOPBACK,
            )
        except UnicodeError:
            # The header is part of the message of its error.
            text = "a header or key has a character that cannot be sent"
            raise self._stop(EMBEDDINGS, text, hint=endpoint.key_hint) from None
        except OSError as error:
            text = f"the certificates of SSL_CERT_FILE or SSL_CERT_DIR cannot be read: {error}"
            hint = "check SSL_CERT_FILE"
            raise self._stop(EMBEDDINGS, text, hint=hint, code="untrusted_certificate") from None
        except (ImportError, httpx.InvalidURL, ValueError) as error:
            reason = "SOCKS needs the package socksio" if isinstance(error, ImportError) else str(error)
            variables = [f"{name.upper()}_PROXY" for name in getproxies() if name != "no"]
            raise self._bad_proxy(EMBEDDINGS, " or ".join(variables), reason) from None

    def call(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, object] | None = None,
        what: str = EMBEDDINGS,
        timeout_s: float | None = None,
        service: str = "",
        **request: Any,
    ) -> Reply:
        """Send a request; return the answer, whatever its status below 500. Raises a ProviderError.

        `path` goes behind the base address, percent-encoded where it must be; `service` is a word before the
        last part of that address, as Google has it (`/upload/v1beta`). `body` is sent as JSON; `request` may
        have what httpx takes (`params`, `content`, `data`, `files`, `headers`).
        """
        if body is not None:
            try:
                request["content"] = msgspec.json.encode(body)
            except UnicodeEncodeError:
                # A lone surrogate cannot be sent as UTF-8; one "?" is better than a text without a vector.
                request["content"] = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
            request["headers"] = {"content-type": "application/json"}
        timeout_s = timeout_s or self._timeout_s
        content = request.get("content")
        is_file = "files" in request or not isinstance(content, bytes | None)
        deadline = self._clock.now() + timeout_s
        sent_bytes = len(content) if isinstance(content, bytes) else 0

        def send() -> Reply:
            # Where a file is sent the time is not bounded as a whole: only a silence of that length ends it.
            left_s = timeout_s if is_file else max(min(deadline - self._clock.now(), timeout_s), 0.01)
            url = self._url(path, service)
            with self._translated(url, what, timeout_s):
                timeout = httpx.Timeout(left_s, connect=min(left_s, CONNECT_TIMEOUT_S))
                with self._client.stream(method, url, timeout=timeout, **request) as response:
                    reply = self._read(response, what, math.inf if is_file else deadline, sent_bytes)
            if reply.status < 500:
                return reply
            error = self.error(reply)
            # Of a gateway that gave up waiting the server behind it may have done its work.
            error.maybe_paid = reply.status in (504, 524)
            raise error

        return self._attempt(send, deadline=deadline)

    def lines(
        self, path: str, *, params: Mapping[str, str] | None = None, service: str = "", what: str
    ) -> Iterator[str]:
        """Yield the lines of a file as they arrive. Raises a ProviderError, also in the middle.

        A redirect is followed without key and headers: files may lie in another storage.
        """
        url = self._url(path, service).copy_merge_params(params or {})
        headers, timeout = {"accept": "*/*"}, self._timeout_s
        with self._translated(url, what, timeout), ExitStack() as stack:
            request = self._client.stream("GET", url, headers=headers, timeout=timeout)
            response = stack.enter_context(request)
            if response.has_redirect_location:
                target = str(url.join(response.headers["location"]))
                response = stack.enter_context(public_file(target, headers={}, silence_s=timeout))
            if not response.is_success:
                raise self.error(self._read(response, what, math.inf, 0))
            if response.headers.get("content-type", "").startswith("text/html"):
                raise self._broken(what, "a web page came", status=response.status_code)
            yield from response.iter_lines()

    def error(self, reply: Reply) -> ProviderError:
        """Make the error of a reply that is not a success."""
        return classify(
            self._endpoint.provider,
            reply.status,
            reply.headers,
            reply.body,
            what=reply.what,
            secrets=self._secrets,
            key_hint=self._endpoint.key_hint,
            sent_bytes=reply.sent_bytes,
            now=self._clock.now(),
        )

    def json(self, reply: Reply, *, may_have_error: bool = False) -> Any:
        """Parse a successful reply. Raises a ProviderError for any other, and for an error inside it.

        `may_have_error`: what is described has an error of its own, such as a job.
        """
        if not 200 <= reply.status < 300:
            raise self.error(reply)
        try:
            # 1,536 numbers in 0.1 ms, where Python's own takes 0.5.
            answer = msgspec.json.decode(reply.body)
        except (msgspec.DecodeError, ValueError, RecursionError):
            kind = reply.headers.get("content-type", "no content type").split(";")[0]
            text = reply.body.decode("utf-8", "replace")
            problem, hint = f"{reply.status}, but no JSON ({kind}): {text}", url_hint(self._endpoint.provider)
            raise self._broken(reply.what, problem, status=reply.status, hint=hint) from None
        error = answer.get("error") if isinstance(answer, dict) and not answer.get("data") else None
        if not error or may_have_error:
            return answer
        # A gateway (OpenRouter) puts the provider's status into a 200, or its words alone.
        code = str(error.get("code")) if isinstance(error, dict) else ""
        has_status = code.isdecimal() and 400 <= int(code) < 600
        inner = self.error(msgspec.structs.replace(reply, status=int(code) if has_status else 400))
        if has_status or inner.kind != "refused":
            raise inner
        text = f"{reply.status} {reply.body.decode('utf-8', 'replace')}"
        raise self._broken(reply.what, text, status=reply.status)

    def close(self) -> None:
        """Close all connections; a call that is under way ends with ProviderLater."""
        self._client.close()

    def _url(self, path: str, service: str) -> httpx.URL:
        root = self._base.path.rstrip("/")
        if service:
            before, _, last = root.rpartition("/")
            root = "/" + "/".join(filter(None, [before.lstrip("/"), service, last]))
        return self._base.copy_with(path=root + path)

    def _attempt(self, send: Callable[[], Reply], *, deadline: float) -> Reply:
        """Call `send` until it works, its error is not one of a moment, or the attempts are over."""
        # Not tenacity, as elsewhere: importing it costs every search with vectors 5 ms.
        call = current_call()
        for attempt in range(1, call.max_attempts):
            try:
                return send()
            except ProviderLater as error:
                # With a time, or a status below 500, the provider says that this will not do.
                is_told = error.retry_after_s is not None or (error.status or 500) < 500
                if is_told or self._client.is_closed or self._clock.now() + FIRST_WAIT_S >= deadline:
                    raise
                failure = error
            self._clock.sleep(FIRST_WAIT_S * 2.0 ** (attempt - 1) + random.uniform(0, JITTER_S))
            call.count(failure)
        return send()

    def _read(self, response: httpx.Response, what: str, deadline: float, sent_bytes: int) -> Reply:
        pieces, size = list[bytes](), 0
        for piece in response.iter_bytes():
            pieces.append(piece)
            size += len(piece)
            if size > MAX_ANSWER_BYTES:
                text = f"the response exceeds {MAX_ANSWER_BYTES >> 20} MB"
                raise self._broken(what, text, status=response.status_code)
            if self._clock.now() > deadline:
                raise httpx.ReadTimeout("answer too slow")
        return Reply(
            status=response.status_code,
            headers={name.lower(): value for name, value in response.headers.items()},
            body=b"".join(pieces),
            sent_bytes=sent_bytes,
            what=what,
        )

    @contextmanager
    def _translated(self, url: httpx.URL, what: str, timeout_s: float) -> Iterator[None]:
        """Raise errors of httpx as ours."""
        try:
            yield
        except httpx.DecodingError as error:
            raise self._broken(what, f"the answer cannot be unpacked: {error}", status=200) from error
        except (httpx.UnsupportedProtocol, httpx.LocalProtocolError, httpx.InvalidURL):
            # Their messages quote headers, so neither text nor cause is kept.
            text = "the address or a header cannot be sent"
            raise self._stop(what, text, hint=_CHECK_ADDRESS, code="bad_address") from None
        except RuntimeError as error:
            if not self._client.is_closed:
                raise
            # By a process that is ending, or begins its work again: nothing is wrong with the provider.
            raise ProviderLater(self._message(what, "this process is ending")) from error
        except httpx.TransportError as error:
            raise self._not_answered(error, url, what, timeout_s) from error
        except ConnectionError as error:
            raise ProviderLater(self._message(what, str(error))) from error

    def _not_answered(
        self, error: httpx.TransportError, url: httpx.URL, what: str, timeout_s: float
    ) -> ProviderError:
        """Make the error of a call without an answer."""
        was_sent = not isinstance(error, _NEVER_SENT)
        address = f"{url.scheme}://{url.netloc.decode()}"
        reason = str(error) or type(error).__name__
        if _is_caused_by(error, ssl.SSLCertVerificationError):
            text = f"the certificate of {address} is not trusted: {reason}"
            return self._stop(what, text, hint=_TRUST, code="untrusted_certificate")
        if "WRONG_VERSION_NUMBER" in reason:
            text = f"{address} answers without TLS"
            return self._stop(what, text, hint="write http:// there, or check the port", code="no_tls")
        if not was_sent and (variable := _proxy_of(url)):
            return self._bad_proxy(what, variable, reason)
        if _is_caused_by(error, socket.gaierror):
            # A stop, as a bad proxy is: who waits for vectors is told at once, and a probe finds out later.
            text = f"there is no host {url.host}: {reason}"
            hint = f"check that this machine is online, and {url.host}"
            return self._stop(what, text, hint=hint, code="host_unknown")
        code = "" if was_sent else "unreachable"
        if isinstance(error, httpx.TimeoutException):
            kind = ProviderTimeout if was_sent else ProviderLater
            later = kind(self._message(what, f"no answer within {timeout_s:g} s"), code=code)
        else:
            command = ": ollama serve" if self._endpoint.provider == "ollama" else ""
            hint = f"check that a server is running at {address}{command}"
            later = ProviderLater(self._message(what, reason), hint=hint, code=code)
        later.maybe_paid = was_sent
        return later

    def _bad_proxy(self, what: str, variable: str, reason: str) -> ProviderStop:
        text = f"the proxy of {variable} cannot be used: {reason}"
        hint = f"unset {variable}, name an http:// proxy there, or add {self._base.host} to NO_PROXY"
        return self._stop(what, text, hint=hint, code="proxy_unusable")

    def _stop(self, what: str, reason: str, *, hint: str, code: str = "") -> ProviderStop:
        return ProviderStop(self._message(what, reason), hint=hint, code=code)

    def _broken(self, what: str, problem: str, *, status: int, hint: str = "") -> ProviderBrokenAnswer:
        return ProviderBrokenAnswer(self._message(what, problem), hint=hint, status=status)

    def _message(self, what: str, reason: str) -> str:
        return f"{self._endpoint.provider} {what} failed: {redact_line(reason, self._secrets)}"


_AGENT = {"user-agent": f"memline/{own_version()}"}


@contextmanager
def public_file(url: str, *, headers: Mapping[str, str], silence_s: float) -> Iterator[httpx.Response]:
    """Open a file that needs no key, redirects included. Raises ConnectionError, also while it is read.

    An untrusted certificate raises ProviderStop: another attempt does not help.
    """
    # A file that is packed on the way has another size than the one announced.
    headers = {"accept-encoding": "identity", **_AGENT, **headers}
    try:
        with (
            httpx.Client(timeout=silence_s, follow_redirects=True, max_redirects=MAX_REDIRECTS) as client,
            client.stream("GET", url, headers=headers) as response,
        ):
            yield response
    except (httpx.TransportError, httpx.InvalidURL, httpx.TooManyRedirects) as error:
        if _is_caused_by(error, ssl.SSLCertVerificationError):
            message = f"the certificate of {url} is not trusted: {error}"
            raise ProviderStop(message, hint=_TRUST, code="untrusted_certificate") from error
        raise ConnectionError(str(error) or type(error).__name__) from error


def _proxy_of(url: httpx.URL) -> str:
    """Return the variable of the proxy that an address is asked through; empty for none."""
    proxies = getproxies()
    name = url.scheme if url.scheme in proxies else "all"
    is_direct = name not in proxies or url.host in LOOPBACK or proxy_bypass(url.host)
    return "" if is_direct else f"{name.upper()}_PROXY"


def _is_caused_by(error: BaseException | None, kind: type[BaseException]) -> bool:
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error is not None
