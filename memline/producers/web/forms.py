"""Read the forms of the dashboard, and lead to the page that says what was done."""

from __future__ import annotations

import re
from urllib.parse import quote

from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from memline.producers.web import session
from memline.producers.web.rendering import ROOT
from memline.shared.errors import BadRequest

#: Of every answer. Same-origin, not no-referrer: with that, browsers send `Origin: null` with the forms of
#: the page itself.
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
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
    except (ValueError, ClientDisconnect) as error:
        words = "the body of the form is incomplete, or not UTF-8"
        raise BadRequest(words, hint="use the buttons of the page") from error


def lead_on(request: Request, target: str, words: str) -> Response:
    """Lead to a page of ours, which shows what was done."""
    response = RedirectResponse(own_page(target), 303, HEADERS)
    text = quote(words[:_DONE_CHARS])[:3_000]
    session.put_cookie(response, session.DONE_COOKIE, text, headers=request.headers, max_age_s=60)
    return response
