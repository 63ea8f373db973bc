"""Find what keeps texts from being sent to a provider, and what stands in for the one that was asked for."""

from __future__ import annotations

from collections.abc import Iterator

from memline.shared.embedders.choice import NONE
from memline.shared.embedders.local.downloads import configured, engine_named
from memline.shared.finding import NOTE, PROBLEM, WARNING
from memline.shared.findings.facts import Facts
from memline.shared.findings.table import Seen, finding, met, seen
from memline.shared.index import jobs
from memline.shared.providers import LOCAL, price_of
from memline.shared.scheduling import breaker, health
from memline.shared.scheduling.breaker import Health
from memline.shared.values import replace
from memline.shared.words import because, counted, span

#: Seconds of a hold above which an operator should know.
LONG_HOLD_S = 60.0

#: What a missing key is called by `shared.embedders.choice`.
_NO_KEY = "No API key found"


def vectors_wait(count: int) -> str:
    """Say that so many vectors wait, to be put behind a reason; empty for none."""
    return f"; {count:,} {'vector waits' if count == 1 else 'vectors wait'}" if count else ""


def _is_named(facts: Facts) -> bool:
    return facts.choice.identity is None and facts.choice.requested not in ("auto", NONE)


@finding(
    PROBLEM,
    "keyword search only: {reason}{waiting}",
    subject="provider account",
    halts="the provider has no key",
)
def provider_without_key(facts: Facts) -> Iterator[Seen]:
    if _is_named(facts) and facts.choice.reason.startswith(_NO_KEY):
        yield _unusable(facts)


@finding(
    PROBLEM,
    "keyword search only: {reason}{waiting}",
    subject="provider account",
    halts="the provider cannot be used",
)
def provider_unusable(facts: Facts) -> Iterator[Seen]:
    if _is_named(facts) and not facts.choice.reason.startswith(_NO_KEY):
        yield _unusable(facts)


def _unusable(facts: Facts) -> Seen:
    choice = facts.choice
    waiting = vectors_wait(facts.model.missing)
    # The workers of a fleet embed, whatever this process could.
    return seen(
        reason=choice.reason,
        waiting=waiting,
        action=choice.action,
        subject=choice.requested,
        halts=not facts.queue,
    )


@finding(PROBLEM, "the local model cannot run: {reason}", subject="provider account")
def engine_missing(facts: Facts) -> Iterator[Seen]:
    settings = facts.settings.memory
    if facts.choice.identity is not None and LOCAL in (facts.choice.provider, settings.fallback):
        engine = engine_named(configured(settings.local))
        if engine is not None and not engine.is_installed:
            error = engine.not_installed()
            yield seen(reason=error.message, action=error.hint, subject=LOCAL)


@finding(
    PROBLEM,
    "{provider} does not embed: {reason}",
    action="check the key and the address of the provider",
    subject="provider account",
)
def provider_fails(facts: Facts) -> Iterator[Seen]:
    yield from met(facts.troubles, "provider_fails")


@finding(
    WARNING,
    health.PAUSED + "{by_hand}{waiting}",
    action="memline queue resume",
    subject="provider account",
    halts="paused",
)
def paused(facts: Facts) -> Iterator[Seen]:
    by_hand = {key: state for key, state in facts.breakers.items() if state.manual}
    if not facts.is_paused and not by_hand:
        return
    level, waiting = (WARNING if facts.waiting else NOTE), vectors_wait(facts.waiting)
    if facts.is_paused:
        yield seen(by_hand="", waiting=waiting, level=level)
    else:
        for (provider, mode), state in by_hand.items():
            yield seen(
                by_hand=health.of_mode(provider, mode),
                waiting=_in_requests(facts, provider) if mode == health.BATCH else waiting,
                level=NOTE if mode == health.BATCH else level,
                halts=mode == health.REQUESTS and facts.is_sent_to(provider),
                action=health.action_of(state, provider, mode),
                subject=provider,
            )


def _in_requests(facts: Facts, provider: str) -> str:
    """Say what a pause of batches costs: it holds nothing back, unless requests are held as well."""
    requests = facts.breakers.get((provider, health.REQUESTS), Health())
    return "" if requests.is_stopped else health.IN_REQUESTS


@finding(
    WARNING,
    "{reason}{waiting}",
    subject="provider account",
    halts="the ceiling is reached",
)
def ceiling_reached(facts: Facts) -> Iterator[Seen]:
    if facts.refusal is not None:
        waiting = vectors_wait(facts.waiting)
        yield seen(reason=facts.refusal.reason, waiting=waiting, action=facts.refusal.action)


@finding(
    WARNING,
    "the fallback {second} embeds instead of {first}: {reason}",
    action="memline index",
    subject="provider account",
)
def fallback_active(facts: Facts) -> Iterator[Seen]:
    if facts.fallback:
        first = facts.fallback["from"]
        second = facts.target.identity.provider if facts.target else facts.choice.provider
        if facts.choice.fallback_from:
            # The settings themselves do not lead to the first one: a run changes nothing.
            action = facts.choice.action
        else:
            state = facts.breakers.get((first, health.REQUESTS), Health())
            action = "memline queue resume" if state.is_stuck(facts.now) else "memline index"
        yield seen(first=first, second=second, reason=facts.fallback["reason"], action=action, subject=first)


@finding(
    PROBLEM,
    "requests to {provider} stopped{when}: {reason}{waiting}",
    subject="provider account",
    halts="the provider stopped",
)
def breaker_open(facts: Facts) -> Iterator[Seen]:
    for provider, state in facts.open_breakers(health.REQUESTS):
        # What a fallback stands in for has its reason in the row of the fallback.
        if facts.fallback is not None and facts.fallback["from"] == provider:
            continue
        is_in_use = facts.is_sent_to(provider)
        yield seen(
            provider=provider,
            when=_asked_again(state, facts),
            reason=state.reason,
            waiting=vectors_wait(facts.waiting if is_in_use else 0),
            level=PROBLEM if is_in_use else NOTE,
            action=health.action_of(replace(state, manual=False), provider, health.REQUESTS),
            subject=provider,
            halts=is_in_use,
            passes=not state.is_stuck(facts.now),
        )


@finding(NOTE, "batches to {provider} stopped{when}: {reason}; requests go on", subject="provider account")
def batches_stopped(facts: Facts) -> Iterator[Seen]:
    for provider, state in facts.open_breakers(health.BATCH):
        yield seen(
            provider=provider,
            when=_asked_again(state, facts),
            reason=state.reason,
            action=health.action_of(replace(state, manual=False), provider, health.BATCH),
            subject=provider,
        )


def _asked_again(state: Health, facts: Facts) -> str:
    if state.state == breaker.HALF_OPEN:
        return ", a probe is in flight"
    wait_s = state.probe_at - facts.now
    return f", asked again in {span(wait_s)}" if wait_s > 0 else ", asked again with the next text"


#: What a person does who has bought more meanwhile.
_TRY_NOW = "memline queue resume   (one request tries now, when the account allows more)"


@finding(
    NOTE,
    "{provider} asked to wait {wait}{reason}{waiting}",
    subject="provider account",
    halts="the provider asked to wait",
    passes=True,
)
def rate_limited(facts: Facts) -> Iterator[Seen]:
    state, target = facts.requests, facts.target
    wait_s = facts.hold_s
    if target is not None and wait_s:
        yield seen(
            provider=target.identity.provider,
            wait=span(wait_s),
            # Empty after a request that was in flight meanwhile and worked.
            reason=because(state.reason),
            waiting=vectors_wait(facts.waiting),
            level=WARNING if wait_s > LONG_HOLD_S else NOTE,
            # A short one is over before a person has typed it.
            action=_TRY_NOW if wait_s > LONG_HOLD_S else "",
            subject=target.identity.provider,
        )


@finding(WARNING, "{reason}", action="memline index")
def model_differs(facts: Facts) -> Iterator[Seen]:
    if facts.model.reason:
        yield seen(reason=facts.model.reason, subject=facts.choice.provider)


@finding(
    NOTE,
    "the model changes to {model}: {texts} to embed, {tokens}{price}",
    action="memline jobs ls   (memline jobs pause ID, or memline jobs cancel ID)",
)
def model_changing(facts: Facts) -> Iterator[Seen]:
    if facts.index is None or facts.target is None:
        return
    of_target = (jobs.MODEL, facts.target.id)
    changing = [job for job in jobs.open_jobs(facts.index) if (job.kind, job.identity_id) == of_target]
    left = jobs.left(facts.index) if changing else {}
    for job in changing:
        if (waiting := left.get(job.id)) and waiting.texts:
            identity = facts.target.identity
            name, is_public, own = identity.provider, not identity.endpoint, facts.settings.prices
            price = price_of(name, identity.model, public=is_public, own=own)
            batches = facts.breakers.get((name, health.BATCH), Health())
            by_batch = facts.settings.memory.remote.batch.enabled and not batches.is_stopped
            by_batch = by_batch and price is not None and price.batch_per_million is not None
            cost = price.cost(waiting.tokens, by_batch=by_batch) if price else None
            yield seen(
                model=job.what,
                texts=counted(waiting.texts, "text"),
                tokens=counted(waiting.tokens, "token"),
                price=f", {price.words(cost)}" if price else "",
                subject=job.token,
            )


@finding(NOTE, "keyword search only: {reason}", subject="provider account")
def no_provider(facts: Facts) -> Iterator[Seen]:
    if facts.choice.identity is None and facts.choice.requested == "auto":
        yield seen(reason=facts.choice.reason, action=facts.choice.action)


@finding(
    NOTE,
    "a key of {providers} is set and not used",
    action="set memorySearch.provider to auto, or unset the key",
    subject="provider account",
)
def key_unused(facts: Facts) -> Iterator[Seen]:
    unused = sorted(name for name, key in facts.settings.environment_keys.items() if key.strip())
    if unused and facts.choice.identity is None and facts.choice.requested == NONE:
        yield seen(providers=", ".join(unused))


@finding(
    WARNING,
    "{files} and {vectors} wait for the job {job}, which is paused",
    action="memline jobs resume {job}",
)
def job_paused(facts: Facts) -> Iterator[Seen]:
    for job, left in facts.paused_jobs:
        yield seen(
            files=counted(left.files, "file"),
            vectors=counted(left.texts, "vector"),
            job=job.token,
            level=WARNING if left.files or left.texts else NOTE,
            subject=job.token,
        )
