"""A collector of traces that keeps what it is sent: OTLP over HTTP, in protobuf."""

from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.http_stub import HttpStub, QuietHandler


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


class OtlpServer(HttpStub):
    def __init__(self) -> None:
        self.spans: list[Received] = []
        #: Every body, as it came.
        self.bodies: list[bytes] = []
        super().__init__(self._handler())

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

        class Handler(QuietHandler):
            def do_POST(self) -> None:
                server.receive(self.path, self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

        return Handler


def _plain(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
