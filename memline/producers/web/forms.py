"""Read the forms of the dashboard, say before what is lost, and lead to the page that says what was done."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from urllib.parse import quote

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from memline.producers.reports import batch_jobs, job_reports
from memline.producers.web import session
from memline.producers.web.page import View
from memline.producers.web.queues_page import words_before_drop
from memline.producers.web.rendering import ROOT
from memline.shared.errors import BadRequest
from memline.shared.providers import price_of
from memline.shared.words import counted, money

#: Of every answer. Same-origin, not no-referrer: with that, browsers send `Origin: null` with the forms of
#: the page itself.
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " worker-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}

#: Where a form may lead: a page of ours, so no other site and no other scheme.
_NEXT = re.compile(rf"{ROOT}/[\w./?=&%+~-]*", re.ASCII)

#: Characters of what an action said that are kept for the next page; a cookie holds 4,096 bytes.
_DONE_CHARS = 600


def own_page(target: str) -> str:
    """Return the page of ours that a form names; the overview for anything else."""
    return target if _NEXT.fullmatch(target) else ROOT + "/"


def address_here(request: Request) -> str:
    """Return the address of a page, with its query."""
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


async def read_form(request: Request) -> QueryParams:
    """Return the fields of a form. Raises BadRequest."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise BadRequest("the body is not that of a form", hint="use the buttons of the page")
    try:
        return QueryParams((await request.body()).decode())
    except ValueError as error:
        raise BadRequest("the body of the form is not UTF-8", hint="use the buttons of the page") from error


def lead_on(request: Request, target: str, words: str) -> Response:
    """Lead to a page of ours, which shows what was done."""
    response = RedirectResponse(own_page(target), 303, HEADERS)
    text = quote(words[:_DONE_CHARS])[:3_000]
    session.put_cookie(response, session.DONE_COOKIE, text, headers=request.headers, max_age_s=60)
    return response


def words_before(call: str, view: View) -> list[str]:
    """Return sentences about what the form of a call would do now. Raises MemlineError when it could not."""
    words = _WORDS.get(call)
    return list(words(view)) if words else ["This cannot be taken back."]


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


_WORDS: dict[str, Callable[[View], Iterator[str]]] = {
    "jobs cancel": _cancel_job,
    "batch cancel": _cancel_batch,
    "queue drain": _drain,
    "queue drop": words_before_drop,
}
