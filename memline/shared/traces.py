"""Follow a save or a question through every process with OpenTelemetry, where an operator asks for it.

Off unless a collector is named and the SDK is installed; then no module of OpenTelemetry is imported, and a
message costs one comparison more. `tracing_sdk` alone imports it. Spans have names, counts and ids, never
text of notes, questions, paths or errors.

The context travels among the options of a message, as W3C writes it: `traceparent`, and `links` with those of
other saves whose texts share a request. A message without them is worked on as ever.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType
    from typing import Any

#: Seconds that an export may take, also the last one of a process, unless OTEL_EXPORTER_OTLP_TIMEOUT is set.
EXPORT_S = 5

#: Texts whose save is remembered until they are sent: those of a few thousand notes.
MAX_ORIGINS = 50_000

#: Saves that a request is linked to, at most.
MAX_LINKS = 32

PARENT, LINKS = "traceparent", "links"

_tracer: Any = None


def start(*, has_timeout: bool = False, **resource: str) -> str:
    """Trace from now on, and send what is left at the end of the process; say why not, if it cannot be.

    The SDK reads its own variables. `has_timeout`: one of them says how long an export may take.
    """
    global _tracer
    try:
        sdk = _sdk()
    except ImportError as error:
        return f"traces are asked for, and the SDK of OpenTelemetry is missing ({error.name})"
    if _tracer is None:
        provider = sdk.TracerProvider(resource=sdk.Resource.create(resource))
        exporter = sdk.OTLPSpanExporter() if has_timeout else sdk.OTLPSpanExporter(timeout=EXPORT_S)
        provider.add_span_processor(sdk.BatchSpanProcessor(exporter))
        _tracer = provider.get_tracer("memline")
    return ""


def _sdk() -> ModuleType:
    from memline.shared import tracing_sdk

    return tracing_sdk


def is_on() -> bool:
    """Tell whether this process traces."""
    return _tracer is not None


class Span:
    """What a span may be told; one that is not recorded takes it and does nothing."""

    def __init__(self, span: Any = None) -> None:
        self._span = span

    def note(self, **counts: int) -> None:
        """Set attributes of ours."""
        if self._span is not None:
            self._span.set_attributes({f"memline.{name}": count for name, count in counts.items()})

    def fail(self, error: BaseException | str) -> None:
        """Mark the span as failed, with the type of the error: its words may quote a text."""
        if self._span is not None:
            name = error if isinstance(error, str) else type(error).__name__
            self._span.set_attribute("error.type", name)
            self._span.set_status(_sdk().StatusCode.ERROR)


class _Off:
    """The span of a process that does not trace: one for all."""

    _span = Span()

    def __enter__(self) -> Span:
        return self._span

    def __exit__(self, *_: object) -> None:
        pass


_OFF = _Off()


def span(
    name: str,
    *,
    kind: str = "INTERNAL",
    carried: Mapping[str, Any] | None = None,
    attributes: Mapping[str, str | int] | None = None,
    is_inner: bool = False,
) -> AbstractContextManager[Span]:
    """Give a span for a block, within that of the thread; the first one begins a trace, unless `is_inner`.

    `carried`: options of a message, whose context is then its parent, and its links. `kind`: one of
    OpenTelemetry's SpanKind.
    """
    if _tracer is None or (is_inner and not current()):
        return _OFF
    return _recorded(name, kind, carried, attributes or {})


@contextmanager
def _recorded(
    name: str, kind: str, carried: Mapping[str, Any] | None, attributes: Mapping[str, str | int]
) -> Iterator[Span]:
    context, links = None, []
    if carried is not None:
        context = _extracted(carried.get(PARENT))
        many = carried.get(LINKS)
        links = [
            _sdk().Link(each) for each in map(_context_of, many[:MAX_LINKS] if isinstance(many, list) else [])
        ]
        links = [link for link in links if link.context.is_valid]
    with _tracer.start_as_current_span(
        name,
        context=context,
        kind=_sdk().SpanKind[kind],
        attributes=dict(attributes),
        links=links,
        record_exception=False,
        set_status_on_exception=False,
    ) as raw:
        found = Span(raw)
        try:
            yield found
        except BaseException as error:
            found.fail(error)
            raise


def carrier(origins: Sequence[str] = ()) -> dict[str, Any]:
    """Give the options that carry the context of this thread in a message; empty without one.

    `origins`: contexts of the saves that the message is about, which then take its place.
    """
    if _tracer is None:
        return {}
    parent, *links = origins or (current(),)
    return {PARENT: parent, **({LINKS: links[:MAX_LINKS]} if links else {})} if parent else {}


def current() -> str:
    """Return the context of this thread, as W3C writes it; empty without one."""
    if _tracer is None:
        return ""
    found: dict[str, str] = {}
    _sdk().TraceContextTextMapPropagator().inject(found)
    return found.get(PARENT, "")


def _extracted(parent: object) -> Any:
    """Give the context that a message carried; that of a new trace for what is none."""
    sdk = _sdk()
    found = {PARENT: parent} if isinstance(parent, str) else {}
    return sdk.TraceContextTextMapPropagator().extract(found, context=sdk.Context())


def _context_of(parent: object) -> Any:
    return _sdk().get_current_span(_extracted(parent)).get_span_context()


class Origins:
    """Remembers in which save a text was stored, until it is sent to the provider. For one thread."""

    def __init__(self) -> None:
        self._of: OrderedDict[bytes, str] = OrderedDict()

    def note(self, texts: Iterable[bytes]) -> None:
        """Note that these texts (hashes) belong to the save of this thread's span."""
        if parent := current():
            self._of.update(dict.fromkeys(texts, parent))
            while len(self._of) > MAX_ORIGINS:
                self._of.popitem(last=False)

    def take(self, texts: Iterable[bytes]) -> list[str]:
        """Return the saves of these texts, each once, and forget them."""
        if not self._of:
            return []
        return list(dict.fromkeys(found for text in texts if (found := self._of.pop(text, ""))))
