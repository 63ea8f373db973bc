"""When a provider may be called: what one worker was told, all workers keep to."""

from __future__ import annotations

import threading
from typing import Protocol


class Limits(Protocol):
    """Shared by all embed workers of a provider."""

    def held_until(self, provider: str) -> float:
        """Nobody calls before this time (seconds since the epoch); 0 when free."""
        ...

    def hold(self, provider: str, until: float) -> None:
        """Keep everybody from calling until a time; an earlier time never shortens a later one."""
        ...


class InProcessLimits:
    """Limits of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, float] = {}

    def held_until(self, provider: str) -> float:
        with self._lock:
            return self._held.get(provider, 0.0)

    def hold(self, provider: str, until: float) -> None:
        with self._lock:
            self._held[provider] = max(until, self._held.get(provider, 0.0))
