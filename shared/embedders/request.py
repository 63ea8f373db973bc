"""Complete one request: whatever the provider answers, every text ends with a vector, a reason, or a wait.

A request that is too big, refused or answered badly is cut into parts. The parts are sent one after another,
and only a text that fails alone is a failure. Later and stop end the calls at once; vectors so far are kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from memline.shared.embedders.protocol import Embedder
from memline.shared.errors import (
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
MAX_CALLS_WITHOUT_RESULT = {"broken": 8, "refused": 31, "too_big": 31}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The results of one request. A text without a vector or a failure waits, see `error`."""

    #: One a text, in order; None where there is none.
    vectors: list[bytes | None] = field(default_factory=list)
    #: Texts (by index) that get no vector by another request, and why.
    failures: list[tuple[int, ProviderError]] = field(default_factory=list)
    #: Why the remaining texts have nothing yet; None when none remain.
    error: ProviderError | None = None
    #: Caps for coming requests; 0 when nothing was learned.
    learned_max_rows: int = 0
    learned_max_tokens: int = 0


def max_calls(texts: int) -> int:
    """Return the most calls for a request of so many texts."""
    return 4 + 2 * MAX_BAD_TEXTS * texts.bit_length()


def embed(
    embedder: Embedder,
    texts: Sequence[str],
    before_call: Callable[[Sequence[str]], None] = lambda _: None,
) -> Outcome:
    """Embed `texts`, as many as the provider takes. Raises no ProviderError.

    `before_call` is called before each call, with its texts; it may wait for a rate limit, or raise
    ProviderLater, which ends the calls.
    """
    state = _State(parts=deque([(0, len(texts))] if texts else []), max_rows=max(len(texts), 1))
    vectors: list[bytes | None] = [None] * len(texts)
    error: ProviderError | None = None
    last: ProviderError | None = None
    calls = 0
    while state.parts and error is None:
        max_calls_now = max_calls(len(texts))
        if last is not None and not state.largest_good:
            max_calls_now = min(max_calls_now, MAX_CALLS_WITHOUT_RESULT.get(last.kind, 0))
        if last is not None and calls >= max_calls_now:
            error = _give_up(last)
            break
        first, end = state.next_part()
        calls += 1
        try:
            before_call(texts[first:end])
            answer = embedder.embed_documents(texts[first:end])
            if len(answer) != end - first:
                raise ProviderBrokenAnswer(f"{len(answer)} vectors for {end - first} texts")
        except (ProviderLater, ProviderStop) as stop:
            error = stop
        except ProviderError as failure:
            last = failure
            state.cut(first, end, failure)
        else:
            vectors[first:end] = answer
            state.largest_good = max(state.largest_good, end - first)
    rows, tokens = state.learned_caps()
    return Outcome(
        vectors=vectors,
        failures=sorted(state.failures, key=lambda failure: failure[0]),
        error=error,
        learned_max_rows=rows,
        learned_max_tokens=tokens,
    )


@dataclass(slots=True)
class _State:
    """The parts of one request that are still to be sent, and what the answers so far taught."""

    #: First text and the one past the last; broad ones first, so that a provider that fails everything is
    #: known after few calls.
    parts: deque[tuple[int, int]]
    #: Rows a part may have, as far as is known.
    max_rows: int
    failures: list[tuple[int, ProviderError]] = field(default_factory=list)
    largest_good: int = 0
    named_rows: int = 0
    named_tokens: int = 0
    was_too_big: bool = False
    was_repeated: bool = False

    def next_part(self) -> tuple[int, int]:
        first, end = self.parts.popleft()
        if end - first > self.max_rows:
            self.parts.appendleft((first + self.max_rows, end))
            end = first + self.max_rows
        return first, end

    def cut(self, first: int, end: int, failure: ProviderError) -> None:
        """Put back the halves of a part that failed; one text alone is a failure of its own."""
        rows = end - first
        if isinstance(failure, ProviderTooBig):
            self.was_too_big = True
            self.named_tokens = failure.max_tokens or self.named_tokens
            if failure.max_rows and failure.max_rows < rows:
                self.named_rows = failure.max_rows
                self.max_rows = min(self.max_rows, failure.max_rows)
            elif rows > 1 and rows > self.largest_good:
                # No part as large as this one ever passed: the rest would only fail in the same way.
                self.max_rows = min(self.max_rows, (rows + 1) // 2)
        elif isinstance(failure, ProviderBrokenAnswer) and not self.was_repeated:
            self.was_repeated = True
            self.parts.appendleft((first, end))
            return
        middle = first + (rows + 1) // 2
        if rows == 1:
            self.failures.append((first, failure))
        elif isinstance(failure, ProviderTooBig) and rows > self.max_rows:
            # `next_part` cuts it down to what is allowed.
            self.parts.appendleft((first, end))
        else:
            self.parts.extend([(first, middle), (middle, end)])

    def learned_caps(self) -> tuple[int, int]:
        """Return the rows and tokens that coming requests may have; 0 when nothing was learned."""
        is_of_a_text = any(isinstance(failure, ProviderTooBig) for _, failure in self.failures)
        if not self.was_too_big or is_of_a_text:
            # A text that is too big alone shows that the cap is one of a text, not of a request.
            return self.named_rows, 0
        return self.named_rows or (0 if self.named_tokens else self.largest_good), self.named_tokens


def _give_up(last: ProviderError) -> ProviderError:
    """Make the error of texts that were not sent; smaller requests may fit a cap, else it is broken."""
    if isinstance(last, ProviderTooBig):
        return ProviderLater(last.message, hint=last.hint, status=last.status, retry_after_s=0)
    if isinstance(last, ProviderRefused):
        text = f"{last.message} (so for most parts of the request)"
        return ProviderBrokenAnswer(text, hint=last.hint, status=last.status)
    return last
