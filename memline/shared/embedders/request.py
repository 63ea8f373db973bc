"""Complete one request: whatever the provider answers, every text ends with a vector, a reason, or a wait.

A request that is too big, refused, answered badly or failed by the server is cut in half, and the parts are
sent one after another; only a text that fails alone is a failure. A text is blamed only when the server
works: while nothing of the request has worked, `REFERENCE`, a text without anything odd, is sent first. When
that fails as well, the server is at fault, and the rest is not sent. Rate limits, stops and connections that
never came about end the calls at once; vectors so far are kept.

A call that takes too long ends the request, and its texts come again, fewer at a time. No call begins when
the time of one call is over, so a request lasts twice that time at most, and its lease can outlive it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from memline.shared.clock import Clock, SystemClock
from memline.shared.embedders.protocol import CALL_ATTEMPTS, Embedder, counted_call
from memline.shared.errors import (
    ProviderBrokenAnswer,
    ProviderError,
    ProviderLater,
    ProviderStop,
    ProviderTimeout,
    ProviderTooBig,
)
from memline.shared.words import counted

#: Bad texts that one request may contain and still be cut down to each of them.
MAX_BAD_TEXTS = 8

#: A text that every working server embeds.
REFERENCE = "memory"

_SERVER_HINT = "check the model behind this address, then run: memline queue resume"
_SLOW_HINT = "raise memorySearch.remote.timeoutSeconds if this server needs longer for one text"


class ProviderSplit(ProviderLater):
    """The texts wait for another request; nothing is wrong with them or with the provider."""

    kind = "split"


class Outcome(msgspec.Struct, kw_only=True):
    """The results of one request, filled in call by call. A text without a vector or a failure waits."""

    #: One a text, in order; None where there is none.
    vectors: list[bytes | None] = []
    #: Texts (by index) that failed alone, and why.
    failures: list[tuple[int, ProviderError]] = []
    #: Why the remaining texts have nothing yet; None when none remain.
    error: ProviderError | None = None
    #: Texts of coming requests, as answers showed it; 0 when nothing was learned.
    max_rows: int = 0
    #: `REFERENCE` got its vector: what failed is the fault of the texts, or of how many.
    is_provider_well: bool = False
    #: Attempts that may have been paid for, and their tokens: the provider's own `usage`, else the estimate.
    paid_calls: int = 0
    used_tokens: int = 0


class Request:
    """The texts of one request, and what the answers so far taught about the size of its parts."""

    def __init__(
        self,
        embedder: Embedder,
        texts: Sequence[str],
        before_call: Callable[[Sequence[str]], None] = lambda _: None,
        *,
        estimate: Callable[[str], int],
        timeout_s: float = 0,
        max_attempts: int = CALL_ATTEMPTS,
        clock: Clock | None = None,
    ) -> None:
        """`before_call` is called before each call, with its texts; it may wait for a rate limit, or raise
        ProviderLater, which ends the calls. `estimate`: tokens of a text. `timeout_s`: the time limit of a
        call, 0 for none. `max_attempts`: attempts of a call.
        """
        self._embedder, self._texts, self._before_call = embedder, texts, before_call
        self._estimate, self._timeout_s, self._max_attempts = estimate, timeout_s, max_attempts
        self._clock = clock or SystemClock()
        self._outcome = Outcome(vectors=[None] * len(texts))
        #: First text of a part and the one past its last.
        self._parts = deque([(0, len(texts))] if texts else [])
        #: Texts of a call at most, as the failures so far suggest.
        self._cap = len(texts)
        #: Texts of the largest calls that passed, and that failed otherwise than in time.
        self._largest_good = self._largest_bad = 0

    def embed(self) -> Outcome:
        """Embed the texts, as many as the provider takes. Raises no ProviderError."""
        outcome = self._outcome
        outcome.error = self._send_all()
        outcome.failures.sort(key=lambda failure: failure[0])
        if self._largest_bad > self._largest_good and not (outcome.failures or outcome.max_rows):
            # It is the size that fails. Where a text failed, it was not the size.
            outcome.max_rows = self._largest_good
        return outcome

    def _send_all(self) -> ProviderError | None:
        """Send all parts; returns why some texts have nothing yet."""
        began, calls, halvings = self._clock.now(), 0, len(self._texts).bit_length()
        while self._parts:
            # All calls may be paid for, and without a result it is all in vain.
            most = 4 + 2 * MAX_BAD_TEXTS * halvings if self._largest_good else MAX_BAD_TEXTS + halvings
            is_late = calls and 0 < self._timeout_s <= self._clock.now() - began
            if is_late or calls >= most:
                return ProviderSplit("the time or the calls of one request were over", retry_after_s=0)
            first, end = self._parts.popleft()
            if end - first > self._cap:
                self._parts.appendleft((first + self._cap, end))
                end = first + self._cap
            calls += 1
            try:
                self._before_call(self._texts[first:end])
            except ProviderError as failure:
                return failure
            try:
                self._outcome.vectors[first:end] = self._call(self._texts[first:end], self._max_attempts)
                self._largest_good = max(self._largest_good, end - first)
            except ProviderError as failure:
                if (error := self._judge(first, end, failure)) is not None:
                    return error
        return None

    def _call(self, texts: Sequence[str], max_attempts: int) -> list[bytes]:
        """Make one call. Raises a ProviderError, and counts what it may cost all the same."""
        try:
            with counted_call(max_attempts) as call:
                vectors = self._embedder.embed_documents(texts)
        finally:
            tokens = sum(map(self._estimate, texts))
            self._outcome.paid_calls += call.paid
            self._outcome.used_tokens += call.paid * tokens
            if call.used_tokens:
                self._outcome.used_tokens += call.used_tokens - tokens
        return vectors

    def _judge(self, first: int, end: int, failure: ProviderError) -> ProviderError | None:
        """Put back what can be sent in parts, or note a failure; returns the error that ends the request."""
        rows, is_slow = end - first, isinstance(failure, ProviderTimeout)
        if is_slow and rows > 1:
            self._outcome.max_rows = rows // 2
            return ProviderSplit(f"{failure.message}, for {counted(rows, 'text')}", retry_after_s=0)
        is_of_all = isinstance(failure, ProviderLater | ProviderStop) and not _may_be_of_a_text(failure)
        if is_of_all and not is_slow:
            # Where it was cut down and nothing has passed yet, the next request begins as small.
            cut = 0 if self._largest_good or self._cap == len(self._texts) else self._cap
            self._outcome.max_rows = failure.max_rows or cut
            return failure
        is_size = isinstance(failure, ProviderTooBig) and rows > 1
        is_sure = is_size or self._largest_good or self._outcome.is_provider_well
        if not is_sure and (error := self._try_reference(failure)) is not None:
            return error
        if rows == 1:
            if failure.kind not in ("refused", "too_big"):
                # What it advises is about the server, which works.
                hint = _SLOW_HINT if is_slow else ""
                failure = ProviderBrokenAnswer(failure.message, hint=hint, status=failure.status)
            self._outcome.failures.append((first, failure))
            # It was this text, and not the size of the calls.
            self._cap = len(self._texts)
            return None
        half = (rows + 1) // 2
        self._largest_bad = max(self._largest_bad, rows)
        if rows > self._largest_good:
            # No part as large as this one has passed, so another one would only fail in the same way.
            self._cap = min(self._cap, half)
        self._parts.extendleft([(first + half, end), (first, first + half)])
        return None

    def _try_reference(self, failure: ProviderError) -> ProviderError | None:
        """Find out what is at fault by `REFERENCE`; returns the error of all texts when it is the server."""
        try:
            self._before_call([REFERENCE])
            self._call([REFERENCE], 1)
            self._outcome.is_provider_well = True
            return None
        except ProviderError as error:
            if isinstance(failure, ProviderLater):
                return failure
            if isinstance(error, (ProviderLater, ProviderStop)):
                return error
        text = f"{failure.message} (so for any text)"
        return ProviderStop(text, hint=failure.hint or _SERVER_HINT, status=failure.status)


def _may_be_of_a_text(failure: ProviderError) -> bool:
    """Tell whether a text could be why the server failed or said no.

    Servers answer 5xx or 424, or close the connection; filters before them answer 403 with a page.
    """
    if failure.retry_after_s is not None or failure.max_rows:
        return False
    if failure.status is None or failure.code == "bad_key":
        return failure.maybe_paid or " 403 <" in failure.message
    return failure.code in ("", "bad_address")
