"""The HTTP server of tests: the real one, in a thread, on a port that was free."""

from contextlib import contextmanager

from msgspec.structs import replace

from memline.producers.api.calls import Calls
from memline.producers.web.serving import Server


@contextmanager
def serving(settings, **options):
    """Serve these agents until the end of the block; gives the address."""
    serve = replace(settings.serve, port=0, **options)
    with Server(Calls(settings, tuple(settings.agents)), serve, on_note=lambda _: None) as server:
        yield server.url


def refused(response, status):
    """What an error says; every error has the same shape."""
    assert response.status_code == status, response.text
    body = response.json()
    assert set(body) == {"error", "hint"}
    return f"{body['error']} | {body['hint']}"
