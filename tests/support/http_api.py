"""The HTTP server of tests: the real one, in a thread, on a port that was free."""

import threading
from contextlib import closing, contextmanager

from msgspec.structs import replace

from memline.producers.api.app import Api
from memline.producers.api.calls import Calls
from memline.producers.api.server import listen, run, url_of
from memline.producers.web.dashboard import Dashboard
from memline.shared.config.installation import Serve


@contextmanager
def serving(settings, **options):
    """Serve these agents until the end of the block; gives the address."""
    serve = replace(settings.serve or Serve(), port=0, **options)
    agents = tuple(settings.agents)
    stop = threading.Event()
    with closing(Calls(settings, agents)) as tools, listen(serve) as opened:
        api = Api(tools, serve, dashboard=Dashboard)
        thread = threading.Thread(target=run, args=(api.app, opened, stop))
        url = url_of(opened)
        thread.start()
        try:
            yield url
        finally:
            stop.set()
            thread.join()


def refused(response, status):
    """What an error says; every error has the same shape."""
    assert response.status_code == status, response.text
    body = response.json()
    assert set(body) == {"error", "hint"}
    return f"{body['error']} | {body['hint']}"
