"""Queue `embed`: one provider request a message. Needs no disk; runs anywhere with network or a model."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache, partial

from memline.shared.embedders.choice import Choice
from memline.shared.embedders.protocol import (
    CALL_ATTEMPTS,
    Embedder,
    Identity,
    LateVector,
    limit_attempts,
)
from memline.shared.embedders.provider_errors import is_of_account
from memline.shared.embedders.request import Outcome, ProviderSplit, embed
from memline.shared.errors import (
    IndexFault,
    ModelMismatch,
    ProviderBrokenAnswer,
    ProviderError,
    ProviderLater,
)
from memline.shared.index.accounts import account_id
from memline.shared.index.rows import LearnedCaps, TextRow, VectorRow
from memline.shared.logs import Log
from memline.shared.providers import PROVIDERS
from memline.shared.queue.broker import actor, send
from memline.shared.queue.messages import AgentNotConfigured, EmbedFailed, EmbedTexts, StoreVectors
from memline.shared.scheduling import call_times
from memline.shared.scheduling.breaker import ASKED_TO_WAIT, AT_LIMIT, HAS_COOLDOWN, MAX_SHRUNK_ROWS, tighter
from memline.shared.scheduling.limits import STOP_COOLDOWN_S, minute_limits
from memline.shared.sources.tokens import estimate_tokens
from memline.workers.context import Context, current

#: Seconds a worker waits for its place within the limits; for longer the texts go back to the rows. Half of
#: `STOP_COOLDOWN_S`.
MAX_WAIT_S = 5.0

#: Seconds that such texts stay in the rows at least.
MIN_DEFERRED_S = 1.0

#: Seconds after its start, or a change of its settings, in which a worker that is set up for another model
#: than the index waits for it.
MISMATCH_S = 15.0

#: Fields of an identity, as an operator knows them.
_PARTS = {
    "provider": "the provider",
    "model": "the model",
    "endpoint": "the address or headers (remote.baseUrl, remote.headers)",
    "dims": "the dimensions",
    "scheme": "the input types",
}

_LOG = Log("embed")


@actor(EmbedTexts)
def embed_texts(message: EmbedTexts) -> None:
    """Embed the texts of one lease and send back vectors, and failures by their kind.

    Safe twice: the second run sends nothing and gives the texts back, to be sent as another request. It
    always answers, so that no lease waits for its end because of an error here; a worker that is set up for
    another model gives the request back to the queue, and ends.
    """
    context = current()
    account, key = "", message.identity.key
    if context.was_sent(message.lease):
        # By a worker that was killed, whose call counts: another call is counted, and kept below the
        # ceilings, as another request.
        _LOG.warning("request.given_back", lease=message.lease, texts=len(message.texts))
        _report(message, message.texts, ProviderSplit("its worker ended before the provider answered"))
        return
    begin = cache(partial(context.may_send, message.lease))  # Once, whatever parts it is cut into.
    try:
        choice = _choice(context, message.agent, message.identity)
        account = account_id(choice.provider, choice.mark)
        embedder: Embedder = context.keep(("embedder", message.agent, key), choice.build)
        budget = minute_limits(context.agent(message.agent, needs_workspace=False), choice)
        is_counted = message.is_probe or any(budget)
        with limit_attempts(1 if is_counted else CALL_ATTEMPTS):
            outcome = embed(
                embedder,
                [text.text for text in message.texts],
                before_call=partial(_take_place, context, account, budget, message.lease, begin),
                estimate=estimate_tokens,
                max_rows=context.shrunk_rows.get(key, 0),
                timeout_s=choice.timeout_s,
                clock=context.clock,
            )
    except AgentNotConfigured as error:
        # Nothing was sent, and no provider is at fault.
        broken = ProviderBrokenAnswer(error.message, hint=error.hint)
        _report(message, message.texts, broken, paid_tokens=0)
        return
    except ModelMismatch as error:
        if time.monotonic() - context.began_at < MISMATCH_S:
            # One process is started again with other settings before another.
            context.stopping.wait(1.0)
            raise
        _LOG.error("worker.model_mismatch", error=error.message, action=error.hint)
        context.stop(error)
        raise
    except ProviderError as error:
        _report(message, message.texts, error, paid_tokens=0)
        return
    except Exception as error:
        # The boundary of the process: whatever it was, the rows must know, or they wait for the lease.
        broken = ProviderBrokenAnswer(f"{type(error).__name__}: {error}")
        paid = None if begin.cache_info().currsize else 0
        _report(message, message.texts, broken, no_results=True, paid_tokens=paid)
        raise
    _note_sizes(context, key, outcome)
    _answer(context, message, account, outcome)


def _answer(context: Context, message: EmbedTexts, account: str, outcome: Outcome) -> None:
    """Send back what came of a request: vectors, and failures by their kind."""
    learned = _learned(outcome, message.identity)
    paid_tokens = outcome.used_tokens
    vectors = tuple(
        VectorRow(hash=text.hash, vector=bytes(vector), tokens=_tokens(context, message.agent, vector))
        for text, vector in zip(message.texts, outcome.vectors, strict=True)
        if vector is not None
    )
    failed = [([message.texts[index]], failure) for index, failure in outcome.failures]
    if isinstance(outcome.error, _LeaseEnded):
        _LOG.warning("request.expired", lease=message.lease, texts=len(message.texts))
    elif outcome.error is not None:
        # Keeps the other workers from running into the same no.
        if outcome.error.retry_after_s is not None and not isinstance(outcome.error, _AtLimit):
            context.limits.cool_down(account, outcome.error.retry_after_s)
        elif outcome.error.kind == "stop":
            context.limits.cool_down(account, STOP_COOLDOWN_S)
        refused = {index for index, _ in outcome.failures}
        rest = [i for i, vector in enumerate(outcome.vectors) if vector is None and i not in refused]
        if rest:
            failed.insert(0, ([message.texts[i] for i in rest], outcome.error))
    no_results = not vectors and not outcome.is_provider_well
    calls = call_times.ended(outcome.attempts)
    paid_calls = sum(each.is_paid for each in outcome.attempts)
    report = partial(_report, message, paid_tokens=paid_tokens, paid_calls=paid_calls)
    for texts, failure in failed:
        # What counts once is said in one message of a request.
        is_split = failure.kind == "split"
        is_fault = no_results and not is_split
        report(texts, failure, learned, no_results=is_fault, calls=calls)
        learned, no_results, calls = LearnedCaps(), no_results and is_split, ()
    if vectors:
        send(
            StoreVectors(
                agent=message.agent,
                identity=message.identity,
                lease=message.lease,
                vectors=vectors,
                learned=learned,
                paid_tokens=paid_tokens,
                paid_calls=paid_calls,
                calls=calls,
            ),
        )


def _learned(outcome: Outcome, identity: Identity) -> LearnedCaps:
    status = outcome.error.status if outcome.error is not None else None
    return LearnedCaps(
        max_rows=outcome.max_rows,
        max_tokens=outcome.max_tokens,
        slow_rows=outcome.slow_rows,
        quick_rows=outcome.quick_rows,
        limited_rows=outcome.error_rows if status == 429 and PROVIDERS[identity.provider].counts_texts else 0,
    )


def _note_sizes(context: Context, key: str, outcome: Outcome) -> None:
    """Note what took too long: requests that are in this process already were packed before it was known."""
    known = context.shrunk_rows.get(key, 0)
    if outcome.slow_rows:
        context.shrunk_rows[key] = tighter(known, outcome.slow_rows)
    elif known and outcome.quick_rows >= known:
        # The rows of the index decide how large the next ones are.
        context.shrunk_rows[key] = 2 * known if 2 * known < MAX_SHRUNK_ROWS else 0


def _tokens(context: Context, agent: str, vector: bytes) -> bytes:
    """Return the token vectors that came with a vector; empty when there are none, or none are wanted."""
    if not isinstance(vector, LateVector):
        return b""
    return vector.tokens if context.agent(agent, needs_workspace=False).memory.query.hybrid.late else b""


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
        differing = [text for name, text in _PARTS.items() if getattr(ours, name) != getattr(identity, name)]
        words = f"this worker is set up for {ours.provider} {ours.model}, {wanted}"
        words += f"; they differ in {', '.join(differing)}"
    raise ModelMismatch(words, hint="give workers and index the same provider settings: memline config show")


class _LeaseEnded(ProviderLater):
    """The lease of the texts is over: the rows know, and another worker sends them."""


class _AtLimit(ProviderLater):
    """There is no place within the configured limits; the provider was not asked."""


def _take_place(
    context: Context,
    account: str,
    budget: tuple[int, int],
    lease: str,
    begin: Callable[[], bool],
    texts: Sequence[str],
) -> None:
    """Wait for a place within the account's limits, while the lease lasts; `begin` notes that it is sent.

    Raises ProviderLater when the wait is too long or the lease is over: a process that was stopped for a
    while must not pay for what another one has sent meanwhile.
    """
    (max_requests, max_tokens), provider = budget, account.partition(":")[0]
    wait_s = context.limits.take(
        account,
        tokens=sum(map(estimate_tokens, texts)),
        requests=len(texts) if PROVIDERS[provider].counts_texts else 1,
        max_requests=max_requests,
        max_tokens=max_tokens,
        max_wait_s=MAX_WAIT_S,
    )
    if wait_s > MAX_WAIT_S:
        # Until the place is near enough to be waited for.
        is_asked = context.limits.cooldown_s(account) > 0
        words = ASKED_TO_WAIT if is_asked else AT_LIMIT
        raise _AtLimit(f"{provider} {words}", retry_after_s=max(wait_s - MAX_WAIT_S, MIN_DEFERRED_S))
    if wait_s > 0:
        context.clock.sleep(wait_s)
        # Another worker may have heard a no meanwhile.
        if cooldown_s := context.limits.cooldown_s(account):
            raise _AtLimit(f"{provider} {HAS_COOLDOWN}", retry_after_s=cooldown_s)
    # Last: to ask for the place, and to wait for it, takes time as well.
    try:
        may_send = context.in_flight.holds(lease) and begin()
    except IndexFault as error:
        # As on a full disk, on which its answer could not be stored either.
        raise ProviderSplit(f"not sent, since it could not be counted: {error.message}") from error
    if not may_send:
        raise _LeaseEnded("the lease of these texts is over")


def _report(
    message: EmbedTexts,
    texts: Sequence[TextRow],
    error: ProviderError,
    learned: LearnedCaps | None = None,
    *,
    no_results: bool = False,
    paid_tokens: int | None = None,
    paid_calls: int = 1,
    calls: tuple[tuple[str, int], ...] = (),
) -> None:
    if not texts:
        return
    send(
        EmbedFailed(
            agent=message.agent,
            identity=message.identity,
            lease=message.lease,
            hashes=tuple(text.hash for text in texts),
            kind=error.kind,
            error=error.message,
            action=error.hint,
            retry_after_s=error.retry_after_s,
            of_model=error.kind == "stop" and not is_of_account(error),
            no_results=no_results,
            learned=learned or LearnedCaps(),
            paid_tokens=paid_tokens,
            paid_calls=paid_calls,
            calls=calls,
        ),
    )
