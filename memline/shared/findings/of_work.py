"""Find what an index lacks, what is under way, and what failed for good."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from memline.shared.finding import NOTE, PROBLEM, WARNING
from memline.shared.findings.facts import MOST_NAMED, Facts
from memline.shared.findings.table import Seen, finding, met, seen
from memline.shared.index import vectors
from memline.shared.sources import outcomes
from memline.shared.sources.paths import is_transcript
from memline.shared.words import counted, span

if TYPE_CHECKING:
    from memline.shared.index.ledger import LedgerEntry


@finding(PROBLEM, "nothing moved for {minutes} min; {vectors} wait", action="memline doctor")
def stalled(facts: Facts) -> Iterator[Seen]:
    yield from met(facts.troubles, "stalled")


@finding(PROBLEM, "{count} got no vector: {reason} ({file})", subject="file")
def text_refused(facts: Facts) -> Iterator[Seen]:
    failed = facts.failed_texts
    if failed:
        path, reason = failed[0]
        more = f" and {facts.backlog.failed - 1} more" if facts.backlog.failed > 1 else ""
        file = path or "a text that no file has any more"
        yield seen(
            count=counted(facts.backlog.failed, "text"),
            reason=reason,
            file=f"{file}{more}",
            action=f"change what the provider refuses in {path}, or leave it to its words" if path else "",
            subject=path,
        )


@finding(WARNING, "batch {batch} cannot be collected: {error}", subject="batch")
def batch_blocked(facts: Facts) -> Iterator[Seen]:
    for batch in facts.unfinished_batches:
        if batch.action:
            yield seen(batch=batch.token[:8], error=batch.error, action=batch.action, subject=batch.token)


@finding(WARNING, "{files} in the index{yet}", action="memline index")
def files_behind(facts: Facts) -> Iterator[Seen]:
    has_index = facts.index is not None or facts.plan is None
    if facts.files_behind and has_index and facts.settings.workspace.is_dir():
        removed = min(facts.removed, facts.files_behind)
        files, yet = f"{counted(removed, 'removed file', 'are')} still", ""
        if others := facts.files_behind - removed:
            files, yet = f"{counted(others, 'file', 'are')} not", " yet"
            yet += f", and {counted(removed, 'removed one', 'are')} still" if removed else ""
        found = seen(files=files, yet=yet)
        yield found.under_way() if facts.has_follower else found


@finding(WARNING, "{vectors} not in the index yet", action="memline index")
def vectors_behind(facts: Facts) -> Iterator[Seen]:
    if facts.waiting and not facts.is_stopped and not facts.has_embedder and not facts.model.reason:
        yield seen(vectors=f"{counted(facts.waiting, 'vector')} {'is' if facts.waiting == 1 else 'are'}")


@finding(WARNING, "{vectors} cancelled with their job", action="memline index")
def vectors_cancelled(facts: Facts) -> Iterator[Seen]:
    if facts.backlog.cancelled:
        yield seen(vectors=counted(facts.backlog.cancelled, "vector", "were"))


@finding(
    WARNING,
    "{files} could not be read: {first}",
    action="mend the file, or leave it out by memorySearch.exclude",
    subject="file",
)
def file_failed(facts: Facts) -> Iterator[Seen]:
    if failed := facts.failed_files:
        named = "; ".join(f"{each.path}: {each.reason or each.outcome}" for each in failed[:MOST_NAMED])
        more = " …" if len(failed) > MOST_NAMED else ""
        yield seen(
            files=counted(len(failed), "file"),
            first=named + more,
            action=_mend(failed),
            subject=failed[0].path,
        )


def _mend(failed: list[LedgerEntry]) -> str:
    """Say what ends the finding of these files."""
    file = failed[0].path if len(failed) == 1 else "each"
    kinds = {each.outcome for each in failed}
    ways = outcomes.mending(failed[0].outcome if len(kinds) == 1 else "", file)
    if any(is_transcript(each.path) for each in failed):
        # Another program writes them, and no rule leaves one out.
        ways = f"mend or remove {file}"
    return ways + "   (memline status --verbose lists them)" * (len(failed) > MOST_NAMED)


@finding(NOTE, "{vectors} on the way{rate}")
def embedding_under_way(facts: Facts) -> Iterator[Seen]:
    # What waits for the end of a hold is said by `rate_limited`.
    is_moving = facts.has_embedder and not facts.is_stopped and not facts.hold_s
    if facts.waiting and is_moving and not facts.model.reason:
        rate = ""
        if facts.rate >= 1:
            rate = f", {facts.rate:.0f} a second, about {span(facts.waiting / facts.rate)}"
        cooldown_s = facts.requests.retry_at - facts.now
        if cooldown_s > 0:
            rate = f"; {facts.requests.reason}; goes on in {cooldown_s:.0f} s"
        yield seen(vectors=counted(facts.waiting, "vector"), rate=rate)


@finding(NOTE, "batch {batch} is tried again: {error}", subject="batch")
def batch_delayed(facts: Facts) -> Iterator[Seen]:
    for batch in facts.unfinished_batches:
        if batch.error and not batch.action:
            yield seen(batch=batch.token[:8], error=batch.error, subject=batch.token)


@finding(
    NOTE,
    "{texts}",
    action="memline batch ls",
    subject="batch",
    halts="in a batch",
    passes=True,
)
def waiting_in_batch(facts: Facts) -> Iterator[Seen]:
    asked = [batch for batch in facts.unfinished_batches if batch.job_id]
    if asked and facts.texts_in_batches:
        done = sum(batch.rows_done for batch in asked)
        states = ", ".join(f"{batch.job_id} {batch.provider_state}".strip() for batch in asked)
        texts = f"{counted(facts.texts_in_batches, 'text', 'wait')} in {counted(len(asked), 'batch')}"
        texts += f" at {facts.target.identity.provider}" if facts.target else ""
        yield seen(texts=f"{texts}{f' ({done} done there)' * bool(done)}: {states}")
    elif facts.batches:
        yield seen(texts="a batch is being sent, stored or cleaned up", action="")


@finding(
    NOTE,
    "batch {batch} failed, the texts it did not bring were sent in {sent_in}: {error}",
    action="memline batch ls",
    subject="batch",
)
def batch_failed(facts: Facts) -> Iterator[Seen]:
    yield from met(facts.troubles, "batch_failed")


@finding(
    NOTE,
    "the cache of vectors is full: {cached} of {most} are kept",
    action="raise memorySearch.cache.maxEntries, if texts come back that were embedded before",
)
def cache_full(facts: Facts) -> Iterator[Seen]:
    cache = facts.settings.memory.cache
    # Counted where a status is: an answer is not worth the count.
    if facts.plan is None or facts.index is None or not cache.enabled:
        return
    cached = vectors.count_cached(facts.index)
    if cached and cached >= cache.max_entries:
        yield seen(cached=f"{cached:,}", most=f"{cache.max_entries:,}")
