"""A Ctrl-C while modules are loaded ends a command in one line, also where Python wraps it."""

import pytest

from tests.support import process

#: Loading the command line fails as the body of a class does that is interrupted in `__set_name__`.
FAILING = """
import builtins
load = builtins.__import__
def failing(name, *args):
    if name == 'memline.producers.cli':
        try:
            raise {cause}
        except BaseException as error:
            raise RuntimeError('wrapped') from error
    return load(name, *args)
builtins.__import__ = failing
"""


def test_an_interrupt_that_python_wraps_is_one_line() -> None:
    ran = process.memline("--help", before=FAILING.format(cause="KeyboardInterrupt"))

    assert (ran.status, ran.stdout) == (130, "")
    assert ran.stderr == "Interrupted: notes and index are whole.\n"


@pytest.mark.parametrize("cause", ["ValueError", "SystemExit"])
def test_any_other_error_is_shown(cause: str) -> None:
    ran = process.memline("--help", before=FAILING.format(cause=cause))

    assert ran.status == 1
    assert "RuntimeError: wrapped" in ran.stderr and "Interrupted" not in ran.stderr
