"""Listen, and serve API, MCP and dashboard at one address until the process is told to end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from memline.producers.api.app import Api
from memline.producers.api.calls import Calls
from memline.producers.api.server import listen, require_token, run, url_of
from memline.producers.web.dashboard import Dashboard
from memline.shared.config.installation import Serve
from memline.shared.liveness import Liveness


@contextmanager
def serving(wanted: Serve, stop: threading.Event) -> Iterator[tuple[str, Callable[[Calls, Liveness], None]]]:
    """Listen, and give the address and what serves API, MCP and dashboard there until `stop` is set.

    Raises ConfigError where a token is needed and there is none, or the address is not free.
    """
    require_token(wanted)
    with listen(wanted) as opened:

        def serve(calls: Calls, liveness: Liveness) -> None:
            default = calls.settings.default_agent
            api = Api(
                calls,
                wanted,
                dashboard=Dashboard,
                default_agent=default if default in calls.agents else calls.agents[0],
            )
            run(api.app, opened, stop, liveness=liveness)

        yield url_of(opened), serve
