"""Regular expressions that are compiled at first use: 0.1 ms each for a process that does not get there."""

from __future__ import annotations

import re

__all__ = ["late"]

# Not from typing: mypy knows the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    late = re.compile
else:

    class late:
        """Stand for `re.compile(text, flags)`: each method of the pattern is kept once it was asked for."""

        def __init__(self, text, flags=0):
            self._made = text, flags

        def __getattr__(self, name):
            found = getattr(re.compile(*self._made), name)
            setattr(self, name, found)
            return found
