"""Make and change the settings of one workspace, and find the file that names its further paths."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from memline.shared.config import config_file, edit, environment, workspaces
from memline.shared.config.environment import Environment
from memline.shared.config.load import Loaded
from memline.shared.config.schema import AgentSettings, ExtraPath
from memline.shared.config.transcript_programs import READ_IN_PLACE
from memline.shared.errors import ConfigError
from memline.shared.tables import as_dict, as_list
from memline.shared.values import replace

_TEMPLATE = """\
// Memline's settings for this folder, {kind}; made by `memline init`.
// Every key is in docs/config.md. `memline config show` prints what is in effect.
{{
  workspace: {workspace},
  memorySearch: {{
    // Folders and files that are searched beside MEMORY.md and memory/; "." is the whole folder.
    // `memline add DIR` and `memline remove DIR` keep this list.
    extraPaths: [{extra}],

    // Left out, as in .gitignore: "drafts/", "*.draft.md". Ignore files of the folder count as well.
    exclude: [],

    // Search by meaning: "openai", "gemini", "voyage", "local"; "auto" takes the one whose key is set.
    // provider: "auto",

    // Past sessions as well, secrets hidden (docs/sessions.md): those of {programs}.
    // sources: ["memory", "sessions"], experimental: {{ sessionMemory: true }}, transcripts: ["claude-code"],
  }},
}}
"""

#: Where a configuration file, and the file of a workspace, have the list.
_IN_CONFIG = ("agents", "defaults", "memorySearch", "extraPaths")
_IN_WORKSPACE = ("memorySearch", "extraPaths")


def create(workspace: Path, kind: str, extra_paths: Sequence[str], env: Environment) -> tuple[Path, bool]:
    """Write the settings of a workspace; return the file, and False when it is there already and stays."""
    file = workspaces.settings_file(workspace, env)
    extra = ", ".join(json.dumps(path, ensure_ascii=False) for path in extra_paths)
    if file.exists():
        return file, False
    text = _TEMPLATE.format(
        kind=kind,
        workspace=json.dumps(str(workspace), ensure_ascii=False),
        extra=extra,
        programs=", ".join(f'"{name}"' for name in READ_IN_PLACE),
    )
    config_file.write(file, text)
    return file, True


def adopt(former: Path, workspace: Path, env: Environment) -> Path | None:
    """Give a workspace the settings of the folder that it was; return the file, None when there are none.

    Paths inside that folder are changed with it. Settings that the workspace has already stay, and those of a
    folder that is still there. Raises ConfigError.
    """
    old, new = (workspaces.settings_file(each, env) for each in (former, workspace))
    if not old.exists() or new.exists():
        return None
    text = _text(old)
    for quote in "\"'":
        for end in (quote, "/"):
            text = text.replace(f"{quote}{former}{end}", f"{quote}{workspace}{end}")
    text = edit.put(text, ("workspace",), str(workspace), where=str(old))
    config_file.write(new, text)
    if not former.exists():
        old.unlink()
    return new


def use_local_model(file: Path, name: str) -> None:
    """Have a workspace's settings name a local model. Raises ConfigError."""
    text = _text(file)
    for path, wanted in ((("provider",), "local"), (("local", "modelPath"), name)):
        text = edit.put(text, ("memorySearch", *path), wanted, where=str(file))
    config_file.write(file, text)


def exists(workspace: Path, env: Environment) -> bool:
    """Tell whether the workspace has settings of its own."""
    return workspaces.settings_file(workspace, env).exists()


def with_extra_paths(settings: AgentSettings, paths: Sequence[str]) -> AgentSettings:
    """Return the settings as they are when `extraPaths` has these paths, too."""
    extra = (*settings.memory.extra_paths, *(ExtraPath(path=path) for path in paths))
    return replace(settings, memory=replace(settings.memory, extra_paths=extra))


def file_naming(loaded: Loaded, agent: str, folder: Path) -> Path | None:
    """Return the file that names a folder or file in `extraPaths` of the agent's workspace already."""
    entries = _entries(loaded, agent)
    return next((file for file, _, _, named in entries if workspaces.is_same(named, folder)), None)


def add_path(loaded: Loaded, agent: str, folder: Path) -> Path:
    """Add a folder or file to them; return the file that names it. Raises ConfigError."""
    workspace = loaded.context.workspace(agent)
    item = "." if workspaces.is_same(folder, workspace.value) else str(folder)
    with _alone(loaded.context.env):
        file, path = _target(loaded, agent)
        if not file.exists():
            create(workspace.value, "used with `memline add`", (), loaded.context.env)
        if (named := file_naming(loaded, agent, folder)) is not None:
            return named
        config_file.write(file, edit.add(_text(file), path, item, where=str(file)))
        return file


def remove_path(loaded: Loaded, agent: str, folder: Path) -> Path:
    """Take a folder or file out of `extraPaths`; return the file that named it. Raises ConfigError."""
    named = []
    with _alone(loaded.context.env):
        for file, path, number, entry in _entries(loaded, agent):
            if workspaces.is_same(entry, folder):
                config_file.write(file, edit.remove(_text(file), path, number, where=str(file)))
                return file
            named.append(str(entry))
    known = f"; these are: {', '.join(named)}" if named else ""
    raise ConfigError(f"{folder} is not in extraPaths{known}", hint="memline config show")


@contextmanager
def _alone(env: Environment) -> Iterator[None]:
    """Let one process at a time change lists of paths: each reads what the one before has written."""
    folder = workspaces.settings_file("/", env).parent
    with ExitStack() as opened:
        # Some network disks have no locks, and the list may be in another folder that can be written.
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(folder, os.O_RDONLY)
            opened.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _target(loaded: Loaded, agent: str) -> tuple[Path, Sequence[str]]:
    """Return the file to which a path is added, and the place of the list in it."""
    file, workspace = loaded.settings.path, loaded.context.workspace(agent)
    own = workspaces.settings_file(workspace.value, loaded.context.env)
    # Never OpenClaw's own file: its memory search would read the folder, too.
    is_configured = file is not None and workspace.origin.startswith(f"{file}: ")
    if file is None or own.exists() or not is_configured or loaded.context.is_openclaw:
        return own, _IN_WORKSPACE
    return file, _IN_CONFIG


def _entries(loaded: Loaded, agent: str) -> Iterator[tuple[Path, Sequence[str], int, Path]]:
    """Yield file, place of the list, number and path of every entry that memline may change."""
    workspace = loaded.context.workspace(agent).value
    own = workspaces.settings_file(workspace, loaded.context.env)
    for file, path in ((own, _IN_WORKSPACE), (loaded.settings.path, _IN_CONFIG)):
        if file is None or not file.exists():
            continue
        listed: Any = config_file.read(file)
        for name in path:
            listed = as_dict(listed).get(name)
        for number, entry in enumerate(as_list(listed)):
            text = entry.get("path", "") if isinstance(entry, dict) else str(entry)
            expanded = environment.expand_user(text, loaded.context.env)
            yield file, path, number, Path(os.path.normpath(workspace / expanded))


def _text(file: Path) -> str:
    return file.read_text("utf-8-sig")
