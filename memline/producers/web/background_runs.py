"""Index from the pages: a run goes on in a thread while its page is shown."""

from __future__ import annotations

import threading

from memline.producers.memory import Memory
from memline.shared.errors import BadRequest, MemlineError
from memline.shared.logs import Log


class Runs:
    """Index runs that were started from the pages: one an agent at a time, each in a thread.

    They end with the process: an index can be left at any moment, and the next run goes on.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Agent -> what its last run says.
        self._said: dict[str, str] = {}
        self._running: set[str] = set()

    def said(self, agent: str) -> str:
        return self._said.get(agent, "")

    def start(self, memory: Memory, *, force: bool = False, re_embed: bool = False) -> None:
        """Begin a run of the agent of `memory`. Raises BadRequest while one is running."""
        agent = memory.settings.agent
        with self._lock:
            if agent in self._running:
                raise BadRequest(f"{agent} is being indexed already", hint="wait for its end")
            self._running.add(agent)
            self._said[agent] = "Indexing now."
        args = (memory, force, re_embed)
        threading.Thread(target=self._run, args=args, name=f"index {agent}", daemon=True).start()

    def _run(self, memory: Memory, force: bool, re_embed: bool) -> None:
        agent = memory.settings.agent
        try:
            report = memory.index(force=force, re_embed=re_embed)
            said = f"Indexed in {report.seconds:.1f} s."
            if report.warning:
                said = f"{said} {report.warning}"
        except MemlineError as error:
            said = f"Failed: {error.message}"
        except Exception as error:  # The thread's end would say nothing to the user of the page.
            Log("web").exception("run.failed", agent=agent, kind=type(error).__name__)
            said = f"Failed: {type(error).__name__}, see the log of the server"
        with self._lock:
            self._running.discard(agent)
            self._said[agent] = said
