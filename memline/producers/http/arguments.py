"""Read the arguments of a request: the query of a GET, the JSON body of a POST."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request

from memline.producers.calls.arguments import parse_texts
from memline.producers.calls.rows import Parameter
from memline.shared.errors import BadRequest


async def read_arguments(
    request: Request, parameters: Iterable[Parameter], *, example: str, is_body_needed: bool = True
) -> dict[str, Any]:
    """Return the arguments of a request, not checked yet. Raises BadRequest and HTTPException.

    `example`: a body that is allowed, for the hint of an error. `is_body_needed`: whether an empty body of a
    POST is an error.
    """
    texts: dict[str, str] = {}
    for name, text in request.query_params.multi_items():
        if name in texts:
            raise BadRequest(f"{name[:80]} is given twice", hint="give it once")
        texts[name] = text
    if request.method != "POST":
        return parse_texts(parameters, texts)
    if texts:
        raise BadRequest("a POST takes its parameters in the body alone", hint="send them as JSON")
    if not is_body_needed and not await request.body():
        return {}
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, "the body has to be JSON")
    hint = f"such as {example}"
    try:
        body = await request.json()
    except (ValueError, RecursionError) as error:
        raise BadRequest("the body is not valid JSON", hint=hint) from error
    if not isinstance(body, dict):
        raise BadRequest("the body is not a JSON object", hint=hint)
    return body
