"""Start the command line, guarded against Ctrl-C from the first import on: the console script."""

from __future__ import annotations

import sys

from memline.producers import interrupts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """Run the command line of this process and end it."""
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
