"""How often one call may be tried: usually a few times within seconds, and once when each try counts.

A try that fails is a request like any other to a provider that counts them, and a probe that is sent three
times is no single probe. Whoever calls an embedder says so for its own thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

#: Tries of a call to a provider: trouble that is over in a moment is nobody's business.
USUAL = 3

_most: ContextVar[int] = ContextVar("most_tries", default=USUAL)


def most() -> int:
    """Tries that a call of this thread may take."""
    return _most.get()


@contextmanager
def at_most(tries: int) -> Iterator[None]:
    """Calls of this thread are tried no more often inside the block."""
    token = _most.set(min(tries, _most.get()))
    try:
        yield
    finally:
        _most.reset(token)
