"""The status and the words of each kind of error."""

import json

import pytest

from memline.producers.api.calls import Overloaded
from memline.producers.api.responses import response_to
from memline.shared.errors import (
    AccessDenied,
    BadRequest,
    ConfigError,
    IndexMissing,
    MemlineError,
    PathNotAllowed,
    UnknownAgent,
)


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (BadRequest, 400),
        (UnknownAgent, 404),
        (AccessDenied, 403),
        (PathNotAllowed, 403),
        (IndexMissing, 503),
        (Overloaded, 503),
        (ConfigError, 409),
        (MemlineError, 409),
    ],
)
def test_each_kind_of_error_has_its_status(kind, status):
    response = response_to(kind("it failed", hint="do this"))

    assert response.status_code == status
    assert json.loads(bytes(response.body)) == {"error": "it failed", "hint": "do this"}
