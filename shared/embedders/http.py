"""HTTP to a provider: one client an embedder, and every failure as a `shared.errors.ProviderError`.

A transport error or a 5xx is tried again at once, a few times; everything
longer (a rate limit, an outage) goes back to the caller, who can wait without holding a worker. A call that
must not have its effect twice (`once`) is only tried again when no connection came about.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any

import tenacity

from shared.clock import Clock, SystemClock
from shared.embedders.catalog import url_hint
from shared.embedders.classify import classify
from shared.embedders.connection import EMBEDDINGS, Call, Connection, File, Query, Reply, Upload, timed_out
from shared.embedders.endpoint import Endpoint
from shared.embedders.masking import shown
from shared.embedders.tries import most
from shared.errors import ProviderBrokenAnswer, ProviderError, ProviderLater

#: Waits between tries: 0.2 s, doubled, plus a jitter, never above 2 s.
FIRST_WAIT_S = 0.2
JITTER_S = 0.2
MAX_WAIT_S = 2.0


class HttpClient:
    """Sends JSON and files to one endpoint of one provider. Safe to use from several threads."""

    def __init__(self, endpoint: Endpoint, *, timeout_s: float, clock: Clock | None = None) -> None:
        """`timeout_s` bounds a whole call, all its tries and waits together; where a file is sent or
        received, the silence in between. Raises ProviderStop.
        """
        self._endpoint = endpoint
        self._timeout_s = timeout_s
        self._clock = clock or SystemClock()
        self._connection = Connection(endpoint, self._clock)

    def post(
        self,
        path: str,
        body: Mapping[str, object],
        *,
        timeout_s: float | None = None,
        what: str = EMBEDDINGS,
        once: bool = False,
    ) -> Reply:
        """The provider's answer, whatever its status below 500. Raises a ProviderError when there is none.

        `path` goes behind the base address, percent-encoded where it must be. `once`: see above; the error
        then says in `maybe_done` whether the request may have been received.
        """
        # A lone surrogate cannot be sent as UTF-8; one "?" is better than a text without a vector.
        content = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        return self._ask("POST", path, what, content, once=once, timeout_s=timeout_s)

    def get(self, path: str, *, query: Query | None = None, what: str) -> Reply:
        """As `post`, without a body."""
        return self._ask("GET", path, what, query=query)

    def delete(self, path: str, *, what: str) -> Reply:
        """As `post`, without a body."""
        return self._ask("DELETE", path, what)

    def upload(
        self, path: str, content: Upload, *, query: Query | None = None, service: str = "", what: str
    ) -> Reply:
        """As `post` with `once`, for a body of any size.

        `service`: a word before the last part of the base path, as Google has it (`/upload/v1beta`).
        """
        return self._ask("POST", path, what, content, query=query, service=service, once=True)

    def download(
        self, path: str, *, query: Query | None = None, service: str = "", what: str
    ) -> Generator[bytes, None, None]:
        """The bytes of a file as they arrive. Raises a ProviderError, also in the middle.

        Redirects are followed, to other places without key and headers: files may lie in another storage.
        """
        call = Call(
            method="GET",
            url=self._connection.url(path, query, service),
            what=what,
            timeout_s=self._timeout_s,
        )
        file = self._tries(self._clock.now() + self._timeout_s, once=False)(self._open, call)
        if isinstance(file, Reply):
            raise self.error(file)
        try:
            if file.content_type == "text/html":
                raise ProviderBrokenAnswer(
                    self._connection.text(what, "200, but a web page"),
                    hint=url_hint(self._endpoint.provider),
                    status=200,
                )
            yield from file.pieces
        finally:
            file.close()

    def error(self, reply: Reply) -> ProviderError:
        """The error that a reply which is no success stands for."""
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
        """The JSON of a successful reply. Raises a ProviderError for any other, and for an error in it."""
        answer = self.any_json(reply)
        if isinstance(answer, dict) and answer.get("error") and "data" not in answer:
            raise self._error_in_success(reply, answer["error"])
        return answer

    def any_json(self, reply: Reply) -> Any:
        """As `json`, for answers in which an error is something else than the answer's own."""
        if reply.status >= 300 or reply.status < 200:
            raise self.error(reply)
        try:
            return json.loads(reply.body)
        except (ValueError, RecursionError):
            kind = reply.headers.get("content-type", "no content type").split(";")[0]
            said = shown(reply.body[:2000].decode("utf-8", "replace"), self._endpoint.secrets)
            raise ProviderBrokenAnswer(
                self._connection.text(reply.what, f"{reply.status}, but no JSON ({kind}): {said}"),
                hint=url_hint(self._endpoint.provider),
                status=reply.status,
            ) from None

    def close(self) -> None:
        self._connection.close()

    def _error_in_success(self, reply: Reply, error: object) -> ProviderError:
        """Gateways (OpenRouter) put the status of the provider behind them into a 200."""
        status = error.get("code") if isinstance(error, dict) else None
        if isinstance(status, int) and 400 <= status < 600:
            return self.error(replace(reply, status=status))
        said = shown(reply.body.decode("utf-8", "replace"), self._endpoint.secrets)
        return ProviderBrokenAnswer(
            self._connection.text(reply.what, f"{reply.status} {said}"), status=reply.status
        )

    def _ask(
        self,
        method: str,
        path: str,
        what: str,
        content: bytes | Upload | None = None,
        *,
        query: Query | None = None,
        service: str = "",
        once: bool = False,
        timeout_s: float | None = None,
    ) -> Reply:
        call = Call(
            method=method,
            url=self._connection.url(path, query, service),
            what=what,
            timeout_s=timeout_s or self._timeout_s,
            content=content,
            once=once,
        )
        deadline = self._clock.now() + call.timeout_s
        return self._tries(deadline, once=once)(self._send, call, deadline)

    def _send(self, call: Call, deadline: float) -> Reply:
        reply = self._connection.send(call, deadline)
        if reply.status >= 500:
            raise self.error(reply)
        return reply

    def _open(self, call: Call) -> File | Reply:
        answer = self._connection.open(call)
        if isinstance(answer, Reply) and answer.status >= 500:
            raise self.error(answer)
        return answer

    def _tries(self, deadline: float, *, once: bool) -> tenacity.Retrying:
        return tenacity.Retrying(
            stop=tenacity.stop_after_attempt(most()),
            wait=tenacity.wait_exponential(multiplier=FIRST_WAIT_S, max=MAX_WAIT_S - JITTER_S)
            + tenacity.wait_random(0, JITTER_S),
            retry=tenacity.retry_if_exception(lambda error: self._soon_better(error, deadline, once=once)),
            sleep=self._clock.sleep,
            reraise=True,
        )

    def _soon_better(self, error: BaseException, deadline: float, *, once: bool) -> bool:
        return (
            isinstance(error, ProviderLater)
            and error.retry_after_s is None
            and not timed_out(error)
            and (not once or (error.status is None and not error.maybe_done))
            and self._clock.now() + FIRST_WAIT_S < deadline
        )
