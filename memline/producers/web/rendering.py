"""Turn pages into HTML: the templates' environment, its filters, and the static files with their digests.

Every text is escaped, and its control characters are made visible: names, texts and errors are hostile input.
"""

from __future__ import annotations

import hashlib
import shlex
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from memline.producers.calls.rows import Call
from memline.producers.calls.table import CALLS
from memline.producers.http.auth import DASHBOARD
from memline.shared.finding import PROBLEM, WARNING
from memline.shared.visible_text import one_line, visible
from memline.shared.words import counted, money, span

#: Where the dashboard is; every address on its pages begins with it.
ROOT = DASHBOARD.rstrip("/")

_HERE = Path(__file__).parent

#: The icon of a tab by the worst level.
_ICONS = {PROBLEM: "icon-problem.svg", WARNING: "icon-warning.svg"}

_MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def _shown(value: Any) -> Any:
    """Finish every expression of a template; escaping comes after it."""
    if isinstance(value, Markup):
        return value
    return visible(value) if isinstance(value, str) else value


def when(seconds: float | None) -> str:
    """Write a moment, seconds since the epoch, in UTC; empty for none."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}" if seconds else ""


def ago(seconds: float | None) -> Markup:
    """Write a moment as its age, with the full time behind it; empty for none."""
    if not seconds:
        return Markup("")
    moment = datetime.fromtimestamp(seconds, UTC)
    words = f"{span(max(0.0, time.time() - seconds))} ago"
    return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(
        f"{moment:%Y-%m-%dT%H:%M:%SZ}", when(seconds), words
    )


def age(seconds: float | None) -> str:
    """Write a length of time in one unit; a dash for none."""
    return "–" if seconds is None else span(max(0.0, seconds))


def number(value: float | None) -> str:
    """Write a number with its thousands apart; a dash for none."""
    if value is None:
        return "–"
    return f"{value:,.1f}" if value % 1 else f"{value:,.0f}"


def size(count: float | None) -> str:
    """Write a number of bytes in one unit; a dash for none."""
    if count is None:
        return "–"
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def file_url(agent: str, path: str) -> str:
    """Make the address of a file's chunks."""
    return f"{ROOT}/file?{urlencode({'agent': agent, 'path': path}, errors='surrogatepass')}"


def path_of(call: Call) -> str:
    """Return the address of the form of a call, below ROOT: `/jobs/pause`."""
    return "/" + call.name.replace(" ", "/")


def command_of(call: Call, values: Mapping[str, object]) -> str:
    """Write the command that does what a form with these values does; `agent` among them is the one meant."""
    words = [
        "memline",
        *(["--agent", str(values["agent"])] if values.get("agent") else []),
        *call.name.split(),
    ]
    given = [(each, str(values[each.name])) for each in call.parameters if values.get(each.name)]
    for each, text in given:
        if not each.argument:
            words += [each.option] if each.kind == "boolean" else [each.option, text]
    return shlex.join([*words, *(text for each, text in given if each.argument)])


class Static:
    """The static files: each has its digest in its address, so a browser may keep it for good."""

    def __init__(self, base_path: str = "") -> None:
        """`base_path`: of `serve`, before every address of a page."""
        self.base_path = base_path
        self._files = {path.name: path.read_bytes() for path in sorted((_HERE / "static").iterdir())}
        self._digests = {
            name: hashlib.sha256(content).hexdigest()[:16] for name, content in self._files.items()
        }

    def address(self, name: str) -> str:
        return f"{self.base_path}{ROOT}/static/{self._digests[name]}/{name}"

    def find(self, digest: str, name: str) -> tuple[bytes, str] | None:
        """Return content and media type; None for a file, or a version of it, that is not there."""
        if self._digests.get(name) != digest:
            return None
        return self._files[name], _MEDIA_TYPES[Path(name).suffix]


class Renderer:
    """Renders templates; thread-safe."""

    def __init__(self, static: Static) -> None:
        self._static = static
        self._environment = Environment(
            loader=FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_shown,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(
            when=when,
            ago=ago,
            age=age,
            number=number,
            money=money,
            size=size,
            one_line=one_line,
            counted=counted,
            link=self.link,
        )
        self._environment.globals.update(
            # `inside`: of fields that the application itself reads.
            root=self.link(ROOT),
            inside=ROOT,
            static=static.address,
            calls=CALLS,
            file_url=file_url,
            path_of=path_of,
            command_of=command_of,
        )
        self._environment.globals["icon"] = self.icon
        # As a global, so that a block that is rendered alone has the macros too.
        for name, file in (("ui", "ui.html"), ("state_strip", "strip.html")):
            self._environment.globals[name] = self._environment.get_template(file).module

    def link(self, address: str) -> str:
        """Put the base path before an address that begins with ROOT."""
        return f"{self._static.base_path}{address}" if address.startswith(ROOT) else address

    def icon(self, level: str) -> str:
        """Return the address of the icon of a tab by the worst level."""
        return self._static.address(_ICONS.get(level, "icon.svg"))

    def macro(self, template: str, name: str, value: object) -> str:
        """Render one macro of a template with one value."""
        macros: Any = self._environment.get_template(template).module
        return str(getattr(macros, name)(value))

    def page(self, template: str, context: Mapping[str, object]) -> str:
        """Render a whole page."""
        return self._environment.get_template(template).render(context)

    def fragment(self, template: str, block: str, context: Mapping[str, object]) -> str | None:
        """Render one block of a page or of what all have; None when there is none of this name."""
        for name in (template, "layout.html"):
            found = self._environment.get_template(name)
            if block in found.blocks:
                return "".join(found.blocks[block](found.new_context(dict(context))))
        return None
