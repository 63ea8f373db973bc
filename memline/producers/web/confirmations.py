"""Say, before something that cannot be taken back is done, what is lost and what it costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from memline.producers.reports import batch_jobs, job_reports
from memline.producers.web.page import View
from memline.shared.providers import price_of
from memline.shared.words import counted, money


def words_before(call: str, view: View) -> list[str]:
    """Return sentences about what the form of a call would do now. Raises MemlineError when it could not."""
    return list(_WORDS.get(call, _nothing)(view))


def _cancel_job(view: View) -> Iterator[str]:
    named = job_reports.named(view.asker().agents, view.form.get("job", ""))
    job = job_reports.report(named, prices=view.site.settings.prices, now=time.time()).to_json()
    yield f"The job {job['id']} of {job['agentId']} ends for good: it cannot be resumed."
    files = job["files"]["total"] - job["files"]["done"]
    left = counted(job["texts"]["left"], "text", "are")
    yield (
        f"{counted(files, 'file', 'are')} not read and {left} not embedded. What is indexed stays; a later"
        " job takes up the rest."
    )
    spent, total = job["cost"]["soFar"], job["cost"]["expected"]
    if spent:
        rest = (
            f"; the rest, about {money(max(0.0, total - spent))}, is paid by who takes it up" if total else ""
        )
        yield f"{money(spent)} are spent and stay spent{rest}."


def _cancel_batch(view: View) -> Iterator[str]:
    job = batch_jobs.named(view.asker().agents, view.form.get("batch", ""))
    texts = counted(job.texts_left, "text", "are")
    kept = counted(job.batch.stored, "vector", "are")
    yield f"The batch ends for good. {kept} kept; {texts} sent in requests."
    public = not job.settings.memory.remote.base_url
    price = price_of(job.provider, job.model, public=public, own=job.settings.prices)
    if price and price.batch_per_million and job.cost is not None and job.batch.rows:
        share = job.cost * job.texts_left / job.batch.rows
        full = share * price.per_million / price.batch_per_million
        yield (
            f"Requests are at full price: about {money(full)} instead of {money(share)}. What the provider"
            " has finished by then is paid for as well."
        )
    else:
        yield "Requests are at full price, about twice that of a batch."


def _drain(view: View) -> Iterator[str]:
    name = view.form.get("worker", "")[:80]
    yield f"The worker {name} takes no more messages, finishes those in hand, and ends."
    yield "`memline fleet` starts it again; elsewhere the supervisor decides whether it comes back."


def _drop(view: View) -> Iterator[str]:
    shown = view.form.get("count", "")[:9]
    is_all = view.form.get("all") == "1" and shown.isascii() and shown.isdecimal()
    count = int(shown) if is_all else len(view.form.getlist("message"))
    yield f"{counted(count, 'message', 'are')} removed for good, with the error of each."
    yield "What they are about is in the rows and is sent again when it is due; nothing is paid for twice."


def _nothing(_view: View) -> Iterator[str]:
    yield "This cannot be taken back."


_WORDS: dict[str, Callable[[View], Iterator[str]]] = {
    "jobs cancel": _cancel_job,
    "batch cancel": _cancel_batch,
    "queue drain": _drain,
    "queue drop": _drop,
}
