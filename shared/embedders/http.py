"""HTTP to a provider: one client an embedder, and every failure as a `shared.errors.ProviderError`.

The only module that knows httpx. A transport error or a 5xx is tried again at once, a few times; everything
longer (a rate limit, an outage) goes back to the caller, who can wait without holding a worker.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import httpx
import tenacity

from shared.clock import Clock, SystemClock
from shared.embedders.catalog import url_hint
from shared.embedders.classify import classify
from shared.embedders.endpoint import Endpoint
from shared.embedders.masking import shown
from shared.errors import ProviderBrokenAnswer, ProviderError, ProviderLater, ProviderStop

#: Tries of one call, the first one counted.
MAX_TRIES = 3

#: Waits between tries: 0.2 s, doubled, plus a jitter, never above 2 s.
FIRST_WAIT_S = 0.2
JITTER_S = 0.2
MAX_WAIT_S = 2.0

#: A server that is there accepts a connection sooner than it answers.
CONNECT_TIMEOUT_S = 10.0

#: 2,048 vectors of 3,072 dimensions as JSON numbers are 130 MB; beyond this the answer is no answer.
MAX_ANSWER_BYTES = 256 * 1024 * 1024

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer below 500, read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    #: Size of the request it answers.
    sent_bytes: int = 0


class HttpClient:
    """Sends JSON to one endpoint of one provider. Safe to use from several threads."""

    def __init__(self, endpoint: Endpoint, *, timeout_s: float, clock: Clock | None = None) -> None:
        """`timeout_s` bounds a whole call, all its tries and waits together. Raises ProviderStop."""
        self._endpoint = endpoint
        self._timeout_s = timeout_s
        self._clock = clock or SystemClock()
        try:
            base = self._base = httpx.URL(endpoint.base_url)
            self._client = httpx.Client(
                headers=_headers(endpoint),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=30),
                follow_redirects=False,
                # Reading all root certificates takes 30 ms, for nothing where no TLS is spoken.
                verify=True if base.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
                # A proxy for the world outside cannot reach this machine's own server.
                trust_env=base.host not in _LOOPBACK,
            )
        except (httpx.InvalidURL, ValueError, OSError) as error:
            # Not `from error`: a header that cannot be encoded is part of the message of its error.
            reason = "a header or key holds a character that cannot be sent"
            if not isinstance(error, UnicodeError):
                reason = shown(str(error), endpoint.secrets)
            raise ProviderStop(self._text(reason), hint=endpoint.key_hint) from None

    def post(self, path: str, body: Mapping[str, object], *, timeout_s: float | None = None) -> Reply:
        """The provider's answer, whatever its status below 500. Raises a ProviderError when there is none.

        `path` goes behind the base address, percent-encoded where it must be.
        """
        url = self._base.copy_with(path=self._base.path.rstrip("/") + path)
        deadline = self._clock.now() + (timeout_s or self._timeout_s)
        # A lone surrogate cannot be sent as UTF-8; one "?" is better than a text without a vector.
        content = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        tries = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(MAX_TRIES),
            wait=tenacity.wait_exponential(multiplier=FIRST_WAIT_S, max=MAX_WAIT_S - JITTER_S)
            + tenacity.wait_random(0, JITTER_S),
            retry=tenacity.retry_if_exception(lambda error: self._soon_better(error, deadline)),
            sleep=self._clock.sleep,
            reraise=True,
        )
        return tries(self._send, url, content, deadline, timeout_s or self._timeout_s)

    def error(self, reply: Reply) -> ProviderError:
        """The error that a reply which is no success stands for."""
        return classify(
            self._endpoint.provider,
            reply.status,
            reply.headers,
            reply.body,
            secrets=self._endpoint.secrets,
            key_hint=self._endpoint.key_hint,
            sent_bytes=reply.sent_bytes,
            now=self._clock.now(),
        )

    def json(self, reply: Reply) -> Any:
        """The JSON of a successful reply. Raises a ProviderError for any other."""
        if reply.status >= 300 or reply.status < 200:
            raise self.error(reply)
        try:
            answer = json.loads(reply.body)
        except (ValueError, RecursionError):
            kind = reply.headers.get("content-type", "no content type").split(";")[0]
            said = shown(reply.body[:2000].decode("utf-8", "replace"), self._endpoint.secrets)
            raise ProviderBrokenAnswer(
                self._text(f"{reply.status}, but no JSON ({kind}): {said}"),
                hint=url_hint(self._endpoint.provider),
                status=reply.status,
            ) from None
        if isinstance(answer, dict) and answer.get("error") and "data" not in answer:
            raise self._error_in_success(reply, answer["error"])
        return answer

    def close(self) -> None:
        self._client.close()

    def _error_in_success(self, reply: Reply, error: object) -> ProviderError:
        """Gateways (OpenRouter) put the status of the provider behind them into a 200."""
        status = error.get("code") if isinstance(error, dict) else None
        if isinstance(status, int) and 400 <= status < 600:
            return self.error(replace(reply, status=status))
        said = shown(reply.body.decode("utf-8", "replace"), self._endpoint.secrets)
        return ProviderBrokenAnswer(self._text(f"{reply.status} {said}"), status=reply.status)

    def _soon_better(self, error: BaseException, deadline: float) -> bool:
        return (
            isinstance(error, ProviderLater)
            and error.retry_after_s is None
            and not isinstance(error.__cause__, httpx.TimeoutException)
            and self._clock.now() + FIRST_WAIT_S < deadline
        )

    def _send(self, url: httpx.URL, content: bytes, deadline: float, timeout_s: float) -> Reply:
        left_s = max(deadline - self._clock.now(), 0.01)
        timeout = httpx.Timeout(left_s, connect=min(left_s, CONNECT_TIMEOUT_S))
        try:
            with self._client.stream("POST", url, content=content, timeout=timeout) as response:
                body = bytearray()
                for piece in response.iter_bytes():
                    body += piece
                    if len(body) > MAX_ANSWER_BYTES:
                        raise ProviderBrokenAnswer(
                            self._text("the answer has no end"), status=response.status_code
                        )
                    if self._clock.now() > deadline:
                        raise httpx.ReadTimeout("answer too slow")
                headers = {name.lower(): value for name, value in response.headers.items()}
                reply = Reply(
                    status=response.status_code,
                    headers=headers,
                    body=bytes(body),
                    sent_bytes=len(content),
                )
        except httpx.TimeoutException as error:
            raise ProviderLater(self._text(f"no answer within {timeout_s:g} s")) from error
        except httpx.DecodingError as error:
            raise ProviderBrokenAnswer(
                self._text(f"the answer cannot be unpacked: {error}"), status=response.status_code
            ) from error
        except (httpx.UnsupportedProtocol, httpx.LocalProtocolError, httpx.InvalidURL):
            # Their messages quote headers, so neither text nor cause is kept.
            raise ProviderStop(
                self._text("the address or a header cannot be sent"),
                hint="check memorySearch.remote.baseUrl, remote.headers and the key",
            ) from None
        except httpx.TransportError as error:
            raise ProviderLater(
                self._text(shown(str(error) or type(error).__name__, self._endpoint.secrets)),
                hint=f"is a server running at {url.scheme}://{url.netloc.decode()}?",
            ) from error
        if reply.status >= 500:
            raise self.error(reply)
        return reply

    def _text(self, what: str) -> str:
        return f"{self._endpoint.provider} embeddings failed: {what}"


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
