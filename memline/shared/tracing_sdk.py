"""What `traces` needs of OpenTelemetry. A process that does not trace never loads it: 110 ms."""

from __future__ import annotations

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, SpanKind, StatusCode, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

__all__ = [
    "BatchSpanProcessor",
    "Context",
    "Link",
    "OTLPSpanExporter",
    "Resource",
    "SpanKind",
    "StatusCode",
    "TraceContextTextMapPropagator",
    "TracerProvider",
    "get_current_span",
]
