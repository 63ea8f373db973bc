import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from memline.shared import traces
from memline.shared.config import environment
from memline.shared.embedders.protocol import Identity, embedding_span
from memline.shared.queue.middleware import TraceMessages
from tests.support.process import ROOT

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-1af7651916cd43dd8448eb211c80319d-c7ad6b7169203332-01"


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """What is traced; the process of the tests does not trace otherwise."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(traces, "_tracer", provider.get_tracer("test"))
    yield exporter
    provider.shutdown()


def only(exporter: InMemorySpanExporter) -> ReadableSpan:
    (span,) = exporter.get_finished_spans()
    return span


def message(**options: Any) -> SimpleNamespace:
    return SimpleNamespace(
        queue_name="store-one", message_id="m", actor_name="store_it", args=({"agent": "a"},), options=options
    )


def work(subject: SimpleNamespace, error: Exception | None = None) -> None:
    middleware = TraceMessages()
    middleware.before_process_message(None, subject)
    middleware.after_process_message(None, subject, exception=error)


def test_without_an_address_nothing_of_opentelemetry_is_imported() -> None:
    code = (
        "import sys; from memline.producers.cli import run; run(['config', 'show']);"
        "import memline.producers.runs.following, memline.shared.queue.routes;"
        "from memline.shared import traces;"
        "assert not traces.is_on();"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)

    assert ran.stdout.splitlines()[-1] == "[]"


def test_without_the_sdk_a_command_works_and_says_what_is_missing() -> None:
    code = (
        "import sys; sys.modules['opentelemetry.sdk'] = None;"
        "from memline.producers.cli import run; sys.exit(run(['config', 'show']))"
    )
    env = {
        "PYTHONPATH": str(ROOT),
        "HOME": "/nonexistent",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
    }
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)

    assert ran.returncode == 0, ran.stderr
    assert "Warning: traces are asked for, and the SDK of OpenTelemetry is missing" in ran.stderr


@pytest.mark.parametrize(
    ("env", "is_on"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_traces_are_sent_where_a_collector_is_named(env: dict[str, str], is_on: bool) -> None:
    assert environment.asks_for_traces(env)[0] is is_on


def test_without_traces_a_message_carries_nothing_and_a_span_does_nothing() -> None:
    assert traces.carrier() == {} == traces.carrier([PARENT])
    assert traces.current() == ""
    with traces.span("x") as span:
        span.note(files=1)
        span.fail("error")
    work(message(traceparent=PARENT))


def test_a_call_of_a_provider_is_traced_within_a_save_or_question_alone(
    recorded: InMemorySpanExporter,
) -> None:
    identity = Identity(provider="gemini", model="m")
    with embedding_span(identity):
        pass
    assert recorded.get_finished_spans() == ()

    with traces.span("save"), embedding_span(identity):
        pass
    inner, _ = recorded.get_finished_spans()
    assert (inner.name, inner.kind) == ("embeddings m", SpanKind.CLIENT)
    assert inner.attributes == {
        "gen_ai.operation.name": "embeddings",
        "gen_ai.provider.name": "gcp.gemini",
        "gen_ai.request.model": "m",
    }


def test_a_message_goes_on_with_the_trace_that_it_carries(recorded: InMemorySpanExporter) -> None:
    work(message(traceparent=PARENT, links=[OTHER]))

    span = only(recorded)
    assert (span.name, span.kind) == ("process store", SpanKind.CONSUMER)
    assert span.parent is not None and f"{span.parent.span_id:x}" == "b7ad6b7169203331"
    assert [f"{link.context.span_id:x}" for link in span.links] == ["c7ad6b7169203332"]
    assert span.attributes is not None
    assert span.attributes["messaging.destination.name"] == "store-one"
    assert span.attributes["memline.index_host"] == "one"
    assert span.attributes["memline.agent"] == "a"


def test_a_message_of_an_older_release_is_worked_on_without_a_trace(recorded: InMemorySpanExporter) -> None:
    work(message(redis_message_id="m"))

    assert recorded.get_finished_spans() == ()


@pytest.mark.parametrize(
    "options",
    [
        {"traceparent": "nonsense"},
        {"traceparent": 7, "links": "x"},
        {"traceparent": PARENT.replace("b7ad6b7169203331", "0" * 16), "links": [None, 3, "", "00-x"]},
        {"traceparent": None, "links": [["a"]] * 100},
    ],
)
def test_a_context_that_is_none_keeps_no_message_from_being_worked_on(
    recorded: InMemorySpanExporter, options: dict[str, Any]
) -> None:
    work(message(**options))

    assert only(recorded).links == ()


def test_an_error_is_told_by_its_type_and_never_by_its_words(recorded: InMemorySpanExporter) -> None:
    work(message(traceparent=PARENT), ValueError("the note says sk-secret"))

    span = only(recorded)
    assert span.attributes is not None and span.attributes["error.type"] == "ValueError"
    assert not span.status.is_ok and not span.status.description
    assert "sk-secret" not in span.to_json()


def test_a_message_about_several_saves_carries_the_first_and_links_to_the_others() -> None:
    many = [f"{PARENT[:-5]}{number:02d}-01" for number in range(50)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traces, "_tracer", object())
        carried = traces.carrier(many)

    assert carried["traceparent"] == many[0]
    assert carried["links"] == many[1 : 1 + traces.MAX_LINKS]


def test_the_save_of_a_text_is_known_until_it_is_sent(
    recorded: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    origins, contexts = traces.Origins(), []
    for texts in ([b"a", b"b"], [b"c"]):
        with traces.span("save"):
            origins.note(texts)
            contexts.append(traces.current())
    origins.note([b"d"])

    assert origins.take([b"c", b"a", b"b", b"d"]) == [contexts[1], contexts[0]]
    assert origins.take([b"a"]) == []

    monkeypatch.setattr(traces, "MAX_ORIGINS", 1)
    with traces.span("save"):
        origins.note([b"e", b"f"])
    assert origins.take([b"e"]) == [] and len(origins.take([b"f"])) == 1
