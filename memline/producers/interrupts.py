"""Make Ctrl-C end a process in one line. Imports nothing that takes time: until then it is not guarded."""

from __future__ import annotations

import _thread
import os
import sys

# In C: `signal` itself imports enum, 3 ms in which a Ctrl-C would show a traceback.
from _signal import SIG_IGN, SIGINT, SIGTERM, signal  # type: ignore[import-not-found]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, TracebackType
    from typing import Any, NoReturn, Protocol

    class Unraisable(Protocol):
        """What Python passes to `sys.unraisablehook`."""

        exc_type: type[BaseException]
        exc_value: BaseException | None
        exc_traceback: TracebackType | None
        err_msg: str | None
        object: object


#: Exit status after Ctrl-C: 128 + SIGINT.
INTERRUPTED = 130

#: The same of the signal that came last.
_status = INTERRUPTED


def arm() -> None:
    """Make a SIGINT a KeyboardInterrupt.

    Also where it was ignored: a shell without job control starts background jobs so. It still means the end.
    """
    signal(SIGINT, _interrupt)
    sys.unraisablehook = _again_if_lost


def arm_term(handler: Any = None) -> Any:
    """Make a SIGTERM the same, once, for a command that has to put away what it holds.

    Return the handler before, to be given back here when the command went through.
    """
    return signal(SIGTERM, handler or _interrupt)


def exit_status() -> int:
    """Return the exit status of a process that was interrupted."""
    return _status


def disarm() -> None:
    """Ignore further signals: what is left is to end, and Python would only complain of them."""
    signal(SIGINT, SIG_IGN)


def _interrupt(number: int, _frame: FrameType | None) -> NoReturn:
    global _status
    _status = 128 + number
    if number == SIGTERM:
        # A supervisor that signals a process group reaches a process twice.
        signal(SIGTERM, SIG_IGN)
    raise KeyboardInterrupt


def caused(error: BaseException | None) -> bool:
    """Tell whether a Ctrl-C is behind an error: while a module is loaded, Python and libraries wrap it."""
    for _ in range(100):
        if error is None or isinstance(error, KeyboardInterrupt):
            break
        error = error.__cause__ or error.__context__
    return isinstance(error, KeyboardInterrupt)


def _again_if_lost(unraisable: Unraisable) -> None:
    """Send the signal again when it came where Python cannot raise: in a callback, or a destructor."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        _thread.interrupt_main()
        return
    sys.__unraisablehook__(unraisable)


def tell(words: str = "") -> None:
    """Say in one line what is kept; on a terminal `^C` stands on the line before."""
    words = words or "notes and index are whole"
    # Not through `sys.stderr`, which the interrupt may have met in the middle of a line.
    os.write(2, f"{os.linesep * os.isatty(2)}Interrupted: {words}.{os.linesep}".encode())
