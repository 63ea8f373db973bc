"""The command `memline`: how a command line begins, and how it ends.

A command's module is imported only when that command runs, so that `memline search` never pays for what
`memline up` needs; click only when there is more to say than a plain command line needs.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys

# In C: `signal` itself imports enum, 3 ms.
from _signal import SIG_IGN, SIGTERM, signal  # type: ignore[import-not-found]
from collections.abc import Sequence

from memline.producers.cli import at_once, command_client
from memline.producers.cli.command_list import COMMANDS, PLAIN, UNTIL_STOPPED
from memline.producers.interrupts import disarm, exit_status, tell
from memline.shared.errors import MemlineError, not_utf_8

#: Objects that may be made before the collector looks for circles among them, for a command that ends soon.
_FEW_COLLECTIONS = 100_000

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn


def run(args: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status: 0 done, 1 failed, 2 usage."""
    try:
        status = _run(sys.argv[1:] if args is None else list(args))
        # What is still buffered meets a closed pipe here, not in the interpreter's shutdown.
        sys.stdout.flush()
    except KeyboardInterrupt as error:
        tell(str(error))
        return exit_status()
    except BrokenPipeError:
        # Send what is left in the buffers nowhere, or the interpreter would complain of it at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        return failed(error)
    return status if isinstance(status, int) else 0


def _run(args: list[str]) -> object:
    if at_once.answer(args):
        return 0
    if not PLAIN.isdisjoint(args) and at_once.COMPLETE not in os.environ:
        if (answered := command_client.ask(args)) is not None:
            return answered
        from memline.producers.cli import plain

        if (status := plain.run(args)) is not plain.LEFT:
            return status
    from memline.producers.cli.root import run_command

    return run_command(args)


def failed(error: Exception) -> int:
    """Print what went wrong, if it is known; a fault of ours is raised again."""
    from memline.producers.cli import plain

    if isinstance(error, MemlineError):
        return plain.fail(error.message, error.hint, error.exit_code)
    if isinstance(error, OSError):
        if isinstance(error, FileNotFoundError) and not error.filename and not _has_folder():
            named = os.environ.get("PWD", "")
            # That of a program which has gone elsewhere since is another folder.
            folder = f": {named}" if named and not os.path.exists(named) else ""
            hint = "cd to a folder that is there, and run it again"
            return plain.fail(f"the current folder was deleted{folder}", hint, 1)
        where = f": {error.filename}" if error.filename else ""
        return plain.fail(f"{error.strerror or error}{where}", "", 1)
    if isinstance(error, UnicodeEncodeError) and error.encoding.startswith("utf"):
        # The bytes of an argument, or of the name of a folder in a text.
        line = error.object[error.object.rfind("\n", 0, error.start) + 1 :].partition("\n")[0]
        refused = not_utf_8(line)
        return plain.fail(refused.message, refused.hint, refused.exit_code)
    raise error


def _has_folder() -> bool:
    """Tell whether the current folder is there: a name that is not absolute means nothing without it."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def run_process() -> int:
    """Run the command line of this process and return its exit status."""
    _open_standard_streams()
    name = next((argument for argument in sys.argv[1:] if argument in COMMANDS), "")
    if name in UNTIL_STOPPED:
        signal(SIGTERM, _end)
    elif "--watch" in sys.argv:
        signal(SIGTERM, _end_watching)
    if name == "mcp":
        # Its first answer takes a tenth more with collections of what imports make; it starts them itself.
        gc.disable()
    if name not in UNTIL_STOPPED:
        # Collections find nothing among what imports make, and took 3 ms of a search's 50; nor among the
        # files and vectors of a first index, of whose CPU they took 3 %.
        gc.set_threshold(_FEW_COLLECTIONS)
    if name not in PLAIN:
        return run()
    status = run()
    _leave(status)
    return status


def _open_standard_streams() -> None:
    """Open nothing in the place of a standard stream that was closed (`>&-`)."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _leave(status: int) -> None:
    """End the process, unless a thread is still at work; the interpreter's own tidying up takes 6 ms."""
    if "threading" in sys.modules and sys.modules["threading"].active_count() > 1:
        return
    disarm()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(status)


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    """End a process that is told to end before it has begun: it holds nothing yet.

    Not by an exception, which code that runs at that moment may catch or lose: of 240 workers that were told
    to end within their first second 6 went on for ever.
    """
    os._exit(0)


def _end_watching(_number: int, _frame: FrameType | None) -> NoReturn:
    """End what draws on a terminal, which has to be put in order."""
    signal(SIGTERM, SIG_IGN)
    sys.exit(0)
