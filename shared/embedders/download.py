"""Downloading a model file: into a `.part` file that a later try goes on with, checked, then renamed."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from shared.embedders.connection import PublicFile, public_file
from shared.embedders.gguf import read_head
from shared.errors import ProviderError, ProviderLater, ProviderStop

#: Tries of one download; each goes on where the one before was cut off.
MAX_TRIES = 3

#: Seconds without a byte before a connection counts as dead.
SILENCE_TIMEOUT_S = 30.0

_RUN_AGAIN = "run: memline index (it goes on where it stopped)"

OnProgress = Callable[[int, int], None]


def download(url: str, target: Path, *, name: str, on_progress: OnProgress) -> None:
    """Bring the file at `url` to `target`. Raises a ProviderError that calls it `name`."""
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with part.open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ProviderLater(
                    f"{name} is being downloaded by another process", hint="wait for it, then: memline index"
                ) from None
            if not target.exists():
                digest = _fill(file, url, name, on_progress)
                file.flush()
                _check(part, digest, name)
                os.replace(part, target)
    except OSError as error:
        raise ProviderStop(
            f"{name} cannot be written to {target.parent}: {error.strerror or error}",
            hint="make room there, or set memorySearch.local.modelCacheDir to another folder",
        ) from None


def _fill(file: BinaryIO, url: str, name: str, on_progress: OnProgress) -> str:
    """Append until the file is complete; its SHA-256 as announced, empty when none was."""
    last: ProviderError | None = None
    for _ in range(MAX_TRIES):
        try:
            whole, digest = _go_on(file, url, name, on_progress)
        except ConnectionError as error:
            last = ProviderLater(f"the download of {name} was cut off: {error}", hint=_RUN_AGAIN)
            continue
        except ProviderLater as error:
            last = error
            continue
        if file.tell() == whole or not whole:
            return digest
        last = ProviderLater(
            f"the download of {name} was cut off at {file.tell()} of {whole} bytes", hint=_RUN_AGAIN
        )
    assert last is not None
    raise last


def _go_on(file: BinaryIO, url: str, name: str, on_progress: OnProgress) -> tuple[int, str]:
    """One request for what is missing; the size of the whole file (0: not told), and its SHA-256."""
    here = file.seek(0, os.SEEK_END)
    asked = {"range": f"bytes={here}-"} if here else {}
    with public_file(url, headers=asked, silence_s=SILENCE_TIMEOUT_S) as response:
        digest = _linked_digest(response)
        span = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+)", response.headers.get("content-range", ""))
        whole = int(span[2]) if span else 0
        if response.status == 416:
            if whole != here:
                file.truncate(0)
                raise ProviderLater(f"the download of {name} begins anew", hint=_RUN_AGAIN)
            return whole, digest
        if response.status not in (200, 206):
            raise _refusal(response.status, name)
        if response.status == 200 or not span or int(span[1] or -1) != here:
            if response.status == 206:
                file.truncate(0)
                raise ProviderLater(f"the download of {name} came with the wrong part", hint=_RUN_AGAIN)
            file.truncate(0)
            here = file.seek(0)
            whole = int(response.headers.get("content-length", 0))
        # As they come: pieces of a fixed size would be lost where the connection is.
        for piece in response.pieces:
            file.write(piece)
            here += len(piece)
            on_progress(here, whole)
        return whole, digest


def _linked_digest(response: PublicFile) -> str:
    # What a file is stands in the first answer; the last is that of the storage behind.
    tags = (headers.get("x-linked-etag", "").strip('W/"').lower() for headers in response.history)
    return next((tag for tag in tags if re.fullmatch(r"[0-9a-f]{64}", tag)), "")


def _refusal(status: int, name: str) -> ProviderError:
    if status == 429 or status >= 500:
        return ProviderLater(f"the download of {name} failed: {status}", hint=_RUN_AGAIN, status=status)
    if status == 404:
        return ProviderStop(
            f"{name} is unknown there (404)",
            hint="check owner, repository, file and revision in memorySearch.local.modelPath",
            status=status,
        )
    return ProviderStop(
        f"{name} is not given to everybody ({status})",
        hint="download the file in a browser and set memorySearch.local.modelPath to its path",
        status=status,
    )


def _check(part: Path, digest: str, name: str) -> None:
    """Raise ProviderStop, and drop what was downloaded, unless it is the model that was announced."""
    try:
        if digest:
            with part.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != digest:
                raise ProviderStop(
                    f"the download of {name} is damaged: its SHA-256 is {found}, not {digest}",
                    hint="run: memline index (it begins anew)",
                )
        read_head(part)
    except ProviderStop:
        part.unlink()
        raise
