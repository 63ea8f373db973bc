"""Ask a server of this machine one question, by the standard library: httpx takes 60 ms to import.

For commands that end with their answer. Everywhere else connections are kept, and addresses need TLS or a
proxy: `http.py`.
"""

from __future__ import annotations

from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead
from urllib.parse import quote, urlsplit

from memline.shared.embedders.provider_client import (
    CONNECT_TIMEOUT_S,
    MAX_ANSWER_BYTES,
    ProviderClient,
    Reply,
)
from memline.shared.errors import ProviderStop

#: Characters of a path that are sent as they are; `%`: it is encoded already.
_AS_IT_IS = "/%:@!$&'()*+,;=~"

_READ_BYTES = 65_536


class PlainClient(ProviderClient):
    """Sends JSON to one endpoint that speaks HTTP without TLS, over a connection for each call."""

    is_closed = False

    def close(self) -> None:
        """Nothing stays open."""

    def _post(self, path: str, content: bytes, what: str, *, timeout_s: float, once: bool) -> Reply:
        deadline = self._clock.now() + timeout_s
        address = urlsplit(self._endpoint.base_url)
        target = quote(address.path.rstrip("/") + path, safe=_AS_IT_IS)

        def send() -> Reply:
            left_s = max(min(deadline - self._clock.now(), timeout_s), 0.01)
            connection = HTTPConnection(
                address.hostname or "", address.port, timeout=min(left_s, CONNECT_TIMEOUT_S)
            )
            was_sent = False
            try:
                connection.connect()
                connection.sock.settimeout(left_s)
                was_sent = True
                connection.request("POST", target, content, {**self._headers(), "connection": "close"})
                reply = self._read(connection.getresponse(), what, deadline, len(content))
            except (ValueError, UnicodeError):
                # Their messages quote headers, so neither text nor cause is kept.
                raise ProviderStop(
                    self._message(what, "a header or key holds a character that cannot be sent"),
                    hint=self._endpoint.key_hint,
                ) from None
            except (OSError, HTTPException) as error:
                raise self._not_answered(
                    error,
                    what,
                    f"{address.scheme}://{address.netloc}",
                    was_sent=was_sent,
                    waited_s=timeout_s if isinstance(error, TimeoutError) else None,
                    once=once,
                ) from error
            finally:
                connection.close()
            return self._checked(reply)

        return self._attempt(send, deadline=deadline, once=once)

    def _read(self, response: HTTPResponse, what: str, deadline: float, sent_bytes: int) -> Reply:
        body = bytearray()
        while piece := response.read1(_READ_BYTES):
            body += piece
            if len(body) > MAX_ANSWER_BYTES:
                raise self._too_large(what, response.status)
            if self._clock.now() > deadline:
                raise TimeoutError
        if response.length:
            raise IncompleteRead(b"", response.length)
        headers = {name.lower(): each for name, each in response.getheaders()}
        return Reply(
            status=response.status, headers=headers, body=bytes(body), sent_bytes=sent_bytes, what=what
        )
