"""Find the files of a local model: a path, or `hf:owner/repo/file` in the folder of downloads.

Only `fetch` uses the network, and only for a model that is not on this machine. When it fails, `model_file`
says why in the same process, so the reason reaches every place where a choice of provider is shown.

A download appends to a `.part` file that a later attempt or process continues, is compared with the SHA-256
that the hub announces, and then renamed. huggingface-hub 2.4 deletes the part when an attempt fails (models
have up to several GB) and compares sizes alone.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Callable
from contextlib import suppress
from io import BufferedRandom
from pathlib import Path

import msgspec

from memline.shared.config import environment
from memline.shared.config.schema import AgentSettings, Local
from memline.shared.embedders.local.model_file import ONNX, ModelFile, check_content, engine_of
from memline.shared.embedders.local.onnx_files import COMPANIONS, TOKENIZER, WEIGHTS_SUFFIX
from memline.shared.errors import ProviderError, ProviderLater, ProviderStop
from memline.shared.providers import LOCAL, PROVIDERS

HUB_PREFIX = "hf:"

#: Of a name on Hugging Face. No part begins with a dot, so none leads out of the folder of downloads.
_NAME = re.compile(
    r"hf:(?P<owner>[\w-][\w.-]*)/(?P<repo>[\w-][\w.-]*)"
    r"/(?P<file>[\w-][\w.-]*(/[\w-][\w.-]*)*\.(gguf|onnx))(@(?P<revision>[\w-][\w.-]*))?",
    re.ASCII | re.IGNORECASE,
)

_EXAMPLE = "hf:owner/repo/file.gguf or hf:owner/repo/file.onnx"

#: Attempts of one download; each goes on where the one before was cut off.
DOWNLOAD_ATTEMPTS = 3

#: Seconds without a byte before a connection counts as dead.
SILENCE_TIMEOUT_S = 30.0

_NOT_FOUND = 404

_RUN_AGAIN = "memline index (it goes on where it stopped)"

OnProgress = Callable[[int, int], None]

#: Why a download of this process failed, by name.
_failures: dict[str, ProviderError] = {}


class HubFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file on Hugging Face."""

    owner: str
    repo: str
    revision: str
    file: str
    #: The model that it belongs to, as it is configured.
    name: str

    @property
    def url_path(self) -> str:
        return f"/{self.owner}/{self.repo}/resolve/{self.revision}/{self.file}"

    @property
    def path(self) -> Path:
        """Its place below the folder of downloads."""
        return Path(self.owner, self.repo, self.revision, self.file)

    @property
    def parts(self) -> list[HubFile]:
        """All files of the model. The one that is named comes last: when it is there, the model is whole."""
        names = [*COMPANIONS, self.file + WEIGHTS_SUFFIX] if engine_of(self.path) is ONNX else []
        return [*(msgspec.structs.replace(self, file=name) for name in names), self]


def model_file(local: Local, home: Path) -> ModelFile:
    """Read the head of the configured model, without loading it.

    Raises a ProviderError when it is not on this machine or not a model.
    """
    name = configured(local)
    if not name.startswith(HUB_PREFIX):
        path = Path(name).expanduser().absolute()
        return engine_of(path).read_head(path)
    file = parse(name)
    path = (cache_folder(local, home) / file.path).absolute()
    if not path.is_file():
        raise _failures.get(name) or ProviderStop(
            f"the model {name} is not on this machine yet",
            hint=f"memline index (downloads it to {path})",
        )
    return engine_of(path).read_head(path, file.repo)


def configured(local: Local) -> str:
    """Return `local.modelPath`, or the model that is used without one."""
    return local.model_path.strip() or PROVIDERS[LOCAL].default_model


def missing(settings: AgentSettings) -> HubFile | None:
    """Return the model that must be downloaded before the settings work."""
    memory = settings.memory
    file = _hub_file(configured(memory.local))
    if file is None or LOCAL not in (memory.provider, memory.fallback):
        return None
    return None if (cache_folder(memory.local, settings.home) / file.path).is_file() else file


def _hub_file(name: str) -> HubFile | None:
    """Parse a name; None for one that is none, of which `model_file` says so."""
    with suppress(ProviderStop):
        return parse(name)
    return None


def fetch(settings: AgentSettings, on_progress: OnProgress = lambda done, total: None) -> None:
    """Download the configured model if it is missing.

    Raises nothing: see `model_file` for what went wrong. `on_progress` is called with the bytes received and
    those of the whole file, 0 while they are unknown.
    """
    if (model := missing(settings)) is None:
        return
    _failures.pop(model.name, None)
    engine, folder = engine_of(model.path), cache_folder(settings.memory.local, settings.home)
    if not engine.is_installed:
        # Before hundreds of megabytes that would not be of use.
        _failures[model.name] = engine.not_usable()
        return
    for file in model.parts:
        try:
            if not (folder / file.path).is_file():
                _download(file, folder / file.path, on_progress)
        except ProviderError as error:
            if error.status != _NOT_FOUND or file.file in (model.file, TOKENIZER):
                _failures[model.name] = error
                return


def cache_folder(local: Local, home: Path) -> Path:
    """Return the folder of downloaded models."""
    return Path(local.model_cache_dir) if local.model_cache_dir else home / "models"


def parse(name: str) -> HubFile:
    """Split a name on Hugging Face. Raises ProviderStop when it is none."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise ProviderStop(
            f"{name} is not the name of a GGUF or ONNX file on Hugging Face",
            hint=f"set memorySearch.local.modelPath to {_EXAMPLE}, with @revision behind it if it matters",
        )
    revision = match["revision"] or "main"
    return HubFile(owner=match["owner"], repo=match["repo"], revision=revision, file=match["file"], name=name)


def _download(file: HubFile, target: Path, on_progress: OnProgress) -> None:
    """Bring a file of the hub to `target`. Raises a ProviderError."""
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with part.open("a+b") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                text = f"{file.name} is being downloaded by another process"
                raise ProviderLater(text, hint="wait for it, then: memline index") from None
            if target.exists():
                return
            try:
                _check(stream, _received(stream, file, on_progress), part, file.name)
            except ProviderStop:
                part.unlink()
                raise
            os.replace(part, target)
    except OSError as error:
        raise ProviderStop(
            f"{file.name} cannot be written to {target.parent}: {error.strerror or error}",
            hint="make room there, or set memorySearch.local.modelCacheDir to another folder",
        ) from None


def _received(stream: BufferedRandom, file: HubFile, on_progress: OnProgress) -> str:
    """Append what is missing, in some attempts. Returns the SHA-256 that the hub announces; empty: none."""
    for _ in range(DOWNLOAD_ATTEMPTS - 1):
        with suppress(ProviderLater):
            return _resume(stream, file, on_progress)
    return _resume(stream, file, on_progress)


def _resume(stream: BufferedRandom, file: HubFile, on_progress: OnProgress) -> str:
    """Request what is missing and append it; returns as `_received`."""
    # Here, because only downloads need it: 80 ms.
    from memline.shared.embedders.http import public_file

    received = stream.seek(0, os.SEEK_END)
    headers = {"range": f"bytes={received}-"} if received else {}
    url = environment.hf_url() + file.url_path
    try:
        with public_file(url, headers=headers, silence_s=SILENCE_TIMEOUT_S) as response:
            # The first answer says what the file is; the last is that of the storage behind.
            answers = (*response.history, response)
            etags = (each.headers.get("x-linked-etag", "").strip('W/"').lower() for each in answers)
            digest = next((etag for etag in etags if re.fullmatch(r"[0-9a-f]{64}", etag)), "")
            if response.status_code == 416:
                # Nothing is missing; whether it is the right file, the digest tells.
                return digest
            if response.status_code == 200:
                stream.truncate(0)
                received = 0
            elif response.status_code != 206:
                raise _refusal(response.status_code, file.name)
            length = int(response.headers.get("content-length", 0))
            total = received + length if length else 0
            # As they come: pieces of a fixed size would be lost where the connection is.
            for piece in response.iter_bytes():
                stream.write(piece)
                received += len(piece)
                on_progress(received, total)
    except ConnectionError as error:
        raise ProviderLater(f"the download of {file.name} was cut off: {error}", hint=_RUN_AGAIN) from None
    finally:
        stream.flush()
    return digest


def _refusal(status: int, name: str) -> ProviderError:
    if status == 429 or status >= 500:
        return ProviderLater(f"the download of {name} failed: {status}", hint=_RUN_AGAIN, status=status)
    text = (
        f"{name} cannot be downloaded: {'not found' if status == _NOT_FOUND else 'no permission'} ({status})"
    )
    hint = "check memorySearch.local.modelPath, or download the file in a browser and set its path there"
    return ProviderStop(text, hint=hint, status=status)


def _check(content: BufferedRandom, digest: str, path: Path, name: str) -> None:
    """Raise ProviderStop when a download is empty, a web page (of a captive portal), or another file."""
    content.seek(0)
    actual = hashlib.file_digest(content, "sha256").hexdigest()
    if digest and actual != digest:
        text = f"the download of {name} is damaged: its SHA-256 is {actual}, not {digest}"
        raise ProviderStop(text, hint="memline index (it starts over)")
    content.seek(0)
    beginning = content.read(256)
    check_content(path, beginning, "a model's", is_it=beginning.lstrip()[:1] not in (b"", b"<"))
