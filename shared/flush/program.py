"""One run of a program that takes a turn: text in, text out, within bounds of time and size."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from shared.embedders.masking import shown
from shared.errors import ProviderLater, ProviderRefused, ProviderStop

#: Of what it writes to its standard error, the end is told.
_SAID_BYTES = 2_000

_PIECE_BYTES = 1 << 16


def run(command: Sequence[str], text: str, *, timeout_s: float, max_bytes: int, what: str, where: str) -> str:
    """What the program writes to its standard output when it is given the text. Raises a ProviderError."""
    name = os.path.basename(command[0])
    try:
        # A session of its own, so that what it started ends with it.
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else "") or "not a command"
        raise ProviderStop(
            f"{what} failed: {name} cannot be started: {reason}", hint=f"check {where}"
        ) from None
    writer = threading.Thread(target=_write, args=(process, text.encode("utf-8", "replace")), daemon=True)
    writer.start()
    try:
        out, said = _read(process, time.monotonic() + timeout_s, max_bytes)
    except TimeoutError:
        raise ProviderLater(f"{what} failed: {name} gave no answer within {timeout_s:g} s") from None
    except OverflowError:
        raise ProviderRefused(f"{what} failed: {name} answered more than {max_bytes} bytes") from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        # Whoever else holds its input is left alone.
        writer.join(1.0)
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()
    if process.returncode:
        words = shown(said.decode("utf-8", "replace"))
        raise ProviderLater(f"{what} failed: {name} ended with {process.returncode}: {words}")
    return out.decode("utf-8", "replace")


def _write(process: subprocess.Popen[bytes], content: bytes) -> None:
    assert process.stdin is not None
    # A program may answer without having read everything.
    with suppress(BrokenPipeError), process.stdin as stdin:
        stdin.write(content)


def _read(process: subprocess.Popen[bytes], until: float, max_bytes: int) -> tuple[bytes, bytes]:
    """Both outputs, of the second one the end. Raises TimeoutError and OverflowError."""
    out, said = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        for stream, held in ((process.stdout, out), (process.stderr, said)):
            assert stream is not None
            selector.register(stream, selectors.EVENT_READ, held)
        while selector.get_map():
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            for ready, _ in selector.select(left_s):
                piece = os.read(ready.fd, _PIECE_BYTES)
                ready.data.extend(piece)
                if not piece:
                    selector.unregister(ready.fileobj)
            del said[:-_SAID_BYTES]
            if len(out) > max_bytes:
                raise OverflowError
    try:
        process.wait(max(until - time.monotonic(), 0))
    except subprocess.TimeoutExpired:
        raise TimeoutError from None
    return bytes(out), bytes(said)
