"""Start the command line: the console script."""

import gc
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

#: Commands that run until they are told to end: a SIGTERM is no failure of theirs at any time.
UNTIL_STOPPED = {"mcp", "serve", "watch", "worker", "up"}


def main() -> NoReturn:
    """Run the command line of this process and end it."""
    # OpenBLAS's threads spin while they wait for each other, and our products are small: of a first index of
    # 7,000 vectors they took 0.6 of 4.6 s of CPU. It is read when numpy is imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for name in ("stdin", "stdout", "stderr"):
        # One that was closed (`>&-`).
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "r+"))
    if UNTIL_STOPPED.intersection(sys.argv[1:]):
        signal.signal(signal.SIGTERM, _end)
    else:
        # Collections find nothing among what imports make, and took 3 ms of a search.
        gc.set_threshold(100_000)
    # Not before the signal has its handler.
    from memline.producers.cli import run

    status = run()
    # The interpreter's last collection would look through all that was imported.
    gc.freeze()
    sys.exit(status)


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    """End a process that is told to end before it has begun: it holds nothing yet.

    Not by an exception, which code that runs at that moment may catch or lose: of 240 workers that were told
    to end within their first second 6 went on for ever.
    """
    os._exit(0)
