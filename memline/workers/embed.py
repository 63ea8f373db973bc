"""Queue `embed`: one provider request a message. Needs no disk; runs anywhere with network or a model."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import Choice, choose, choose_for_identity
from memline.shared.embedders.protocol import CALL_ATTEMPTS, Identity
from memline.shared.embedders.request import Outcome, Request
from memline.shared.errors import (
    IndexFault,
    ProviderBrokenAnswer,
    ProviderError,
    ProviderLater,
    ProviderStop,
    QueueError,
)
from memline.shared.index.accounts import account_id
from memline.shared.index.rows import VectorRow
from memline.shared.logs import Log
from memline.shared.providers import PROVIDERS
from memline.shared.queue.broker import actor, send
from memline.shared.queue.messages import EmbedTexts, MessageRefused, StoreVectors
from memline.shared.scheduling import leases, limits
from memline.shared.scheduling.health import Failure
from memline.shared.scheduling.limits import minute_limits
from memline.shared.sources.tokens import estimate_tokens
from memline.workers.context import Context, current

#: Seconds a worker waits for its place within the limits; for longer the texts go back to the rows. Less than
#: the cooldowns of `shared.scheduling.limits`.
MAX_WAIT_S = 5.0

#: Seconds that such texts stay in the rows at least, and that a worker keeps those it cannot send: another
#: worker takes them sooner, and they do not go round and round.
MIN_DEFERRED_S = 1.0
NOT_SENT_S = 1.0

_LOG = Log("embed")


@actor(EmbedTexts)
def embed_texts(message: EmbedTexts) -> None:
    """Embed the texts of one lease and send back vectors, and failures by their kind.

    Safe twice: the second run finds in Redis that the first has begun to send it, and does nothing; the
    deadline of the lease frees its texts. Safe late: what cannot end before that deadline is not sent. Else
    it always answers, so that no lease waits for its end because of an error here.
    """
    context, request = current(), message.request
    outcome = Outcome(vectors=[None] * len(request.texts))
    try:
        settings = context.agent(message.agent)
        choice = _choice(settings, request.identity)
        embedder = context.keep((message.agent, request.identity.key), choice.build)
        if not context.begin(request.lease, request.until - context.clock.now()):
            # A worker before this one has begun to send it, and has ended since.
            _LOG.warning("request.dropped", lease=request.lease, texts=len(request.texts))
            return
        sending = _Sending(context, settings, choice, request.until)
        outcome = Request(
            embedder,
            [text.text for text in request.texts],
            before_call=sending.before_call,
            estimate=estimate_tokens,
            timeout_s=choice.timeout_s,
            max_attempts=1 if request.is_probe or any(sending.limits) else CALL_ATTEMPTS,
            clock=context.clock,
        ).embed()
        sending.cool_down(outcome)
        if (error := outcome.error) and error.kind not in ("split", "unsent"):
            _LOG.warning("request.failed", texts=len(request.texts), error=error.message, action=error.hint)
    except QueueError as error:
        # No provider is at fault: another process may be set up for it, or Redis is away.
        _LOG.error("request.not_sent", error=error.message, action=error.hint)
        context.stopping.wait(NOT_SENT_S)
        outcome.error = _Unsent(error.message, hint=error.hint)
    except ProviderError as error:
        outcome.error = error
    except Exception as error:
        # The boundary of the process: whatever it was, the rows must know, or they wait for the lease. What
        # was counted stays so: it may have been paid for.
        outcome.error = ProviderBrokenAnswer(f"{type(error).__name__}: {error}")
        send(_answer(message, outcome, None))
        raise
    send(_answer(message, outcome, outcome.used_tokens))


def _choice(settings: AgentSettings, identity: Identity) -> Choice:
    """Choose the provider of an identity. Raises MessageRefused when these settings do not lead to it."""
    try:
        return choose_for_identity(settings, identity, "")
    except ProviderStop as error:
        # There may be no index on this host.
        same = "give workers and index the same provider settings: memline config show"
        hint = choose(settings).action or same
        raise MessageRefused(error.message, hint=hint) from error


class _Unsent(ProviderLater):
    """The texts were not sent: they wait for another request, and nothing is wrong with the provider."""

    kind = "unsent"


class _Sending:
    """Decides before each call of a request whether it may be made."""

    def __init__(self, context: Context, settings: AgentSettings, choice: Choice, until: float) -> None:
        self._context, self._choice, self._until = context, choice, until
        self._account = limits.limit_key(account_id(choice.provider, choice.mark), choice.model)
        #: Requests and tokens a minute.
        self.limits = minute_limits(settings, choice)

    def before_call(self, texts: Sequence[str]) -> None:
        """Wait for a place within the account's limits.

        Raises ProviderLater when the wait is too long, the call could end after the lease, or the process is
        to end.
        """
        (max_requests, max_tokens), provider = self.limits, self._choice.provider
        pace = self._context.limits
        moves = limits.costs(
            tokens=sum(map(estimate_tokens, texts)),
            requests=len(texts) if PROVIDERS[provider].counts_texts else 1,
            max_requests=max_requests,
            max_tokens=max_tokens,
        )
        try:
            wait_s = pace.take(self._account, moves, max_wait_s=MAX_WAIT_S)
            if 0 < wait_s <= MAX_WAIT_S:
                self._context.clock.sleep(wait_s)
                # Another worker may have heard a no meanwhile.
                wait_s = pace.take(self._account, {})
        except (IndexFault, QueueError) as error:
            raise _Unsent(f"not sent, since its place cannot be counted: {error.message}") from error
        if wait_s > 0:
            words = f"{provider} is at its limit of a minute, or asked to wait"
            # Until the place is near enough to be waited for.
            raise _Unsent(words, retry_after_s=max(wait_s - MAX_WAIT_S, MIN_DEFERRED_S))
        if self._context.stopping.is_set():
            raise _Unsent("the process that was to send it ends")
        # Last: to ask for the place, and to wait for it, takes time as well.
        if not leases.may_call(self._until - self._context.clock.now(), self._choice.timeout_s):
            raise _Unsent("the lease of these texts is over")

    def cool_down(self, outcome: Outcome) -> None:
        """Keep the other requests that workers have in hand from running into the same no."""
        error, brought_any = outcome.error, outcome.is_provider_well or any(outcome.vectors)
        if error is None or error.kind in ("split", "unsent"):
            return
        if error.retry_after_s is not None or error.kind == "stop" or not brought_any:
            wait_s = limits.STOP_COOLDOWN_S if error.kind == "stop" else limits.FAILURE_COOLDOWN_S
            wait_s = wait_s if error.retry_after_s is None else error.retry_after_s
            # While Redis is away, none of them is sent.
            with suppress(QueueError):
                self._context.limits.cool_down(self._account, wait_s)


def _answer(message: EmbedTexts, outcome: Outcome, used_tokens: int | None) -> StoreVectors:
    """Tell what came of a request: vectors, and failures by their kind."""
    request, failed = message.request, [([index], why) for index, why in outcome.failures]
    vectors = tuple(
        VectorRow(hash=text.hash, vector=bytes(vector), tokens=getattr(vector, "tokens", b""))
        for text, vector in zip(request.texts, outcome.vectors, strict=True)
        if vector is not None
    )
    if outcome.error is not None:
        refused = {index for index, _ in outcome.failures}
        rest = [i for i, vector in enumerate(outcome.vectors) if vector is None and i not in refused]
        failed += [(rest, outcome.error)] * bool(rest)
    failures = tuple(
        Failure(
            hashes=tuple(request.texts[index].hash for index in texts),
            kind=why.kind,
            error=why.message,
            action=why.hint,
            retry_after_s=why.retry_after_s,
            is_unreachable=why.code == "unreachable",
            is_probe=request.is_probe,
            no_results=not (vectors or outcome.is_provider_well),
        )
        for texts, why in failed
    )
    answer = leases.Answer(
        identity=request.identity,
        lease=request.lease,
        vectors=vectors,
        failures=failures,
        learned=outcome.max_rows,
        used_tokens=used_tokens,
        paid_calls=outcome.paid_calls,
    )
    return StoreVectors(agent=message.agent, answer=answer)
