"""Find what keeps texts from being sent, what stands in, what an index lacks, and what failed for good."""

from __future__ import annotations

from collections.abc import Iterator

from memline.shared.embedders.choice import NONE
from memline.shared.finding import NOTE, PROBLEM, WARNING, Finding, note, problem, warning
from memline.shared.findings.facts import Facts, sending
from memline.shared.index.batches import Batch
from memline.shared.providers import LOCAL
from memline.shared.scheduling import health, jobs
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
            error = engine.not_usable()
            what = f"the local model cannot run: {error.message}"
            yield problem("provider_unusable", what, error.hint, LOCAL)


def no_provider(facts: Facts) -> Iterator[Finding]:
    """Nothing is configured that embeds, and nothing was asked for."""
    if facts.choice.identity is None and facts.choice.requested == "auto":
        yield note("no_provider", f"keyword search only: {facts.choice.reason}", facts.choice.action)


def paused(facts: Facts) -> Iterator[Finding]:
    """A person paused embedding, or a provider."""
    level, pending = (WARNING if facts.waiting else NOTE), _pending(facts.waiting)
    if facts.is_paused:
        yield Finding(code="paused", level=level, what=health.PAUSED + pending, action=RESUME)
        return
    for (provider, mode), state in facts.breakers.items():
        if state.manual and mode == health.REQUESTS:
            what, action = f"{health.PAUSED} for {provider}{pending}", health.action_of(state, provider)
            yield Finding(code="paused", level=level, what=what, action=action, subject=provider)


def ceiling_reached(facts: Facts) -> Iterator[Finding]:
    """The daily limit is reached."""
    if facts.refusal is not None:
        what = facts.refusal.reason + _pending(facts.waiting)
        yield warning("ceiling_reached", what, facts.refusal.action)


def fallback_active(facts: Facts) -> Iterator[Finding]:
    """Another provider embeds instead of the one that was asked for."""
    if facts.fallback is None:
        return
    first, second = facts.fallback["from"], facts.provider or facts.choice.provider
    action = facts.choice.action
    # Where the settings themselves do not lead to the first one, a run changes nothing.
    if not facts.choice.fallback_from:
        action = RESUME if facts.health_of(first).is_stuck(facts.now) else facts.catch_up
    what = f"the fallback {second} embeds instead of {first}: {facts.fallback['reason']}"
    yield warning("fallback_active", what, action, first)


def breaker_open(facts: Facts) -> Iterator[Finding]:
    """The circuit breaker of a provider is open: an outage, or a definite no."""
    for (provider, mode), state in facts.breakers.items():
        is_batch = mode == health.BATCH
        # What a fallback stands in for is said by `fallback_active`.
        is_replaced = facts.fallback is not None and facts.fallback["from"] == provider
        if not state.paused or (is_replaced and not is_batch):
            continue
        is_in_use = facts.provider == provider and not is_batch
        wait_s = state.wait_s(facts.now)
        when = f"tried again in {span(wait_s)}" if wait_s > 0 else "tried again with the next text"
        what = f"the circuit breaker of {provider}{' for batches' * is_batch} is open, {when}: {state.reason}"
        what += "; requests go on" * is_batch + _pending(facts.waiting * is_in_use)
        level = PROBLEM if is_in_use else NOTE
        action = state.action or RESUME
        yield Finding(code="breaker_open", level=level, what=what, action=action, subject=provider)


def rate_limited(facts: Facts) -> Iterator[Finding]:
    """The provider asked to wait."""
    if not (wait_s := facts.hold_s):
        return
    # The reason is gone after a request that was in flight meanwhile and worked.
    what = f"{facts.provider} is rate limited for {span(wait_s)}{because(facts.requests.reason)}"
    what += _pending(facts.waiting)
    # A short one is over before a person has typed it.
    level, action = NOTE, ""
    if wait_s > LONG_HOLD_S:
        level, action = WARNING, f"{RESUME}   (one request tries now, when the account allows more)"
    yield Finding(code="rate_limited", level=level, what=what, action=action, subject=facts.provider)


def model_differs(facts: Facts) -> Iterator[Finding]:
    """The settings choose another model than the index has."""
    if facts.model.reason:
        yield warning("model_differs", facts.model.reason, facts.catch_up, facts.choice.provider)


def text_refused(facts: Facts) -> Iterator[Finding]:
    """Texts got no vector, and will get none."""
    if facts.failed_texts:
        (_, reason, path), count = facts.failed_texts[0], facts.backlog.failed
        where = (path or "a text that no file has any more") + f" and {count - 1:,} more" * (count > 1)
        what = f"{counted(count, 'text')} got no vector: {reason} ({where})"
        yield problem(
            "text_refused", what, f"change {path}, or leave it to keyword search" * bool(path), path
        )


def _is_sent(batch: Batch) -> bool:
    return batch.is_unfinished or batch.state == "collecting"


def batch_blocked(facts: Facts) -> Iterator[Finding]:
    """A batch waits for the operator, or is tried again after an error."""
    for batch in facts.batches:
        if batch.error and _is_sent(batch):
            state, level = ("cannot be collected", WARNING) if batch.action else ("is tried again", NOTE)
            what = f"batch {batch.token[:8]} {state}: {batch.error}"
            action, subject = batch.action, batch.token
            yield Finding(code="batch_blocked", level=level, what=what, action=action, subject=subject)


def in_batch(facts: Facts) -> Iterator[Finding]:
    """Texts are at a provider's Batch API, or on their way."""
    if facts.batches:
        states = ", ".join(
            f"{each.job_id} {each.provider_state or each.state}".strip() for each in facts.batches
        )
        what = f"{counted(facts.texts_in_batches, 'text', 'are')} in {counted(len(facts.batches), 'batch')}"
        yield note(
            "in_batch", f"{what}{f' at {facts.provider}' * bool(facts.provider)}: {states}", "memline jobs"
        )


def job_paused(facts: Facts) -> Iterator[Finding]:
    """A person paused a job."""
    for job in facts.jobs:
        if job.state == jobs.PAUSED:
            what, action = f"job {job.token} is paused", f"memline jobs resume {job.token}"
            yield warning("job_paused", what, action, job.token)


def vectors_behind(facts: Facts) -> Iterator[Finding]:
    """Vectors are pending: nothing sends their texts, something does, or their job was cancelled."""
    if cancelled := facts.backlog.cancelled:
        what = f"{counted(cancelled, 'vector', 'were')} cancelled with their job"
        yield warning("vectors_behind", what, facts.catch_up)
    if not facts.waiting or facts.model.reason:
        return
    stop, what = sending(facts), f"{counted(facts.waiting, 'vector', 'are')} pending"
    if stop is None and facts.has_embedder:
        if facts.rate >= 1:
            what += f", {facts.rate:,.0f} a second, about {span(facts.waiting / facts.rate)}"
        elif (wait_s := facts.requests.wait_s(facts.now)) > 0:
            what += f"; {facts.requests.reason}; goes on in {span(wait_s)}"
        yield note("vectors_behind", what)
    elif stop is None or stop.code in ("role_missing", "redis_unusable"):
        # Other reasons are findings of their own, with the count.
        yield warning("vectors_behind", what, facts.catch_up)
