"""Find what an index lacks, what is under way, and what failed for good."""

from __future__ import annotations

from collections.abc import Iterator

from memline.shared.finding import NOTE, WARNING, Finding, note, problem, warning
from memline.shared.findings.facts import Facts, sending
from memline.shared.index import jobs
from memline.shared.words import counted, span


def text_refused(facts: Facts) -> Iterator[Finding]:
    """Texts got no vector, and will get none."""
    if facts.failed_texts:
        _, reason, path = facts.failed_texts[0]
        count = facts.backlog.failed
        where = path or "a text that no file has any more"
        more = f" and {count - 1:,} more" if count > 1 else ""
        yield problem(
            "text_refused",
            f"{counted(count, 'text')} got no vector: {reason} ({where}{more})",
            f"change {path}, or leave it to keyword search" if path else "",
            path,
        )


def batch_blocked(facts: Facts) -> Iterator[Finding]:
    """A batch waits for the operator, or is tried again after an error."""
    for batch in facts.batches:
        if batch.error and (batch.is_unfinished or batch.state == "collecting"):
            is_blocked = bool(batch.action)
            state = "cannot be collected" if is_blocked else "is tried again"
            yield Finding(
                code="batch_blocked",
                level=WARNING if is_blocked else NOTE,
                what=f"batch {batch.token[:8]} {state}: {batch.error}",
                action=batch.action,
                subject=batch.token,
            )


def job_paused(facts: Facts) -> Iterator[Finding]:
    """A person paused a job."""
    for job in facts.jobs:
        left = facts.left.get(job.id)
        if job.state == jobs.PAUSED and left is not None:
            files, texts = counted(left.files, "file"), counted(left.texts, "text")
            yield Finding(
                code="job_paused",
                level=WARNING if left.files or left.texts else NOTE,
                what=f"job {job.token} is paused; {files} and {texts} are pending for it",
                action=f"memline jobs resume {job.token}",
                subject=job.token,
            )


def vectors_behind(facts: Facts) -> Iterator[Finding]:
    """Vectors are pending: nothing sends their texts, something does, or their job was cancelled."""
    if facts.backlog.cancelled:
        what = f"{counted(facts.backlog.cancelled, 'vector', 'were')} cancelled with their job"
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


def in_batch(facts: Facts) -> Iterator[Finding]:
    """Texts are at a provider's Batch API."""
    sent = [
        each for each in facts.batches if each.job_id and (each.is_unfinished or each.state == "collecting")
    ]
    if sent and facts.texts_in_batches:
        done = sum(batch.rows_done for batch in sent)
        states = ", ".join(f"{batch.job_id} {batch.provider_state}".strip() for batch in sent)
        what = f"{counted(facts.texts_in_batches, 'text', 'are')} in {counted(len(sent), 'batch')}"
        what += f" at {facts.target.identity.provider}" if facts.target else ""
        what += f" ({done:,} done there)" * bool(done)
        yield note("in_batch", f"{what}: {states}", "memline jobs")
    elif facts.batches:
        what = "a batch is being sent or stored"
        yield note("in_batch", what)
