"""A collector of traces that keeps what it is sent: OTLP over HTTP, in protobuf."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One span."""

    name: str
    trace: bytes
    id: bytes
    parent: bytes
    kind: int
    #: Spans of other traces.
    links: tuple[bytes, ...]
    attributes: dict[str, Any]
    is_error: bool
    #: Of the process that sent it.
    resource: dict[str, Any]


class OtlpServer:
    """A context manager."""

    def __init__(self) -> None:
        self.spans: list[Received] = []
        #: Every body, as it came.
        self.bodies: list[bytes] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> OtlpServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.shutdown()
        self._http.server_close()

    def named(self, name: str, **attributes: Any) -> list[Received]:
        """The spans of a name whose attributes (`_` for `.`) include these."""
        return [
            span
            for span in self.spans
            if span.name == name
            and all(span.attributes.get(key.replace("_", ".")) == each for key, each in attributes.items())
        ]

    def receive(self, path: str, body: bytes) -> None:
        assert path == "/v1/traces"
        self.bodies.append(body)
        request = ExportTraceServiceRequest.FromString(body)
        for group in request.resource_spans:
            resource = _plain(group.resource.attributes)
            for span in (span for scope in group.scope_spans for span in scope.spans):
                self.spans.append(
                    Received(
                        name=span.name,
                        trace=span.trace_id,
                        id=span.span_id,
                        parent=span.parent_span_id,
                        kind=span.kind,
                        links=tuple(link.span_id for link in span.links),
                        attributes=_plain(span.attributes),
                        is_error=span.status.code == 2,
                        resource=resource,
                    )
                )

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                server.receive(self.path, self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler


def _plain(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
