"""Show the configuration as `memline config show` and `config check` say it; secrets are not shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from memline.producers.web.page import Data, Page, View, command_line
from memline.shared.config.keys import Setting
from memline.shared.config.show import shown_for_agent, shown_for_all
from memline.shared.values import value


@value
class Row:
    """A key of the configuration."""

    key: str
    text: str
    origin: str
    is_default: bool


def _configuration(view: View) -> Data:
    loaded = view.site.loaded
    chosen = view.query.get("agent", "") or view.access.default_agent
    data: dict[str, object] = {
        "names": [settings.agent for settings in view.agents],
        "chosen": chosen,
        "file": "",
        "for_all": [],
        "for_agent": [],
        "problems": [],
        "only_set": view.query.get("set") == "1",
        "command": command_line("--agent", chosen, "config", "show"),
    }
    if loaded is None:
        return data
    settings = view.agent(chosen)
    file = str(loaded.settings.path or "")
    for_all, for_agent = shown_for_all(loaded), shown_for_agent(loaded, settings.agent)
    return data | {
        "file": file,
        "for_all": _rows(for_all, file, only_set=view.query.get("set") == "1"),
        "for_agent": _rows(for_agent, file, only_set=view.query.get("set") == "1"),
        "problems": list(loaded.warnings),
    }


def _rows(settings: Mapping[str, Setting], file: str, *, only_set: bool) -> list[Row]:
    rows = [
        Row(
            key=key,
            text=_text(setting.value),
            # The file is named above the table.
            origin=setting.origin.replace(f"{file}: ", "") if file else setting.origin,
            is_default=setting.origin == "default",
        )
        for key, setting in settings.items()
    ]
    return [row for row in rows if not (only_set and row.is_default)]


def _text(setting: Any) -> str:
    return setting if isinstance(setting, str) and setting else json.dumps(setting, ensure_ascii=False)


PAGES = (
    Page(
        path="/configuration",
        title="Configuration",
        template="configuration.html",
        data=_configuration,
        is_for_all=True,
    ),
)
