"""A clock for tests, which moves only when it is told to."""


class ManualClock:
    """Moves only by `advance` and `sleep`: a clock for tests."""

    def __init__(self, start: float = 1_750_000_000.0) -> None:
        self._now_ns = int(start * 1e9)
        self._monotonic = 1_000.0

    def now(self) -> float:
        return self._now_ns / 1e9

    def now_ns(self) -> int:
        return self._now_ns

    def monotonic(self) -> float:
        return self._monotonic

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def set_back(self, seconds: float) -> None:
        """Set the machine's clock back."""
        self._now_ns -= int(seconds * 1e9)

    def advance(self, seconds: float) -> None:
        self._now_ns += int(seconds * 1e9)
        self._monotonic += seconds
