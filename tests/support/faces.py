"""What every face of a fleet says is wrong: open pages, commands and metrics, each read as its user would."""

from __future__ import annotations

import html
import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.support.fleet import Fleet

#: Pages that are open at a time.
PAGES = ("/", "/queues", "/files", "/jobs", "/providers", "/charts")

#: Seconds between two scrapes.
SCRAPE_S = 1.0

#: Levels that the strip counts, and all.
TROUBLE = ("problem", "warning")

_LINK = re.compile(r'class="(\w+)" data-code="(\w+)"')
_ROW = re.compile(r'<li id="(\w+?)(?:-\d+)?"><span class="badge (\w+)')
_METRIC = re.compile(r'^memline_finding\{agent="[^"]*",code="(\w+)",level="(\w+)"\} 1', re.M)
_FIGURE = re.compile(r'data-figure="(\w+)">([^<]*)<')
_CHART = re.compile(r'<figure class="chart">\s*<figcaption>([^<]*?) <b class="s0">\s*([^<]*)</b>')

#: Faces that are told by themselves; the others are asked again and again.
_TOLD = (*PAGES, "list")

Codes = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a face said: code and level of each finding."""

    #: Monotonic seconds: when it was asked, or told by itself.
    asked: float
    codes: Codes
    #: Rate, ETA and spending in the strip of a page.
    facts: str = ""


@dataclass(slots=True)
class Faces:
    """Reads all faces in threads, until it is left."""

    fleet: Fleet
    url: str
    _said: dict[str, list[Said]] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _threads: list[threading.Thread] = field(default_factory=list)
    _clients: list[httpx.Client] = field(default_factory=list)
    #: Figures of the tiles, as the open first page has them.
    tiles: dict[str, str] = field(default_factory=dict)

    def __enter__(self) -> Faces:
        work: list[Callable[[], None]] = [lambda path=path: self._watch(path) for path in PAGES]  # type: ignore[misc]
        work += [lambda: self._command("status"), lambda: self._command("doctor"), self._scrape]
        self._threads = [threading.Thread(target=self._guarded, args=(each,), daemon=True) for each in work]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=60)

    @property
    def names(self) -> tuple[str, ...]:
        return (*PAGES, "list", "status", "doctor", "metrics")

    def holds(self, face: str, condition: Callable[[Said], bool], since: float) -> bool:
        """Return whether it holds for what a face says now; a command has to be asked after `since`."""
        now = self.now(face)
        return now is not None and condition(now) and (face in _TOLD or now.asked >= since)

    def seconds(
        self, face: str, condition: Callable[[Said], bool], since: float, known: float
    ) -> float | None:
        """Return how long after `known` it held for what a face said, for good; None when it does not."""
        if not self.holds(face, condition, since):
            return None
        with self._lock:
            said = self._said[face]
            wrong = max((place for place, each in enumerate(said) if not condition(each)), default=-1)
            # A command is late by when it was asked and answered wrongly, a page by when it was told.
            late = said[wrong].asked if face not in _TOLD else said[wrong + 1].asked
        return max(0.0, late - known) if wrong >= 0 else 0.0

    def now(self, face: str) -> Said | None:
        with self._lock:
            said = self._said.get(face)
            return said[-1] if said else None

    def figures(self) -> dict[str, dict[str, str]]:
        """Return dead, failed and wanted as tiles, charts and `memline queue` say them at this moment."""
        with httpx.Client(base_url=self.url, timeout=60) as client:
            tiles = dict(_FIGURE.findall(client.get("/ui/").text))
            charts = {
                html.unescape(name): last for name, last in _CHART.findall(client.get("/ui/charts").text)
            }
        found = {
            "tile": {name: tiles[name] for name in ("dead", "wanted", "failed") if name in tiles},
            "open tile": {name: self.tiles.get(name, "") for name in ("dead", "wanted", "failed")},
            "chart": {"dead": charts.get("Dead messages", "–"), "wanted": charts.get("Vectors wanted", "–")},
        }
        asked = self.fleet.run("queue", "--json")
        if asked.status == 0:
            queue = asked.json
            found["queue"] = {
                "dead": f"{sum(each['dead'] for each in queue['queues']):,}",
                "wanted": f"{queue['backlog']['wanted'] + queue['backlog']['leased']:,}",
                "failed": f"{queue['backlog']['failed']:,}",
            }
        return found

    def _guarded(self, work: Callable[[], None]) -> None:
        while not self._stop.is_set():
            try:
                work()
            except (httpx.HTTPError, json.JSONDecodeError):
                self._stop.wait(0.1)

    def _add(self, face: str, said: Said) -> None:
        with self._lock:
            self._said.setdefault(face, []).append(said)

    def _watch(self, path: str) -> None:
        """Be an open page: its strip follows the events, and the list of the first page is asked for anew."""
        with httpx.Client(base_url=self.url, timeout=60) as client:
            page = client.get(f"/ui{path}").text
            self._show(path, page.partition('id="status"')[2].partition("<main")[0])
            self._tell(client, path, page)
            with client.stream("GET", "/ui/events", timeout=30) as stream:
                retry_s = 0.0
                for line in stream.iter_lines():
                    if self._stop.is_set():
                        return
                    if line.startswith("retry: "):
                        retry_s = int(line[7:]) / 1000
                    if not line.startswith("data: "):
                        continue
                    news: dict[str, Any] = json.loads(line[6:])
                    if "status" in news:
                        self._show(path, news["status"]["rest"])
                    if path == "/":
                        self.tiles.update(news.get("figures", {}))
                        if "findings" in news.get("topics", ()):
                            headers = {"memline-fragment": "findings"}
                            self._tell(client, path, client.get("/ui/", headers=headers).text)
        # As a browser does that is told so.
        self._stop.wait(retry_s)

    def _show(self, path: str, rest: str) -> None:
        codes = frozenset((code, level) for level, code in _LINK.findall(rest))
        facts = html.unescape(re.sub(r"<[^>]*>", " ", rest.partition('class="facts"')[2]))
        self._add(path, Said(asked=time.monotonic(), codes=codes, facts=" ".join(facts.split())))

    def _tell(self, client: httpx.Client, path: str, text: str) -> None:
        if path == "/":
            self.tiles.update(_FIGURE.findall(text))
            self._add("list", Said(asked=time.monotonic(), codes=frozenset(_ROW.findall(text))))

    def _command(self, name: str) -> None:
        asked = time.monotonic()
        ran = self.fleet.run(name, "--json")
        found = ran.json[0]["findings"] if name == "status" else ran.json
        codes = frozenset((each["code"], each["level"]) for each in found if each["level"] != "ok")
        self._add(name, Said(asked=asked, codes=codes))
        self._stop.wait(0.2)

    def _scrape(self) -> None:
        asked = time.monotonic()
        text = httpx.get(f"{self.url}/metrics", timeout=60).raise_for_status().text
        self._add("metrics", Said(asked=asked, codes=frozenset(_METRIC.findall(text))))
        self._stop.wait(SCRAPE_S)
