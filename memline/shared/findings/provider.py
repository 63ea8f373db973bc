"""Find what keeps texts from being sent to a provider, and what stands in for the one that was asked for."""

from __future__ import annotations

from collections.abc import Iterator

from memline.shared.embedders.choice import NONE
from memline.shared.finding import NOTE, PROBLEM, WARNING, Finding, note, problem, warning
from memline.shared.findings.facts import Facts
from memline.shared.index import jobs
from memline.shared.providers import LOCAL, price_of
from memline.shared.scheduling import health
from memline.shared.scheduling.health import Health
from memline.shared.words import because, counted, span

#: Seconds of a rate limit above which an operator should know.
LONG_HOLD_S = 60.0

#: What ends a pause, and what tries a provider now.
RESUME = "memline queue resume"


def _pending(count: int) -> str:
    """Say that so many vectors are pending, behind a reason; empty for none."""
    return f"; {counted(count, 'vector', 'are')} pending" if count else ""


def provider_unusable(facts: Facts) -> Iterator[Finding]:
    """The provider that was asked for has no key, no model or no engine."""
    choice = facts.choice
    if choice.identity is None and choice.requested not in ("auto", NONE):
        what = f"keyword search only: {choice.reason}{_pending(facts.model.missing)}"
        yield problem("provider_unusable", what, choice.action, choice.requested)
    if choice.identity is not None and LOCAL in (choice.provider, facts.settings.memory.fallback):
        # Few agents have a local model, whose files take 5 ms of a search to import.
        from memline.shared.embedders.local.downloads import configured, engine_named

        engine = engine_named(configured(facts.settings.memory.local))
        if engine is not None and not engine.is_installed:
            error = engine.not_installed()
            yield problem(
                "provider_unusable", f"the local model cannot run: {error.message}", error.hint, LOCAL
            )


def paused(facts: Facts) -> Iterator[Finding]:
    """A person paused embedding, or a part of it."""
    level, pending = (WARNING if facts.waiting else NOTE), _pending(facts.waiting)
    if facts.is_paused:
        what = health.PAUSED + pending
        yield Finding(code="paused", level=level, what=what, action=RESUME)
        return
    for (provider, mode), state in facts.breakers.items():
        if not state.manual:
            continue
        what = health.PAUSED + health.of_mode(provider, mode)
        is_batch = mode == health.BATCH
        if is_batch and not facts.breakers.get((provider, health.REQUESTS), Health()).is_stopped:
            what += health.IN_REQUESTS
        yield Finding(
            code="paused",
            level=NOTE if is_batch else level,
            what=what + pending * (not is_batch),
            action=health.action_of(state, provider, mode),
            subject=provider,
        )


def ceiling_reached(facts: Facts) -> Iterator[Finding]:
    """The daily limit is reached."""
    if facts.refusal is not None:
        what = facts.refusal.reason + _pending(facts.waiting)
        yield warning("ceiling_reached", what, facts.refusal.action)


def fallback_active(facts: Facts) -> Iterator[Finding]:
    """Another provider embeds instead of the one that was asked for."""
    if facts.fallback is None:
        return
    first = facts.fallback["from"]
    second = facts.target.identity.provider if facts.target else facts.choice.provider
    # Where the settings themselves do not lead to the first one, a run changes nothing.
    action = facts.choice.action
    if not facts.choice.fallback_from:
        state = facts.breakers.get((first, health.REQUESTS), Health())
        action = RESUME if state.is_stuck(facts.now) else facts.catch_up
    what = f"the fallback {second} embeds instead of {first}: {facts.fallback['reason']}"
    yield warning("fallback_active", what, action, first)


def breaker_open(facts: Facts) -> Iterator[Finding]:
    """The circuit breaker of a provider is open: an outage, or a definite no."""
    for (provider, mode), state in facts.breakers.items():
        # What a fallback stands in for is said by `fallback_active`.
        is_replaced = facts.fallback is not None and facts.fallback["from"] == provider
        if not state.paused or (is_replaced and mode == health.REQUESTS):
            continue
        is_in_use = facts.is_sent_to(provider) and mode == health.REQUESTS
        wait_s = state.wait_s(facts.now)
        when = f"tried again in {span(wait_s)}" if wait_s > 0 else "tried again with the next text"
        what = f"the circuit breaker of {provider} is open, {when}: {state.reason}"
        if mode == health.BATCH:
            what = what.replace(f"of {provider}", f"of {provider} for batches", 1) + "; requests go on"
        yield Finding(
            code="breaker_open",
            level=PROBLEM if is_in_use else NOTE,
            what=what + _pending(facts.waiting if is_in_use else 0),
            action=state.action or RESUME,
            subject=provider,
        )


def rate_limited(facts: Facts) -> Iterator[Finding]:
    """The provider asked to wait."""
    wait_s = facts.hold_s
    if facts.target is None or not wait_s:
        return
    provider, is_long = facts.target.identity.provider, wait_s > LONG_HOLD_S
    # The reason is gone after a request that was in flight meanwhile and worked.
    reason = because(facts.requests.reason)
    yield Finding(
        code="rate_limited",
        level=WARNING if is_long else NOTE,
        what=f"{provider} is rate limited for {span(wait_s)}{reason}{_pending(facts.waiting)}",
        # A short one is over before a person has typed it.
        action=f"{RESUME}   (one request tries now, when the account allows more)" if is_long else "",
        subject=provider,
    )


def model_differs(facts: Facts) -> Iterator[Finding]:
    """The settings choose another model than the index has, or the index changes to it."""
    if facts.model.reason:
        yield warning("model_differs", facts.model.reason, facts.catch_up, facts.choice.provider)
    if facts.target is None:
        return
    identity = facts.target.identity
    price = price_of(
        identity.provider, identity.model, public=not identity.endpoint, own=facts.settings.prices
    )
    for job in facts.jobs:
        left = facts.left.get(job.id)
        if job.kind != jobs.MODEL or job.identity_id != facts.target.id or left is None or not left.texts:
            continue
        batches = facts.breakers.get((identity.provider, health.BATCH), Health())
        by_batch = (
            price is not None
            and price.batch_per_million is not None
            and facts.settings.memory.remote.batch.enabled
            and not batches.is_stopped
        )
        cost = f", {price.words(price.cost(left.tokens, by_batch=by_batch))}" if price else ""
        texts, tokens = counted(left.texts, "text"), counted(left.tokens, "token")
        yield note(
            "model_differs",
            f"the model changes to {job.what}: {texts} to embed, {tokens}{cost}",
            f"memline jobs pause {job.token}",
            job.token,
        )


def no_provider(facts: Facts) -> Iterator[Finding]:
    """Nothing is configured that embeds, and nothing was asked for."""
    if facts.choice.identity is None and facts.choice.requested == "auto":
        what = f"keyword search only: {facts.choice.reason}"
        yield note("no_provider", what, facts.choice.action)
