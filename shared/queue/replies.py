"""Where the answer to a question goes: one reply box a question, read once, gone after its deadline."""

from __future__ import annotations

import queue
import threading
from typing import Protocol


class Replies(Protocol):
    """Carries answers (JSON text) from query workers to those who asked."""

    def open(self, box: str) -> None:
        """Make a box before the question is sent."""
        ...

    def put(self, box: str, answer: bytes) -> None:
        """Answer; dropped when nobody waits any more."""
        ...

    def take(self, box: str, timeout_s: float) -> bytes | None:
        """Wait for the answer and close the box; None when the time is over."""
        ...


class InProcessReplies:
    """Reply boxes of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._boxes: dict[str, queue.SimpleQueue[bytes]] = {}

    def open(self, box: str) -> None:
        with self._lock:
            self._boxes[box] = queue.SimpleQueue()

    def put(self, box: str, answer: bytes) -> None:
        with self._lock:
            waiting = self._boxes.get(box)
        if waiting is not None:
            waiting.put(answer)

    def take(self, box: str, timeout_s: float) -> bytes | None:
        with self._lock:
            waiting = self._boxes[box]
        try:
            return waiting.get(timeout=max(timeout_s, 0))
        except queue.Empty:
            return None
        finally:
            with self._lock:
                self._boxes.pop(box, None)
