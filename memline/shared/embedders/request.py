"""Complete one request: whatever the provider answers, every text ends with a vector, a reason, or a wait.

A request that is too big, refused, answered badly or failed by the server is cut into parts, which are sent
one after another; only a text that fails alone is a failure. A text is blamed only when the server works:
while nothing of the request has worked, `REFERENCE`, a text without anything odd, is sent first. When that
fails as well, the server is at fault, and the rest is not sent. Rate limits, stops and connections that
never came about end the calls at once; vectors so far are kept.

A call that takes too long ends the request, and its texts come again, fewer at a time. No call begins when
the time of one call is over, so a request lasts twice that time at most, and its lease can outlive it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from memline.shared.clock import Clock, SystemClock
from memline.shared.embedders.protocol import (
    TIMEOUT_STATUSES,
    Attempt,
    Embedder,
    limit_attempts,
    noted_attempts,
)
from memline.shared.errors import (
    ProviderBrokenAnswer,
    ProviderError,
    ProviderLater,
    ProviderRefused,
    ProviderStop,
    ProviderTimeout,
    ProviderTooBig,
)
from memline.shared.words import counted

#: Bad texts that one request may contain and still be cut down to each of them.
MAX_BAD_TEXTS = 8

#: A text that every working server embeds, and how often its answer may be broken: once may be chance.
REFERENCE = "memory"
REFERENCE_TRIES = 2

#: An answer within this part of the time limit is quick: one for twice as many texts comes in time.
QUICK_SHARE = 0.25

_SERVER_HINT = "check the model behind this address, then run: memline queue resume"
_SLOW_HINT = "raise memorySearch.remote.timeoutSeconds if this server needs longer for one text"


class ProviderSplit(ProviderLater):
    """The texts wait for another request; nothing is wrong with them or with the provider."""

    kind = "split"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one request. A text without a vector or a failure waits, see `error`."""

    #: One a text, in order; None where there is none.
    vectors: list[bytes | None] = []
    #: Texts (by index) that failed alone, and why.
    failures: list[tuple[int, ProviderError]] = []
    #: Why the remaining texts have nothing yet; None when none remain.
    error: ProviderError | None = None
    #: Tokens of all calls: the provider's own `usage`, else the estimate of what may have been paid for.
    used_tokens: int = 0
    #: Caps for coming requests, as answers named or showed them; 0 when nothing was learned.
    max_rows: int = 0
    max_tokens: int = 0
    #: Texts that may come in time: half of a call that took too long, or those that passed where more texts
    #: failed at the server; 0: nothing was learned.
    slow_rows: int = 0
    #: Most texts of a call that was answered within `QUICK_SHARE` of the time limit; 0: none was.
    quick_rows: int = 0
    #: Texts of the call that ended with `error`; 0 where it was not sent.
    error_rows: int = 0
    #: `REFERENCE` got its vector: what failed is the fault of the texts, or of how many.
    is_provider_well: bool = False
    #: All attempts of all calls.
    attempts: list[Attempt] = []


def _estimate(text: str) -> int:
    return len(text) // 4 + 1


def embed(
    embedder: Embedder,
    texts: Sequence[str],
    before_call: Callable[[Sequence[str]], None] = lambda _: None,
    *,
    estimate: Callable[[str], int] = _estimate,
    max_rows: int = 0,
    timeout_s: float = 0,
    clock: Clock | None = None,
) -> Outcome:
    """Embed `texts`, as many as the provider takes. Raises no ProviderError.

    `before_call` is called before each call, with its texts; it may wait for a rate limit, or raise
    ProviderLater, which ends the calls. `estimate`: tokens of a text. `max_rows`: texts of a call at most;
    `timeout_s`: the time limit of a call; 0 is none.
    """
    request = _Request(embedder, texts, before_call, estimate, max_rows, timeout_s, clock or SystemClock())
    error = request.run()
    caps = request.learned_caps()
    return Outcome(
        vectors=request.vectors,
        failures=sorted(request.failures, key=lambda failure: failure[0]),
        error=error,
        used_tokens=request.used_tokens,
        max_rows=caps[0],
        max_tokens=caps[1],
        slow_rows=request.smaller_rows(),
        quick_rows=request.quick_rows,
        error_rows=request.error_rows if error is not None else 0,
        is_provider_well=request.is_well,
        attempts=request.attempts,
    )


class _Request:
    """The parts of a request that are still to be sent, and what the answers so far taught."""

    def __init__(
        self,
        embedder: Embedder,
        texts: Sequence[str],
        before_call: Callable[[Sequence[str]], None],
        estimate: Callable[[str], int],
        max_rows: int,
        timeout_s: float,
        clock: Clock,
    ) -> None:
        self._embedder, self._texts, self._before_call = embedder, texts, before_call
        self._estimate, self._timeout_s, self._clock = estimate, timeout_s, clock
        #: First text of a part and the one past its last.
        self._parts = deque([(0, len(texts))] if texts else [])
        #: Texts of a call at most: as is known, and as the failures so far suggest.
        self._most = self._cap = min(max_rows or len(texts), len(texts))
        self.vectors: list[bytes | None] = [None] * len(texts)
        self.failures: list[tuple[int, ProviderError]] = []
        self.attempts: list[Attempt] = []
        self.used_tokens = self.slow_rows = self.quick_rows = self.error_rows = 0
        self.is_well = False
        self._largest_good = self._named_rows = self._named_tokens = 0
        #: Sizes of calls that were too big, answered badly, or failed at the server.
        self._bad_sizes: set[int] = set()
        self._was_too_big = False

    def run(self) -> ProviderError | None:
        """Send all parts; returns why some texts have nothing yet."""
        last: ProviderError | None = None
        began, calls = self._clock.now(), 0
        while self._parts:
            if calls and self._timeout_s and self._clock.now() - began >= self._timeout_s:
                if last is None or self._largest_good:
                    return ProviderSplit("the time of one request was over", retry_after_s=0)
                return _waiting(last)
            if last is not None and calls >= self._max_calls():
                return _waiting(last)
            first, end = self._parts.popleft()
            if end - first > self._cap:
                self._parts.appendleft((first + self._cap, end))
                end = first + self._cap
            calls += 1
            self.error_rows = 0
            try:
                self._before_call(self._texts[first:end])
                self.error_rows = end - first
                self.vectors[first:end] = self._ask(self._texts[first:end])
            except ProviderError as failure:
                last = failure
                if not self.error_rows or (error := self._judge(first, end, failure)) is not None:
                    return error if self.error_rows else failure
        return None

    def _max_calls(self) -> int:
        """Return the calls that may be made: all may be paid for, and without a result it is all in vain."""
        halvings = len(self._texts).bit_length()
        return 4 + 2 * MAX_BAD_TEXTS * halvings if self._largest_good else MAX_BAD_TEXTS + halvings

    def _ask(self, texts: Sequence[str]) -> list[bytes]:
        """Make one call. Raises a ProviderError, and counts its attempts and tokens all the same."""
        noted: list[Attempt] = []
        began = self._clock.now()
        try:
            with noted_attempts(self._clock) as noted:
                vectors = self._embedder.embed_documents(texts)
        finally:
            self.attempts += noted
            if paid := sum(each.is_paid and not each.used_tokens for each in noted):
                self.used_tokens += paid * sum(map(self._estimate, texts))
            self.used_tokens += sum(each.used_tokens for each in noted)
        if len(vectors) != len(texts):
            raise ProviderBrokenAnswer(f"{counted(len(vectors), 'vector')} for {counted(len(texts), 'text')}")
        self._largest_good = max(self._largest_good, len(texts))
        if self._clock.now() - began <= QUICK_SHARE * self._timeout_s:
            self.quick_rows = max(self.quick_rows, len(texts))
        return vectors

    def _judge(self, first: int, end: int, failure: ProviderError) -> ProviderError | None:
        """Put back what can be sent in parts, or note a failure; returns the error that ends the request."""
        rows = end - first
        if _is_timeout(failure):
            rest = ProviderSplit(f"{failure.message}, for {counted(rows, 'text')}", retry_after_s=0)
            if rows > 1:
                self.slow_rows = rows // 2
                return rest
            is_known = self.is_well or self._largest_good
            if not is_known and (error := self._try_reference(failure)) is not None:
                return error
            self.failures.append((first, ProviderBrokenAnswer(failure.message, hint=_SLOW_HINT)))
            return rest if self._parts else None
        is_later = isinstance(failure, ProviderLater)
        if is_later:
            self._named_rows = failure.max_rows if 0 < failure.max_rows < rows else self._named_rows
            self._named_tokens = failure.max_tokens or self._named_tokens
        if isinstance(failure, ProviderStop) or (is_later and not _may_be_of_a_text(failure)):
            return failure
        is_known = self.is_well or self._largest_good or (isinstance(failure, ProviderTooBig) and rows > 1)
        if not is_known and (error := self._try_reference(failure)) is not None:
            return error
        self._cut(first, end, failure)
        return None

    def _try_reference(self, failure: ProviderError) -> ProviderError | None:
        """Find out what is at fault by `REFERENCE`; returns the error of all texts when it is the server."""
        for _ in range(REFERENCE_TRIES):
            good, sizes = self._largest_good, self.quick_rows
            try:
                self._before_call([REFERENCE])
                with limit_attempts(1):
                    self._ask([REFERENCE])
            except (ProviderLater, ProviderStop) as error:
                return failure if isinstance(failure, ProviderLater) else error
            except ProviderRefused:
                # It judges texts, so a broken answer was not its fault alone.
                self.is_well = isinstance(failure, ProviderBrokenAnswer)
            except ProviderBrokenAnswer:
                continue
            except ProviderTooBig:
                pass
            else:
                # It says nothing about the size of requests.
                self._largest_good, self.quick_rows = good, sizes
                self.is_well = True
            break
        if self.is_well:
            return None
        if isinstance(failure, ProviderLater):
            return failure
        text = f"{failure.message} (so for any text)"
        return ProviderStop(text, hint=failure.hint or _SERVER_HINT, status=failure.status)

    def _cut(self, first: int, end: int, failure: ProviderError) -> None:
        """Put back the halves of a part that failed; one text alone is a failure of its own."""
        rows = end - first
        self._bad_sizes.add(rows)
        if isinstance(failure, ProviderTooBig):
            self._was_too_big = True
            self._named_tokens = failure.max_tokens or self._named_tokens
        if 0 < failure.max_rows < rows:
            self._named_rows = self._most = failure.max_rows
            self._cap = min(self._cap, failure.max_rows)
        elif 1 < rows > self._largest_good:
            # No part as large as this one has passed, so another one would only fail in the same way.
            self._cap = min(self._cap, (rows + 1) // 2)
        if rows == 1:
            if isinstance(failure, ProviderLater):
                failure = ProviderBrokenAnswer(failure.message, hint=failure.hint, status=failure.status)
            self.failures.append((first, failure))
            # It was this text, and not the size of the calls.
            self._cap = self._most
        elif rows > self._cap:
            self._parts.appendleft((first, end))
        else:
            middle = first + (rows + 1) // 2
            self._parts.extendleft([(middle, end), (first, middle)])

    def learned_caps(self) -> tuple[int, int]:
        """Return the texts and tokens that coming requests may have; 0 when nothing was learned."""
        if any(isinstance(failure, ProviderTooBig) for _, failure in self.failures):
            # A text that is too big alone shows that the cap is one of a text, not of a request.
            return self._named_rows, 0
        # Some servers leave out what is above a cap of theirs: two sizes show that it was not chance.
        is_shown = self._was_too_big or len(self._bad_sizes) > 1
        shown = self._shown_rows() if is_shown and not self._named_tokens else 0
        return self._named_rows or shown, self._named_tokens

    def smaller_rows(self) -> int:
        """Return the texts of a call that are to be tried next, after larger ones failed or took too long."""
        return self.slow_rows or (0 if self._was_too_big else self._shown_rows())

    def _shown_rows(self) -> int:
        """Return the texts of the largest call that passed where larger ones failed for no text's sake."""
        is_of_size = not self.failures and max(self._bad_sizes, default=0) > self._largest_good
        return self._largest_good if is_of_size else 0


def _is_timeout(failure: ProviderError) -> bool:
    return isinstance(failure, ProviderTimeout) or failure.status in TIMEOUT_STATUSES


def _may_be_of_a_text(failure: ProviderError) -> bool:
    """Tell whether an error that may pass could be caused by a text: a 5xx, or a connection that closed."""
    if failure.retry_after_s is not None or failure.max_rows or failure.max_tokens:
        return False
    return failure.status >= 500 if failure.status is not None else failure.maybe_paid


def _waiting(last: ProviderError) -> ProviderError:
    """Make the error of texts that were not sent after others failed."""
    if isinstance(last, ProviderTooBig):
        # Smaller requests may fit.
        return ProviderLater(last.message, hint=last.hint, status=last.status, retry_after_s=0)
    if isinstance(last, ProviderRefused):
        text = f"{last.message} (so for most parts of the request)"
        return ProviderBrokenAnswer(text, hint=last.hint, status=last.status)
    return last
