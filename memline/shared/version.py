"""Tell the version of this Memline."""

from __future__ import annotations

import os
import sys

_BEGIN, _END = "memline-", ".dist-info"


def own_version() -> str:
    """Return the version of the installed distribution; `0` when it runs from its sources.

    It is read from the name of the folder where `importlib.metadata`, whose import takes 18 ms, finds it.
    """
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            if name.startswith(_BEGIN) and name.endswith(_END):
                return name[len(_BEGIN) : -len(_END)]
    return "0"
