"""An embedding server with a latency, in a process of its own: how busy a fleet keeps its embed workers.

    python -m benchmarks.fleet_provider LATENCY_MS DIMS     prints its base URL and serves until it is ended

Its answers are made in advance, one for each number of rows: what a request costs here is its transport.
"""

from __future__ import annotations

import base64
import sys
import time
from contextlib import AbstractContextManager
from functools import lru_cache

from benchmarks.provider import Handler, running, serve


def serving(*, latency_ms: float, dims: int) -> AbstractContextManager[str]:
    """The base URL of a server that runs while the block does."""
    return running("benchmarks.fleet_provider", latency_ms, dims)


class _Handler(Handler):
    latency_s = 0.0
    dims = 0

    def do_POST(self) -> None:
        began = time.monotonic()
        content = answer(len(self.texts()), self.dims)
        time.sleep(max(0.0, self.latency_s - (time.monotonic() - began)))
        self.answer(content)


@lru_cache(maxsize=512)
def answer(rows: int, dims: int) -> bytes:
    import numpy as np

    source = np.random.default_rng(rows)
    parts = []
    for index in range(rows):
        vector = source.standard_normal(dims).astype("<f4")
        unit = (vector / np.linalg.norm(vector)).astype("<f4")
        text = base64.b64encode(unit.tobytes()).decode()
        parts.append(f'{{"object":"embedding","index":{index},"embedding":"{text}"}}')
    return f'{{"object":"list","data":[{",".join(parts)}],"model":"bench"}}'.encode()


if __name__ == "__main__":
    _Handler.latency_s, _Handler.dims = float(sys.argv[1]) / 1000, int(sys.argv[2])
    serve(_Handler)
