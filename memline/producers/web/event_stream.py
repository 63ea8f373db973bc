"""Tell the browsers that watch what changed, by one stream of events each."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping

from memline.producers.web.live import LiveFigures
from memline.producers.web.rendering import Renderer
from memline.producers.web.snapshot import Snapshot
from memline.producers.web.strip import Strip, news
from memline.shared.values import value

#: Seconds after which a stream ends, so that the browser asks again with its cookie.
STREAM_S = 600.0

#: Seconds after which a line is sent though nothing changed, so that no proxy ends the stream.
QUIET_S = 15.0


@value
class _Told:
    """What a snapshot says to all streams of the same agents."""

    snapshot: Snapshot | None = None
    topics: Mapping[str, object] = {}
    figures: Mapping[str, str] = {}
    strip: Strip | None = None
    #: What the script shows of the strip.
    status: Mapping[str, object] = {}


class EventStream:
    """The streams of a server: what they tell is made once a look, however many there are."""

    def __init__(
        self, live: LiveFigures, renderer: Renderer, strip_of: Callable[[Snapshot, str], Strip]
    ) -> None:
        self._live = live
        self._renderer = renderer
        self._strip_of = strip_of
        #: Agent, or empty for all -> what was made last.
        self._last: dict[str, _Told] = {}

    async def told(
        self, only: str, is_allowed: Callable[[], bool], is_stopping: Callable[[], bool]
    ) -> AsyncIterator[str]:
        """Yield an event whenever the state differs: the topics that changed, figures, and the strip."""
        sent, left_s = _Told(), STREAM_S
        # When settings change the server is there again at once.
        yield "retry: 1000\n\n"
        with self._live.watching():
            while left_s > 0 and not is_stopping() and is_allowed():
                if (snapshot := self._live.latest) is not None and snapshot is not sent.snapshot:
                    told = self._made(snapshot, only)
                    # The page was drawn a moment ago: its first event brings figures and strip alone.
                    changed = [*_changes(told.topics, sent.topics)] if sent.topics else []
                    event: dict[str, object] = {"topics": changed}
                    event["figures"] = _changes(told.figures, sent.figures)
                    if told.status != sent.status:
                        event["status"] = told.status
                    sent = told
                    if any(event.values()):
                        yield f"data: {json.dumps(event)}\n\n"
                waited_s = await self._live.next(QUIET_S)
                left_s -= waited_s
                if waited_s >= QUIET_S:
                    yield ": still here\n\n"

    def _made(self, snapshot: Snapshot, only: str) -> _Told:
        last = self._last.get(only, _Told())
        if last.snapshot is snapshot:
            return last
        strip = self._strip_of(snapshot, only)
        made = _Told(
            snapshot=snapshot,
            topics=snapshot.topics(only),
            figures=snapshot.figures(only),
            strip=strip,
            # Rendering it is half of what a look costs.
            status=last.status if strip == last.strip else news(strip, self._renderer),
        )
        self._last[only] = made
        return made


def _changes(now: Mapping[str, object], before: Mapping[str, object]) -> dict[str, object]:
    return {name: each for name, each in now.items() if before.get(name) != each}
