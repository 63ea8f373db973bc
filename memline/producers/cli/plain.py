"""Run a command that only asks memory without click, whose import takes a third of the time of a search.

Its options are read from the table of calls, as click's are made from it. What is not plain (help, an unknown
option, a value that is not allowed or looks like an option) is left to click: it says what is wrong, and
nothing is accepted here that click refuses. A test gives the same lines to both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module

from memline.producers.calls.memory_calls import MEMORY_CALLS
from memline.producers.calls.rows import CLI, Parameter
from memline.producers.cli.command_list import COMMANDS, GLOBALS, PLAIN
from memline.producers.cli.invocation import Invocation, Misuse, echo
from memline.shared.errors import MemlineError
from memline.shared.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: In place of an exit status: click has to read the line.
LEFT = object()

_CALLS = {call.name: call for call in MEMORY_CALLS if call.name in PLAIN}
_GLOBALS = {f"--{name}": name for name, _, _ in GLOBALS}


@value
class Line:
    """A command line that was read: the command, the global options, and the arguments of its function."""

    name: str
    shared: dict[str, str]
    arguments: dict[str, Any]


def run(args: Sequence[str], invoked: Callable[[dict[str, str]], Invocation] = Invocation.of) -> object:
    """Run a plain command line and return its exit status; `LEFT` for one that is left to click.

    `invoked` makes the invocation of its global options.
    """
    line = parse(args)
    if line is None:
        return LEFT
    module, _, name = COMMANDS[line.name][0].partition(":")
    invocation = invoked(line.shared)
    try:
        return getattr(import_module(module), name)(invocation, **line.arguments)
    except Misuse:
        return LEFT
    except MemlineError as error:
        error.hint = invocation.as_typed(error.hint)
        raise


def parse(args: Sequence[str]) -> Line | None:
    """Read a command line; None when it is not plain."""
    try:
        return _parse([*reversed(args)])
    except (LookupError, ValueError):
        return None


def _parse(left: list[str]) -> Line:
    """Read a line, its words in reverse. Raises LookupError for an unknown one, ValueError for a bad one."""
    shared: dict[str, str] = {}
    while left[-1].startswith("-"):
        _take_global(*_split(left.pop()), left, shared)
    call = _CALLS[left.pop()]
    parameters = [each for each in call.parameters if CLI in each.faces]
    options = {
        name: each
        for each in parameters
        if each.as_option or not each.argument
        for name in (each.option, each.short)
    }
    absent: dict[str, Any] = {"boolean": False, "array": ()}
    found = {each.key: absent.get(each.kind) for each in parameters}
    found |= {"as_json": False} if call.has_json else {}
    words: list[str] = []
    while left:
        word = left.pop()
        if word == "--":
            words += reversed(left)
            break
        if not word.startswith("-"):
            words.append(word)
            continue
        name, attached = _split(word)
        if name in _GLOBALS:
            _take_global(name, attached, left, shared)
        elif name == "--json" and call.has_json and attached is None:
            found["as_json"] = True
        else:
            each = options[name]
            found[each.key] = _given(each, attached, left, found[each.key])
    for each in (each for each in parameters if each.argument):
        if words or each.argument == "required":
            word = _typed(each, words.pop(0))
            # An option that gives the same wins.
            found[each.key] = word if found[each.key] is None else found[each.key]
    if words:
        raise ValueError
    return Line(name=call.name, shared=shared, arguments=found)


def _split(word: str) -> tuple[str, str | None]:
    """Return the name of an option and the value that is attached to it: `--limit=3`, `-n3`."""
    if word.startswith("--"):
        name, mark, attached = word.partition("=")
        return name, attached if mark else None
    return word[:2], word[2:] or None


def _take_global(name: str, attached: str | None, left: list[str], shared: dict[str, str]) -> None:
    shared[_GLOBALS[name]] = _value(attached, left)


def _given(each: Parameter, attached: str | None, left: list[str], before: Any) -> Any:
    """Return the value of an option that is given, once more where it may be."""
    if each.kind == "boolean":
        if attached is not None:
            raise ValueError
        return True
    found = _typed(each, _value(attached, left))
    return (*before, found) if each.kind == "array" else found


def _value(attached: str | None, left: list[str]) -> str:
    found = left.pop() if attached is None else attached
    if not found.strip() or (attached is None and found.startswith("-")):
        raise ValueError
    return found


def _typed(each: Parameter, text: str) -> Any:
    """Return the value of a word by the parameter's type. Raises ValueError unless it is plainly one."""
    if not text or (each.allowed and text not in each.allowed):
        raise ValueError
    if each.kind not in ("integer", "number"):
        return text
    if text[0] not in "0123456789.":
        raise ValueError
    found = int(text) if each.kind == "integer" else float(text)
    low, high = each.minimum, each.maximum
    if (low is not None and found < low) or (high is not None and found > high):
        raise ValueError
    return found


def fail(message: str, hint: str, status: int) -> int:
    """Print an error and what to do, and return the exit status."""
    echo(f"Error: {message}", err=True)
    if hint:
        echo(f"Try: {hint}", err=True)
    return status
