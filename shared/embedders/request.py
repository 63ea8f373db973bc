"""One request made whole: whatever the provider answers, every text ends with a vector, a reason, or a wait.

A request that is too big, refused or answered badly is cut into parts, the parts are tried one after another,
and only a text that fails alone is a failure. Later and stop end the calls at once; what has come is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shared.embedders.protocol import Embedder
from shared.errors import (
    ProviderBrokenAnswer,
    ProviderError,
    ProviderLater,
    ProviderRefused,
    ProviderStop,
    ProviderTooBig,
)

#: Bad texts that one request may hold and still be cut down to each of them.
MAX_BAD_TEXTS = 8

#: Calls, from the first on, that may fail in this way without a single vector; then it is the provider
#: that fails, not a text. Broken: the whole twice, its halves and its quarters. Else down to its sixteenths.
MAX_FRUITLESS_CALLS = {"broken": 8, "refused": 31, "too_big": 31}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of the texts of one request. A text without a vector or a failure waits, see `error`."""

    #: One a text, in order; None where there is none.
    vectors: list[bytes | None] = field(default_factory=list)
    #: Texts (by index) that will not get a vector by asking again, and why.
    failures: list[tuple[int, ProviderError]] = field(default_factory=list)
    #: Why the remaining texts have nothing yet; None when none remain.
    error: ProviderError | None = None
    #: Caps for coming requests; 0 when nothing was learned.
    learned_max_rows: int = 0
    learned_max_tokens: int = 0


def max_calls(texts: int) -> int:
    """The hard bound of calls for a request of so many texts."""
    return 4 + 2 * MAX_BAD_TEXTS * texts.bit_length()


def embed(
    embedder: Embedder,
    texts: Sequence[str],
    before_call: Callable[[Sequence[str]], None] = lambda _: None,
) -> Outcome:
    """The vectors of `texts`, as many as can be had. Raises nothing that is a ProviderError.

    `before_call` is asked before each call, with its texts; it may wait for a place within a limit, or raise
    ProviderLater, which ends the calls.
    """
    return _Request(embedder, texts, before_call).run()


class _Request:
    """The state of one request while it is cut and tried."""

    def __init__(
        self, embedder: Embedder, texts: Sequence[str], before_call: Callable[[Sequence[str]], None]
    ) -> None:
        self._embedder = embedder
        self._texts = texts
        self._before_call = before_call
        self._vectors: list[bytes | None] = [None] * len(texts)
        self._failures: list[tuple[int, ProviderError]] = []
        #: Parts (first, past the last) still to try; broad ones first, so that a provider that
        #: fails everything is known after few calls.
        self._parts: deque[tuple[int, int]] = deque([(0, len(texts))] if texts else [])
        #: Rows a part may have, as far as is known.
        self._limit = max(len(texts), 1)
        self._largest_good = 0
        self._named_rows = 0
        self._named_tokens = 0
        self._was_too_big = False
        self._asked_again = False

    def run(self) -> Outcome:
        error: ProviderError | None = None
        calls = 0
        last: ProviderError | None = None
        while self._parts and error is None:
            if last is not None and self._is_enough(calls, last):
                error = _give_up(last)
                break
            first, end = self._next_part()
            calls += 1
            try:
                self._before_call(self._texts[first:end])
                vectors = self._embedder.embed_documents(self._texts[first:end])
                if len(vectors) != end - first:
                    raise ProviderBrokenAnswer(f"{len(vectors)} vectors for {end - first} texts")
            except (ProviderLater, ProviderStop) as stop:
                error = stop
            except ProviderError as failure:
                last = failure
                self._failed(first, end, failure)
            else:
                self._vectors[first:end] = vectors
                self._largest_good = max(self._largest_good, end - first)
        return self._outcome(error)

    def _is_enough(self, calls: int, last: ProviderError) -> bool:
        fruitless = not self._largest_good and calls >= MAX_FRUITLESS_CALLS.get(last.kind, 0)
        return fruitless or calls >= max_calls(len(self._texts))

    def _next_part(self) -> tuple[int, int]:
        first, end = self._parts.popleft()
        if end - first > self._limit:
            self._parts.appendleft((first + self._limit, end))
            end = first + self._limit
        return first, end

    def _failed(self, first: int, end: int, failure: ProviderError) -> None:
        rows = end - first
        if isinstance(failure, ProviderTooBig):
            self._learn(rows, failure)
        elif isinstance(failure, ProviderBrokenAnswer) and not self._asked_again:
            self._asked_again = True
            self._parts.appendleft((first, end))
            return
        if rows == 1:
            self._failures.append((first, failure))
            return
        middle = first + (rows + 1) // 2
        if isinstance(failure, ProviderTooBig) and rows > self._limit:
            # `_next_part` cuts it down to what is allowed.
            self._parts.appendleft((first, end))
        else:
            self._parts.extend([(first, middle), (middle, end)])

    def _learn(self, rows: int, failure: ProviderTooBig) -> None:
        self._was_too_big = True
        if failure.max_rows and failure.max_rows < rows:
            self._named_rows = failure.max_rows
            self._limit = min(self._limit, failure.max_rows)
        elif rows > 1 and rows > self._largest_good:
            # No part as large as this one ever passed: the rest would only fail in the same way.
            self._limit = min(self._limit, (rows + 1) // 2)
        if failure.max_tokens:
            self._named_tokens = failure.max_tokens

    def _outcome(self, error: ProviderError | None) -> Outcome:
        rows = tokens = 0
        if self._was_too_big and not any(
            isinstance(failure, ProviderTooBig) for _, failure in self._failures
        ):
            # A text that is too big alone shows that the cap is one of a text, not of a request.
            tokens = self._named_tokens
            rows = 0 if tokens else self._largest_good
        return Outcome(
            vectors=self._vectors,
            failures=sorted(self._failures, key=lambda failure: failure[0]),
            error=error,
            learned_max_rows=self._named_rows or rows,
            learned_max_tokens=tokens,
        )


def _give_up(last: ProviderError) -> ProviderError:
    """The error of the texts that were not reached; for a cap smaller requests may do, else it is broken."""
    if isinstance(last, ProviderTooBig):
        return ProviderLater(last.message, hint=last.hint, status=last.status, retry_after_s=0)
    if isinstance(last, ProviderRefused):
        text = f"{last.message} (so for most parts of the request)"
        return ProviderBrokenAnswer(text, hint=last.hint, status=last.status)
    return last
