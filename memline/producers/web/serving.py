"""Serve API, MCP and dashboard at one address, as a part of a process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress

from memline.producers.api.app import Api
from memline.producers.api.calls import Calls
from memline.producers.api.server import listen, require_token, run, url_of
from memline.producers.web.dashboard import Dashboard
from memline.shared.config.installation import Serve
from memline.shared.config.schema import AgentSettings
from memline.shared.errors import IndexFault, MemlineError
from memline.shared.index import meta
from memline.shared.index.driver import reading_if_any
from memline.shared.index_writer import IndexWriter
from memline.shared.liveness import Liveness

#: Seconds between two tries to have an address that is taken.
RETRY_S = 5.0


class Server:
    """The HTTP server in a thread: a part of a process (`producers.runs.parts`)."""

    def __init__(
        self,
        wanted: Serve,
        agents: Sequence[AgentSettings],
        make_calls: Callable[[], Calls],
        *,
        on_note: Callable[[str], None],
        is_alone: bool = True,
        liveness: Liveness | None = None,
    ) -> None:
        """With `is_alone` an address that is taken is an error; else a finding, and it is tried again."""
        self._wanted = wanted
        self._agents = agents
        self._make_calls = make_calls
        self._on_note = on_note
        self._is_alone = is_alone
        self._liveness = liveness or Liveness()

    def __enter__(self) -> Server:
        """Raise ConfigError where a token is needed and there is none, MemlineError for a taken address."""
        require_token(self._wanted)
        self._stop, self._stack = threading.Event(), ExitStack()
        self._thread: threading.Thread | None = None
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._stack.close()

    def tick(self) -> None:
        if self._thread is None and time.monotonic() >= self._retry_at:
            self._begin()
        if self._thread is not None and not self._thread.is_alive():
            raise MemlineError("the HTTP server ended by itself", hint="memline doctor")

    def _begin(self) -> None:
        self._retry_at = time.monotonic() + RETRY_S
        try:
            opened = self._stack.enter_context(listen(self._wanted))
        except MemlineError as error:
            if self._is_alone:
                raise
            error.hint = error.hint.replace("memline serve", "memline up --serve")
            self._show(error)
            return
        self._show(None)
        calls = self._stack.enter_context(closing(self._make_calls()))
        api = Api(calls, self._wanted, dashboard=Dashboard)
        self._on_note(f"memline: {url_of(opened)} (dashboard at /ui, MCP at /mcp)")
        args, kwargs = (api.app, opened, self._stop), {"liveness": self._liveness}
        self._thread = threading.Thread(target=run, args=args, kwargs=kwargs, name="serve", daemon=True)
        self._thread.start()

    def _show(self, fault: MemlineError | None) -> None:
        """Let `status` show why nothing is served, or that it is again."""
        entry = fault and {"error": fault.message, "action": fault.hint}
        for agent in self._agents:
            # Where the index cannot be used, that is what is shown.
            with suppress(IndexFault):
                with reading_if_any(agent.index_path) as reader:
                    is_known = reader is None or meta.get(reader, meta.SERVER_FAULT) == entry
                if not is_known:
                    with closing(IndexWriter.of(agent)) as writer, writer.transaction() as (connection, _):
                        meta.put(connection, meta.SERVER_FAULT, entry)
