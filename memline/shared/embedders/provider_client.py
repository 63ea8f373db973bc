"""Call one provider over HTTP: what is sent and said in the same way by every client.

A transport error or a 5xx is tried again at once, a few times. Anything longer (a rate limit, an outage) is
left to the caller, who can wait without holding a worker. A call that must not have its effect twice (`once`)
is only tried again when no connection came about.
"""

from __future__ import annotations

import json
import random
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, TypeVar

from memline.shared.clock import Clock, SystemClock
from memline.shared.embedders.endpoint import Endpoint
from memline.shared.embedders.protocol import max_attempts, note_attempt
from memline.shared.embedders.provider_errors import classify, redact_line, url_hint
from memline.shared.errors import ProviderBrokenAnswer, ProviderError, ProviderLater, ProviderTimeout
from memline.shared.values import replace, value
from memline.shared.version import own_version

#: Backoff between attempts: 0.2 s, doubled, plus a jitter.
FIRST_WAIT_S = 0.2
JITTER_S = 0.2

#: A server that is there accepts a connection sooner than it answers.
CONNECT_TIMEOUT_S = 10.0

#: 2,048 vectors of 3,072 dimensions as JSON numbers are 130 MB; a larger answer is an error.
MAX_ANSWER_BYTES = 256 * 1024 * 1024

#: What a call is for, in its errors: "openai embeddings failed: …".
EMBEDDINGS = "embeddings"

#: Addresses of this machine.
LOOPBACK = ("localhost", "127.0.0.1", "::1")

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


def json_bytes(body: Mapping[str, object]) -> bytes:
    """Write JSON, with msgspec where the process has it: 256 chunks in 0.2 ms, not 1."""
    if msgspec := loaded_msgspec():
        with suppress(UnicodeEncodeError, TypeError):
            return bytes(msgspec.json.encode(body))
    # A lone surrogate cannot be sent as UTF-8; one "?" is better than a text without a vector.
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


class ProviderClient(ABC):
    """Sends JSON to one endpoint of one provider. Safe to use from several threads."""

    def __init__(self, endpoint: Endpoint, *, timeout_s: float, clock: Clock | None = None) -> None:
        """`timeout_s` bounds a whole call, all its attempts and waits together."""
        self._endpoint = endpoint
        self._timeout_s = timeout_s
        self._clock = clock or SystemClock()

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
        return self._post(path, json_bytes(body), what, timeout_s=timeout_s or self._timeout_s, once=once)

    @abstractmethod
    def _post(self, path: str, content: bytes, what: str, *, timeout_s: float, once: bool) -> Reply:
        """Do as `post`, with the body as it is sent."""

    @abstractmethod
    def close(self) -> None: ...

    @property
    @abstractmethod
    def is_closed(self) -> bool: ...

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
        error = answer.get("error") if isinstance(answer, dict) and not answer.get("data") else None
        if not error:
            return answer
        # A gateway (OpenRouter) puts the provider's status into a 200, or its words alone.
        code = str(error.get("code")) if isinstance(error, dict) else ""
        has_status = code.isdecimal() and 400 <= int(code) < 600
        inner = self.error(replace(reply, status=int(code) if has_status else 400))
        if has_status or inner.kind != "refused":
            raise inner
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

    def _attempt(self, send: Callable[[], T], *, deadline: float, once: bool) -> T:
        """Call `send` until it works, its error is not one of a moment, or the attempts are over."""
        # Not tenacity, as elsewhere: importing it costs every search with vectors 5 ms.
        for attempt in range(1, max_attempts()):
            began = self._clock.now()
            try:
                return send()
            except ProviderLater as error:
                if (
                    (error.status is not None and error.status < 500)
                    or error.retry_after_s is not None
                    or error.has_waited
                    or (once and (error.status is not None or error.maybe_done))
                    or self._clock.now() + FIRST_WAIT_S >= deadline
                    or self.is_closed
                ):
                    raise
                failure = error
            self._clock.sleep(FIRST_WAIT_S * 2.0 ** (attempt - 1) + random.uniform(0, JITTER_S))
            note_attempt(failure, self._clock.now() - began)
        return send()

    def _checked(self, reply: Reply) -> Reply:
        """Return a reply whose status is below 500. Raises a ProviderError for another."""
        if reply.status < 500:
            return reply
        error = self.error(reply)
        # Of a gateway that gave up waiting the server behind it may have done its work.
        error.maybe_paid = reply.status == 504
        raise error

    def _too_large(self, what: str, status: int) -> ProviderBrokenAnswer:
        text = self._message(what, f"the response exceeds {MAX_ANSWER_BYTES >> 20} MB")
        return ProviderBrokenAnswer(text, status=status)

    def _not_answered(
        self, error: Exception, what: str, address: str, *, was_sent: bool, waited_s: float | None, once: bool
    ) -> ProviderLater:
        """Make the error of a call without an answer; `waited_s`: its time limit, where that was over."""
        if waited_s is not None:
            kind = ProviderTimeout if was_sent else ProviderLater
            later = kind(self._message(what, f"no answer within {waited_s:g} s"))
            later.has_waited = True
        else:
            reason = redact_line(str(error) or type(error).__name__, self._endpoint.secrets)
            # getaddrinfo(3) numbers its errors below zero.
            is_unknown = "[Errno -" in reason
            online = "check that this machine is online, and that the name is right"
            hint = online if is_unknown else f"check that a server is running at {address}"
            later = ProviderLater(self._message(what, reason), hint=hint)
        later.maybe_paid = was_sent
        later.maybe_done = once and was_sent
        return later

    def _headers(self) -> dict[str, str]:
        json_type, key = "application/json", self._endpoint.key
        headers = {"content-type": json_type, "accept": json_type, "user-agent": f"memline/{own_version()}"}
        if key:
            is_bearer = self._endpoint.key_header == "authorization"
            headers[self._endpoint.key_header] = f"Bearer {key}" if is_bearer else key
        return {**headers, **self._endpoint.headers}

    def _message(self, what: str, reason: str) -> str:
        return f"{self._endpoint.provider} {what} failed: {reason}"
