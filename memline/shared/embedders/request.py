"""Complete one request: whatever the provider answers, every text ends with a vector, a reason, or a wait.

A request that is too big, refused or answered badly is cut into parts. The parts are sent one after another,
and only a text that fails alone is a failure. Later and stop end the calls at once; vectors so far are kept.

A broken answer may be the fault of one text or of the provider, which a text without anything odd tells: when
that one gets no usable vector either, the rest is not paid for. It may be the number of texts as well, where
a server leaves out what is above a cap of its own: calls that hold this text many times find the cap.

A call that takes too long ends the request: its texts come again, fewer at a time. No call begins when the
time of one call is over, so a request lasts twice that time at most, and its lease can outlive it
(`shared.scheduling.leases`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from memline.shared.clock import Clock, SystemClock
from memline.shared.embedders.protocol import TIMEOUT_STATUSES, Attempt, Embedder, noted_attempts
from memline.shared.errors import (
    ProviderBrokenAnswer,
    ProviderError,
    ProviderLater,
    ProviderRefused,
    ProviderStop,
    ProviderTimeout,
    ProviderTooBig,
)
from memline.shared.values import field, replace, value
from memline.shared.words import counted

#: Bad texts that one request may hold and still be cut down to each of them.
MAX_BAD_TEXTS = 8

#: Calls, from the first on, that may fail in this way without a single vector; then no more of it is sent.
#: Broken, which is paid for: the whole, its halves and its quarters. Else down to its sixteenths.
MAX_CALLS_WITHOUT_RESULT = {"broken": 7, "refused": 31, "too_big": 31}

#: The text that tells whether the provider is at fault, and how often it may fail: broken once may be chance.
REFERENCE = "memory"
REFERENCE_TRIES = 2

#: An answer within this part of the time limit is quick: one for twice as many texts comes in time.
QUICK_SHARE = 0.25

_BROKEN_HINT = "check the model behind this address, then run: memline queue resume"

_SLOW_HINT = "raise memorySearch.remote.timeoutSeconds if this server needs longer for one text"


class ProviderSplit(ProviderLater):
    """The texts wait for another request; nothing is wrong with them or with the provider."""

    kind = "split"


@value
class Outcome:
    """The results of one request. A text without a vector or a failure waits, see `error`."""

    #: One a text, in order; None where there is none.
    vectors: list[bytes | None] = field(default_factory=list)
    #: Texts (by index) that get no vector by another request, and why.
    failures: list[tuple[int, ProviderError]] = field(default_factory=list)
    #: Why the remaining texts have nothing yet; None when none remain.
    error: ProviderError | None = None
    #: How often each text was in a call that was perhaps paid for: answered, or without an answer.
    paid: list[int] = field(default_factory=list)
    #: The same of `REFERENCE`.
    reference_paid: int = 0
    #: Caps for coming requests; 0 when nothing was learned.
    learned_max_rows: int = 0
    learned_max_tokens: int = 0
    #: Half of the texts of a call that took too long; 0: none did.
    slow_rows: int = 0
    #: Most texts of a call that was answered within `QUICK_SHARE` of the time limit; 0: none was.
    quick_rows: int = 0
    #: Texts of the call that met a rate limit; 0: none did.
    limited_rows: int = 0
    #: Texts of the call that failed at the server (5xx), or whose answer was lost; 0: none did.
    failed_rows: int = 0
    #: `REFERENCE` got its vector while others did not: what failed is the fault of the texts, or of how many.
    is_provider_well: bool = False
    #: All attempts of all calls.
    attempts: list[Attempt] = field(default_factory=list, compare=False)


def max_calls(texts: int) -> int:
    """Return the most calls for a request of so many texts."""
    return 4 + 2 * MAX_BAD_TEXTS * texts.bit_length()


def embed(
    embedder: Embedder,
    texts: Sequence[str],
    before_call: Callable[[Sequence[str]], None] = lambda _: None,
    *,
    max_rows: int = 0,
    timeout_s: float = 0,
    clock: Clock | None = None,
) -> Outcome:
    """Embed `texts`, as many as the provider takes. Raises no ProviderError.

    `before_call` is called before each call, with its texts; it may wait for a rate limit, or raise
    ProviderLater, which ends the calls. `max_rows`: texts of a call at most; `timeout_s`: the time limit of
    a call; 0 is none.
    """
    clock = clock or SystemClock()
    rows = max(len(texts), 1)
    state = _State(parts=deque([(0, len(texts))] if texts else []), max_rows=min(rows, max_rows or rows))
    vectors: list[bytes | None] = [None] * len(texts)
    paid = [0] * len(texts)
    error: ProviderError | None = None
    last: ProviderError | None = None
    calls, is_well, began = 0, False, clock.now()
    timed = _Timed(embedder=embedder, clock=clock)
    reference = _Reference(timed=replace(timed, times_paid=0), before_call=before_call)
    while state.parts and error is None:
        max_calls_now = max_calls(len(texts))
        if last is not None and not state.largest_good:
            max_calls_now = min(max_calls_now, MAX_CALLS_WITHOUT_RESULT.get(last.kind, 0))
        if last is not None and calls >= max_calls_now:
            error = _give_up(last)
            break
        if calls and not _has_time(clock, began, timeout_s):
            error = _time_is_over(None if state.largest_good else last)
            break
        first, end = state.next_part()
        calls += 1
        sent_at = None
        timed.times_paid = 0
        try:
            before_call(texts[first:end])
            sent_at = clock.now()
            answer = timed.embed(texts[first:end])
            if len(answer) != end - first:
                raise ProviderBrokenAnswer(
                    f"{counted(len(answer), 'vector')} for {counted(end - first, 'text')}"
                )
        except (ProviderLater, ProviderStop) as stop:
            error = stop if sent_at is None else state.end(first, end, stop)
        except ProviderError as failure:
            last = failure
            if failure.kind == "broken" and not state.largest_good and not is_well:
                has_time = partial(_has_time, clock, began, timeout_s)
                last, error = reference.judge(failure, end - first, has_time)
                is_well = error is None
            if error is None:
                state.cut(first, end, last)
        else:
            vectors[first:end] = answer
            state.note_good(end - first, is_quick=clock.now() - sent_at <= QUICK_SHARE * timeout_s)
        paid[first:end] = [before + timed.times_paid for before in paid[first:end]]
    learned_rows, learned_tokens = state.learned_caps()
    return Outcome(
        vectors=vectors,
        failures=sorted(state.failures, key=lambda failure: failure[0]),
        error=error,
        paid=paid,
        reference_paid=reference.paid,
        learned_max_rows=learned_rows,
        learned_max_tokens=learned_tokens,
        slow_rows=state.slow_rows,
        quick_rows=state.quick_rows,
        limited_rows=state.limited_rows,
        failed_rows=state.failed_rows,
        is_provider_well=is_well,
        attempts=timed.attempts,
    )


@value(frozen=False)
class _Timed:
    """An embedder whose attempts are noted."""

    embedder: Embedder
    clock: Clock
    attempts: list[Attempt] = field(default_factory=list)
    #: How often the texts of the last call were perhaps paid for.
    times_paid: int = 0

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Embed documents; see `Embedder`."""
        noted: list[Attempt] = []
        try:
            with noted_attempts(self.clock) as noted:
                return self.embedder.embed_documents(texts)
        finally:
            self.attempts += noted
            self.times_paid = sum(each.is_paid for each in noted)


@value(frozen=False)
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
    slow_rows: int = 0
    quick_rows: int = 0
    limited_rows: int = 0
    failed_rows: int = 0
    was_too_big: bool = False

    def next_part(self) -> tuple[int, int]:
        first, end = self.parts.popleft()
        if end - first > self.max_rows:
            self.parts.appendleft((first + self.max_rows, end))
            end = first + self.max_rows
        return first, end

    def note_good(self, rows: int, *, is_quick: bool) -> None:
        """Note that so many texts got their vectors in one call."""
        self.largest_good = max(self.largest_good, rows)
        self.quick_rows = max(self.quick_rows, rows if is_quick else 0)

    def end(self, first: int, end: int, stop: ProviderError) -> ProviderError | None:
        """End the calls with one that works later or never; returns the error of what was not embedded."""
        rows = end - first
        if isinstance(stop, ProviderTimeout) or stop.status in TIMEOUT_STATUSES:
            rest = ProviderSplit(f"{stop.message}, for {counted(rows, 'text')}", retry_after_s=0)
            if rows > 1:
                self.slow_rows = rows // 2
                return rest
            self.failures.append((first, ProviderBrokenAnswer(stop.message, hint=_SLOW_HINT)))
            return rest if self.parts else None
        if stop.status == 429:
            self.limited_rows = rows
        if isinstance(stop, ProviderLater):
            self.named_rows = stop.max_rows if 0 < stop.max_rows < rows else self.named_rows
            self.named_tokens = stop.max_tokens or self.named_tokens
            if stop.maybe_paid or (stop.status or 0) >= 500:
                self.failed_rows = rows
        return stop

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
        if is_of_a_text:
            # A text that is too big alone shows that the cap is one of a text, not of a request.
            return self.named_rows, 0
        of_good = self.largest_good if self.was_too_big and not self.named_tokens else 0
        return self.named_rows or of_good, self.named_tokens


@value(frozen=False)
class _Reference:
    """Finds out by `REFERENCE` what is at fault when an answer is broken."""

    timed: _Timed
    before_call: Callable[[Sequence[str]], None]
    #: How often it was perhaps paid for.
    paid: int = 0

    def judge(
        self, failure: ProviderError, rows: int, has_time: Callable[[], bool]
    ) -> tuple[ProviderError, ProviderError | None]:
        """Return what is wrong with a call of so many texts, and the error of all that is left, if any.

        The number of texts is too big where fewer are answered well; a provider that is at fault is a stop.
        """
        try:
            if not any(self._is_answered(1) for _ in range(REFERENCE_TRIES)):
                words = f"{failure.message} (so for any text)"
                hint = failure.hint or _BROKEN_HINT
                return failure, ProviderStop(words, hint=hint, status=failure.status)
            fits = rows
            while fits > 1 and has_time() and not self._is_answered(fits):
                fits //= 2
        except (ProviderLater, ProviderStop) as error:
            return failure, error
        if fits < rows:
            failure = ProviderTooBig(failure.message, status=failure.status, max_rows=fits)
        return failure, None

    def _is_answered(self, rows: int) -> bool:
        """Tell whether so many texts get their vectors. Raises ProviderLater and ProviderStop."""
        self.timed.times_paid = 0
        try:
            self.before_call([REFERENCE] * rows)
            self.timed.embed([REFERENCE] * rows)
        except ProviderError as error:
            self.paid += rows * self.timed.times_paid
            if isinstance(error, (ProviderLater, ProviderStop)):
                raise
            # Refused: what judges texts works.
            return not isinstance(error, ProviderBrokenAnswer)
        self.paid += rows * self.timed.times_paid
        return True


def _has_time(clock: Clock, began: float, timeout_s: float) -> bool:
    """Tell whether another call may begin; `timeout_s`: as of `embed`."""
    return not timeout_s or clock.now() - began < timeout_s


def _give_up(last: ProviderError) -> ProviderError:
    """Make the error of texts that were not sent; smaller requests may fit a cap, else it is broken."""
    if isinstance(last, ProviderTooBig):
        return ProviderLater(last.message, hint=last.hint, status=last.status, retry_after_s=0)
    if isinstance(last, ProviderRefused):
        text = f"{last.message} (so for most parts of the request)"
        return ProviderBrokenAnswer(text, hint=last.hint, status=last.status)
    return last


def _time_is_over(last: ProviderError | None) -> ProviderError:
    """Make the error of texts that another request will send; `last`: why there is no vector so far."""
    return (
        ProviderSplit("the time of one request was over", retry_after_s=0) if last is None else _give_up(last)
    )
