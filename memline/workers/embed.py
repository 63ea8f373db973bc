"""Queue `embed`: one provider request a message. Needs no disk; runs anywhere with network or a model."""

from __future__ import annotations

from collections.abc import Sequence

from memline.shared.embedders.choice import Choice
from memline.shared.embedders.protocol import CALL_ATTEMPTS, Embedder, Identity, LateVector
from memline.shared.embedders.request import Outcome, Request
from memline.shared.errors import (
    ModelMismatch,
    ProviderBrokenAnswer,
    ProviderError,
    ProviderLater,
    QueueError,
)
from memline.shared.index.accounts import account_id
from memline.shared.index.rows import VectorRow
from memline.shared.logs import Log
from memline.shared.providers import PROVIDERS, RequestCaps
from memline.shared.queue.broker import actor, send
from memline.shared.queue.messages import AgentNotConfigured, EmbedTexts, Failed, StoreVectors
from memline.shared.scheduling import leases, limits
from memline.shared.scheduling.leases import Failure, Usage
from memline.shared.scheduling.limits import minute_limits
from memline.shared.sources.tokens import estimate_tokens
from memline.workers.context import Context, current

#: Seconds a worker waits for its place within the limits; for longer the texts go back to the rows. Half of
#: `STOP_COOLDOWN_S`.
MAX_WAIT_S = 5.0

#: Seconds that such texts stay in the rows at least.
MIN_DEFERRED_S = 1.0

#: Seconds for which a worker that is set up for another model than the index keeps a request.
MISMATCH_WAIT_S = 1.0

_LOG = Log("embed")


@actor(EmbedTexts)
def embed_texts(message: EmbedTexts) -> None:
    """Embed the texts of one lease and send back vectors, and failures by their kind.

    Safe twice: the second run finds in Redis that the first has begun to send it, and does nothing; the
    deadline of the lease frees its texts. Safe late: what cannot end before that deadline is not sent. Else
    it always answers, so that no lease waits for its end because of an error here.
    """
    context, request, sending = current(), message.request, None
    texts = range(len(request.texts))
    try:
        choice = _choice(context, message.agent, request.identity)
        key = ("embedder", message.agent, request.identity.key)
        embedder: Embedder = context.keep(key, choice.build)
        sending = _Sending(context, message, choice)
        outcome = Request(
            embedder,
            [text.text for text in request.texts],
            before_call=sending.before_call,
            estimate=estimate_tokens,
            timeout_s=choice.timeout_s,
            max_attempts=1 if request.is_probe or any(sending.limits) else CALL_ATTEMPTS,
            clock=context.clock,
        ).embed()
    except _AlreadyBegun:
        _LOG.warning("request.dropped", lease=request.lease, texts=len(texts))
    except (AgentNotConfigured, ModelMismatch) as error:
        # Nothing was sent, and no provider is at fault: another process may be set up for it.
        _LOG.error("request.not_ours", error=error.message, action=error.hint)
        context.stopping.wait(MISMATCH_WAIT_S)
        _send(message, failed=[(texts, _Unsent(error.message, hint=error.hint))])
    except ProviderError as error:
        _send(message, failed=[(texts, error)])
    except Exception as error:
        # The boundary of the process: whatever it was, the rows must know, or they wait for the lease.
        broken = ProviderBrokenAnswer(f"{type(error).__name__}: {error}")
        usage = None if sending is not None and sending.has_begun else Usage()
        _send(message, failed=[(texts, broken)], no_results=True, usage=usage)
        raise
    else:
        _answer(context, message, sending.account, outcome)


class _Unsent(ProviderLater):
    """The texts were not sent: they wait for another request, and nothing is wrong with the provider."""

    kind = "unsent"


class _AlreadyBegun(Exception):
    """A worker before this one has begun to send the request, and has ended since."""


class _Sending:
    """Decides before each call of a request whether it may be made."""

    def __init__(self, context: Context, message: EmbedTexts, choice: Choice) -> None:
        self._context = context
        self._request = message.request
        self._choice = choice
        self.account = account_id(choice.provider, choice.mark)
        #: Requests and tokens a minute.
        self.limits = minute_limits(context.agent(message.agent, needs_workspace=False), choice)
        self.has_begun = False

    def before_call(self, texts: Sequence[str]) -> None:
        """Wait for a place within the account's limits, and note the first call of the request.

        Raises ProviderLater when the wait is too long or the call could end after the lease, and
        _AlreadyBegun.
        """
        self._take_place(texts)
        # Last: to ask for the place, and to wait for it, takes time as well.
        left_s = self._request.until - self._context.clock.now()
        if not leases.may_call(left_s, self._choice.timeout_s):
            raise _Unsent("the lease of these texts is over")
        if not self.has_begun:
            try:
                is_first = self._context.in_flight.begin(self._request.lease, left_s)
            except QueueError as error:
                raise _Unsent(f"not sent, since Redis cannot note it: {error.message}") from error
            if not is_first:
                raise _AlreadyBegun
            self.has_begun = True

    def _take_place(self, texts: Sequence[str]) -> None:
        (max_requests, max_tokens), provider = self.limits, self._choice.provider
        pace = self._context.limits
        moves = limits.costs(
            tokens=sum(map(estimate_tokens, texts)),
            requests=len(texts) if PROVIDERS[provider].counts_texts else 1,
            max_requests=max_requests,
            max_tokens=max_tokens,
        )
        wait_s = pace.take(self.account, moves, max_wait_s=MAX_WAIT_S)
        if wait_s > MAX_WAIT_S:
            # Until the place is near enough to be waited for.
            is_asked = pace.take(self.account, {}) > 0
            words = "asked to wait (429)" if is_asked else "is at the limits of this configuration"
            raise _Unsent(f"{provider} {words}", retry_after_s=max(wait_s - MAX_WAIT_S, MIN_DEFERRED_S))
        if wait_s > 0:
            self._context.clock.sleep(wait_s)
            # Another worker may have heard a no meanwhile.
            if cooldown_s := pace.take(self.account, {}):
                raise _Unsent(f"{provider} has a cooldown", retry_after_s=cooldown_s)


def _answer(context: Context, message: EmbedTexts, account: str, outcome: Outcome) -> None:
    """Send back what came of a request: vectors, and failures by their kind."""
    request, error = message.request, outcome.error
    vectors = tuple(
        VectorRow(hash=text.hash, vector=bytes(vector), tokens=_tokens(vector))
        for text, vector in zip(request.texts, outcome.vectors, strict=True)
        if vector is not None
    )
    failed: list[tuple[Sequence[int], ProviderError]] = [([index], why) for index, why in outcome.failures]
    if error is not None:
        if isinstance(error, _Unsent):
            _LOG.warning("request.unsent", lease=request.lease, reason=error.message)
        _cool_down(context, account, outcome, error)
        refused = {index for index, _ in outcome.failures}
        rest = [i for i, vector in enumerate(outcome.vectors) if vector is None and i not in refused]
        failed += [(rest, error)] * bool(rest)
    _send(
        message,
        vectors=vectors,
        failed=sorted(failed, key=lambda each: _is_wait(each[1])),
        no_results=not vectors and not outcome.is_provider_well,
        learned=RequestCaps(max_rows=outcome.max_rows, max_tokens=outcome.max_tokens),
        usage=Usage(tokens=outcome.used_tokens, paid_calls=outcome.paid_calls),
    )


def _send(
    message: EmbedTexts,
    *,
    vectors: tuple[VectorRow, ...] = (),
    failed: Sequence[tuple[Sequence[int], ProviderError]] = (),
    no_results: bool = False,
    learned: RequestCaps | None = None,
    usage: Usage | None = Usage(),  # noqa: B008
) -> None:
    """Tell the store worker what came of a request; `failed` has its texts by index.

    `no_results`: the request brought no vector at all, so the provider may be at fault; that counts once.
    """
    request = message.request
    rows = []
    for place, (texts, error) in enumerate(failed):
        failure = Failure(
            kind=error.kind,
            error=error.message,
            action=error.hint,
            retry_after_s=error.retry_after_s,
            is_probe=request.is_probe,
            no_results=no_results and not place and not _is_wait(error),
        )
        rows.append(Failed(hashes=tuple(request.texts[index].hash for index in texts), failure=failure))
    send(
        StoreVectors(
            agent=message.agent,
            identity=request.identity,
            lease=request.lease,
            vectors=vectors,
            failed=tuple(rows),
            learned=learned,
            usage=usage,
        )
    )


def _is_wait(error: ProviderError) -> bool:
    """Tell whether texts only wait for another request."""
    return error.kind in ("split", "unsent")


def _cool_down(context: Context, account: str, outcome: Outcome, error: ProviderError) -> None:
    """Keep the other requests that workers have in hand from running into the same no."""
    if _is_wait(error):
        return
    if error.retry_after_s is not None:
        context.limits.cool_down(account, error.retry_after_s)
    elif error.kind == "stop":
        context.limits.cool_down(account, limits.STOP_COOLDOWN_S)
    elif not outcome.is_provider_well and not any(outcome.vectors):
        context.limits.cool_down(account, limits.FAILURE_COOLDOWN_S)


def _tokens(vector: bytes) -> bytes:
    """Return the token vectors that came with a vector; empty when there are none."""
    return vector.tokens if isinstance(vector, LateVector) else b""


def _choice(context: Context, agent: str, identity: Identity) -> Choice:
    """Give the provider of an identity.

    Raises ModelMismatch when this process's settings do not give it, ProviderStop when they give none.
    """
    primary = context.choice(agent)
    for choice in (primary, context.fallback(agent)):
        if choice is not None and choice.identity is not None and choice.identity.key == identity.key:
            return choice
    wanted = f"the index wants {identity.provider} {identity.model}"
    if (ours := primary.identity) is None:
        words = f"this worker has no provider ({primary.reason}), {wanted}"
    else:
        words = f"this worker is set up for {ours.provider} {ours.model}, {wanted}"
        words += f"; they differ in {ours.differences(identity)}"
    raise ModelMismatch(words, hint="give workers and index the same provider settings: memline config show")
