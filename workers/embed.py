"""Queue `embed`: one provider request a message. Needs no disk; runs anywhere with network or a model."""

from __future__ import annotations

from typing import Any

import dramatiq

from shared.embedders.request import embed
from shared.errors import ProviderBrokenAnswer, ProviderError, ProviderLater
from shared.index.rows import LearnedCaps, VectorRow
from shared.queue.messages import EmbedFailed, EmbedTexts, StoreVectors, decode
from shared.queue.send import send
from workers import runtime

#: Seconds nobody calls a provider that said a definite no; by then the store worker has paused it.
STOP_HOLD_S = 2.0


@dramatiq.actor(queue_name="embed")
def embed_texts(raw: dict[str, Any]) -> None:
    """Embed the texts of one lease and send back vectors, and failures by their kind.

    Safe twice: the second run pays again but changes nothing, since vectors are kept by text hash. It
    always answers, so that no lease waits for its end because of an error here.
    """
    message = decode(raw, EmbedTexts)
    here = runtime.current()
    provider = message.identity.provider
    now = here.clock.now()
    held_until = here.limits.held_until(provider)
    if held_until > now:
        held = ProviderLater(f"{provider} asked for a pause", retry_after_s=held_until - now)
        _report(message, range(len(message.texts)), held)
        return
    try:
        embedder = here.embedder(message.agent, message.identity)
        outcome = embed(embedder, [text.text for text in message.texts])
    except ProviderError as error:
        _report(message, range(len(message.texts)), error)
        return
    except Exception as error:
        # The boundary of the process: whatever it was, the rows must know, or they wait for the lease.
        broken = ProviderBrokenAnswer(f"{type(error).__name__}: {error}")
        _report(message, range(len(message.texts)), broken)
        raise
    learned = LearnedCaps(max_rows=outcome.learned_max_rows, max_tokens=outcome.learned_max_tokens)
    vectors = tuple(
        VectorRow(hash=text.hash, vector=vector)
        for text, vector in zip(message.texts, outcome.vectors, strict=True)
        if vector is not None
    )
    if outcome.error is not None:
        _hold(here, provider, outcome.error)
        failed = {index for index, _ in outcome.failures}
        rest = [i for i, vector in enumerate(outcome.vectors) if vector is None and i not in failed]
        _report(message, rest, outcome.error, learned)
    for index, failure in outcome.failures:
        _report(message, [index], failure, learned)
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


def _hold(here: runtime.Runtime, provider: str, error: ProviderError) -> None:
    """Keep the other workers from running into the same no."""
    if error.retry_after_s is not None:
        here.limits.hold(provider, here.clock.now() + error.retry_after_s)
    elif error.kind == "stop":
        here.limits.hold(provider, here.clock.now() + STOP_HOLD_S)


def _report(
    message: EmbedTexts,
    indexes: range | list[int],
    error: ProviderError,
    learned: LearnedCaps | None = None,
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
            learned=learned or LearnedCaps(),
        )
    )
