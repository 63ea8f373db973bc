"""Where the file of a local model is: a path, or `hf:owner/repo/file.gguf` in the folder of downloads.

Only `fetch` uses the network, and only for a file that is not here. What it could not get, `model_file` tells
later in the same process, so the reason reaches every place where a choice of provider is shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from shared.config import environment
from shared.config.schema import AgentSettings, Local
from shared.embedders.catalog import CATALOG
from shared.embedders.gguf import read_head
from shared.embedders.prompts import family
from shared.errors import ProviderError, ProviderStop
from shared.values import value

HUB_PREFIX = "hf:"

#: Of a name on Hugging Face. No part begins with a dot, so none leads out of the folder of downloads.
_NAME = re.compile(
    r"hf:(?P<owner>[\w-][\w.-]*)/(?P<repo>[\w-][\w.-]*)(@(?P<early>[\w-][\w.-]*))?"
    r"/(?P<file>[\w-][\w.-]*(/[\w-][\w.-]*)*\.gguf)(@(?P<late>[\w-][\w.-]*))?",
    re.ASCII | re.IGNORECASE,
)

_EXAMPLE = "hf:owner/repo/file.gguf"

OnProgress = Callable[[int, int], None]

#: Why a download of this process failed, by name.
_failures: dict[str, ProviderError] = {}


@value
class ModelFile:
    """A model file that is here."""

    path: Path
    #: What tells its content from that of another file with this name.
    digest: str
    #: A name of `shared.embedders.prompts`; empty: no prompts.
    prompt_family: str


@value
class HubFile:
    """A file on Hugging Face."""

    name: str
    owner: str
    repo: str
    revision: str
    file: str

    @property
    def url_path(self) -> str:
        return f"/{self.owner}/{self.repo}/resolve/{self.revision}/{self.file}"

    def path_in(self, cache: Path) -> Path:
        """Where it is kept. Every revision has a place of its own."""
        return cache / self.owner / self.repo / self.revision / self.file


def model_file(local: Local, home: Path) -> ModelFile:
    """The configured model, looked at but not loaded.

    Raises a ProviderError when it is not here or no model.
    """
    name = configured(local)
    path = _path(name, local, home)
    if not path.is_file() and name.startswith(HUB_PREFIX):
        failure = _failures.get(name)
        if failure is not None:
            raise failure
        raise ProviderStop(
            f"the model {name} is not on this machine yet",
            hint=f"run: memline index (downloads it to {path})",
        )
    head = read_head(path)
    return ModelFile(path=path, digest=head.digest, prompt_family=family(head, path.name))


def configured(local: Local) -> str:
    """`local.modelPath`, or the model that is used without one."""
    return local.model_path.strip() or CATALOG["local"].default_model


def missing(settings: AgentSettings) -> HubFile | None:
    """The file that has to be downloaded before the settings work; None when there is none."""
    memory = settings.memory
    name = configured(memory.local)
    if "local" not in (memory.provider, memory.fallback) or not name.startswith(HUB_PREFIX):
        return None
    try:
        file = parse(name)
    except ProviderStop:
        # `model_file` says so.
        return None
    return None if file.path_in(cache_folder(memory.local, settings.home)).is_file() else file


def fetch(settings: AgentSettings, on_progress: OnProgress = lambda done, total: None) -> None:
    """Download the configured model if it is not here. Raises nothing: see `model_file` for what went wrong.

    `on_progress` is told the bytes that are here and those of the whole file, 0 while they are unknown.
    """
    file = missing(settings)
    if file is None:
        return
    # httpx, for those who download.
    from shared.embedders.download import download

    target = file.path_in(cache_folder(settings.memory.local, settings.home))
    _failures.pop(file.name, None)
    try:
        download(environment.hf_url() + file.url_path, target, name=file.name, on_progress=on_progress)
    except ProviderError as error:
        _failures[file.name] = error


def cache_folder(local: Local, home: Path) -> Path:
    """Where downloaded models are kept."""
    return Path(local.model_cache_dir) if local.model_cache_dir else home / "models"


def parse(name: str) -> HubFile:
    """The parts of a name on Hugging Face; the revision stands behind the repository or at the end."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise ProviderStop(
            f"{name} is no name of a GGUF file on Hugging Face",
            hint=f"set memorySearch.local.modelPath to {_EXAMPLE}, or {_EXAMPLE}@revision",
        )
    return HubFile(
        name=name,
        owner=match["owner"],
        repo=match["repo"],
        revision=match["late"] or match["early"] or "main",
        file=match["file"],
    )


def _path(name: str, local: Local, home: Path) -> Path:
    if name.startswith(("http:", "https:")):
        raise ProviderStop(
            "local.modelPath is a web address",
            hint=f"download the file and set memorySearch.local.modelPath to its path, or to {_EXAMPLE}",
        )
    if name.startswith(HUB_PREFIX):
        return parse(name).path_in(cache_folder(local, home)).absolute()
    return Path(name).expanduser().absolute()
