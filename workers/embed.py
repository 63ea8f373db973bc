"""Queue `embed`: one provider request a message. Needs no disk; runs anywhere with network or a model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import dramatiq

from shared.embedders import tries
from shared.embedders.request import embed
from shared.errors import ProviderBrokenAnswer, ProviderError, ProviderLater
from shared.index.rows import LearnedCaps, VectorRow
from shared.logs import Log
from shared.queue.messages import EmbedFailed, EmbedTexts, StoreVectors, decode
from shared.queue.send import send
from workers import runtime

#: Seconds a worker waits for its place within the limits; for longer the texts go back to the rows.
MAX_WAIT_S = 5.0

#: Seconds a worker that is set up for another model keeps a request before it gives it back.
MISFIT_WAIT_S = 2.0

#: Seconds that such texts stay in the rows at least.
MIN_PUT_OFF_S = 1.0

#: Seconds nobody calls a provider that said a definite no; by then the store worker has paused it. Longer
#: than a worker waits for its place: what was out with the no goes back to the rows without a call.
STOP_HOLD_S = 2 * MAX_WAIT_S


_LOG = Log("embed")


@dramatiq.actor(queue_name="embed")
def embed_texts(raw: dict[str, Any]) -> None:
    """Embed the texts of one lease and send back vectors, and failures by their kind.

    Safe twice: the second run pays again but changes nothing, since vectors are kept by text hash. It
    always answers, so that no lease waits for its end because of an error here.
    """
    message = decode(raw, EmbedTexts)
    here = runtime.current()
    provider = message.identity.provider
    try:
        embedder = here.embedder(message.agent, message.identity)
        is_counted = message.is_probe or here.is_counted(message.agent, provider)
        with tries.at_most(1 if is_counted else tries.USUAL):
            outcome = embed(
                embedder,
                [text.text for text in message.texts],
                before_call=partial(_take_place, here, message.agent, provider),
            )
    except runtime.WorkerMisfit as error:
        _LOG.error("worker.misfit", error=error.message, action=error.hint)
        # Longer than another worker takes to fetch a message: this one must not fetch them all.
        here.stopping.wait(MISFIT_WAIT_S)
        _report(message, range(len(message.texts)), error)
        return
    except ProviderError as error:
        _report(message, range(len(message.texts)), error)
        return
    except Exception as error:
        # The boundary of the process: whatever it was, the rows must know, or they wait for the lease.
        broken = ProviderBrokenAnswer(f"{type(error).__name__}: {error}")
        _report(message, range(len(message.texts)), broken, fruitless=True)
        raise
    learned = LearnedCaps(max_rows=outcome.learned_max_rows, max_tokens=outcome.learned_max_tokens)
    vectors = tuple(
        VectorRow(hash=text.hash, vector=vector)
        for text, vector in zip(message.texts, outcome.vectors, strict=True)
        if vector is not None
    )
    failed = [([index], failure) for index, failure in outcome.failures]
    if outcome.error is not None:
        _hold(here, provider, outcome.error)
        known = {index for index, _ in outcome.failures}
        rest = [i for i, vector in enumerate(outcome.vectors) if vector is None and i not in known]
        failed.insert(0, (rest, outcome.error))
    for number, (indexes, failure) in enumerate(failed):
        _report(message, indexes, failure, learned, fruitless=not vectors and number == 0)
    if vectors:
        send(
            StoreVectors(
                agent=message.agent,
                identity=message.identity,
                lease=message.lease,
                vectors=vectors,
                learned=learned,
            )
        )


class _AtLimit(ProviderLater):
    """There is no place within the limits that somebody set; the provider was not asked."""


def _take_place(here: runtime.Runtime, agent: str, provider: str, texts: Sequence[str]) -> None:
    """Wait for a place within the provider's limits. Raises ProviderLater when that takes too long."""
    wait_s = here.take_place(agent, provider, texts, patience_s=MAX_WAIT_S)
    if wait_s > MAX_WAIT_S:
        # Until the place is near enough to be waited for.
        raise _AtLimit(f"{provider} is at its limit", retry_after_s=max(wait_s - MAX_WAIT_S, MIN_PUT_OFF_S))
    if wait_s > 0:
        here.clock.sleep(wait_s)
        # Somebody may have heard a no meanwhile.
        if held_s := here.limits.held(provider):
            raise _AtLimit(f"{provider} is on hold", retry_after_s=held_s)


def _hold(here: runtime.Runtime, provider: str, error: ProviderError) -> None:
    """Keep the other workers from running into the same no."""
    if isinstance(error, _AtLimit):
        return
    if error.retry_after_s is not None:
        here.limits.hold(provider, error.retry_after_s)
    elif error.kind == "stop":
        here.limits.hold(provider, STOP_HOLD_S)


def _report(
    message: EmbedTexts,
    indexes: range | list[int],
    error: ProviderError,
    learned: LearnedCaps | None = None,
    *,
    fruitless: bool = False,
) -> None:
    if not indexes:
        return
    send(
        EmbedFailed(
            agent=message.agent,
            identity=message.identity,
            lease=message.lease,
            hashes=tuple(message.texts[index].hash for index in indexes),
            kind=error.kind,
            error=error.message,
            action=error.hint,
            retry_after_s=error.retry_after_s,
            fruitless=fruitless,
            learned=learned or LearnedCaps(),
        )
    )
