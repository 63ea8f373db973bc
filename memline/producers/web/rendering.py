"""Turn pages into HTML: the templates' environment, and its filters.

Every text is escaped, and its control characters are made visible: names, texts and errors are hostile input.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from memline.producers.actions.verbs import DANGERS
from memline.producers.api.auth import DASHBOARD
from memline.producers.api.calls import Calls
from memline.shared.visible_text import one_line, visible
from memline.shared.words import counted, money, span

#: Where the dashboard is; every address on its pages begins with it.
ROOT = DASHBOARD.rstrip("/")

HERE = Path(__file__).parent


def _shown(value: Any) -> Any:
    """Finish every expression of a template; escaping comes after it."""
    if isinstance(value, Markup):
        return value
    return visible(value) if isinstance(value, str) else value


def ago(seconds: float | None) -> Markup:
    """Write a moment (seconds since the epoch) as its age, with the time in UTC behind it; empty for none."""
    if not seconds:
        return Markup("")
    moment = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"
    words = f"{span(max(0.0, time.time() - seconds))} ago"
    return Markup('<time datetime="{0}Z" title="{0} UTC">{1}</time>').format(moment, words)


def age(seconds: float | None) -> str:
    """Write a length of time in one unit; a dash for none."""
    return "–" if seconds is None else span(max(0.0, seconds))


def number(value: float | None) -> str:
    """Write a number with its thousands apart; a dash for none."""
    if value is None:
        return "–"
    return f"{value:,.1f}" if value % 1 else f"{value:,.0f}"


def path_of(name: str) -> str:
    """Return the address of the form of a command, below ROOT: `/jobs/pause`."""
    return "/" + name.replace(" ", "/")


def command(calls: Calls, *words: str, agent: str = "") -> str:
    """Write a command as it works in any folder: `memline`, the options of a memory, and these words."""
    return shlex.join(["memline", *calls.options(agent).words(), *words])


def command_of(calls: Calls, name: str, fields: Mapping[str, object]) -> str:
    """Write the command that does what a form with these fields does."""
    texts = {key: str(value) for key, value in fields.items() if value}
    job, agent = ([texts.pop(key)] if key in texts else [] for key in ("job", "agent"))
    options = [word for key, text in texts.items() for word in (f"--{key}", text)]
    return command(calls, *name.split(), *options, *job, agent="".join(agent))


def environment(calls: Calls) -> Environment:
    """Make the environment of the templates; rendering is thread-safe. Commands are of these calls."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(ago=ago, age=age, number=number, money=money, one_line=one_line, counted=counted)
    made.globals.update(root=ROOT, dangers=DANGERS, path_of=path_of, command_of=partial(command_of, calls))
    made.filters["typed"] = lambda text, agent="": calls.options(agent).as_typed(text)
    made.globals["ui"] = made.get_template("ui.html").module
    return made
