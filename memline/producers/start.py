"""Start the command line, guarded against Ctrl-C from the first import on: the console script."""

from __future__ import annotations

import os
import sys

from memline.producers import interrupts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """Run the command line of this process and end it."""
    # OpenBLAS's threads spin while they wait for each other, and our products are small: of a first index of
    # 7,000 vectors they took 0.6 of 4.6 s of CPU. It is read when numpy is imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    status = interrupts.INTERRUPTED
    try:
        interrupts.arm()
        from memline.producers.cli import run_process

        status = run_process()
    except KeyboardInterrupt:
        interrupts.tell()
    except Exception as error:
        if not interrupts.caused(error):
            raise
        interrupts.tell()
    finally:
        interrupts.disarm()
    sys.exit(status)
