"""The stub server of the tests in a process of its own, with vectors that cost next to nothing.

    python -m benchmarks.provider [--latency-ms MS] [--dims N] pool|words|MODEL.gguf

prints its base URL and serves until it is ended. Of a pool, the checksum of a text picks its vector, so that
what is measured is the client; `words` are hashed, as in the tests; a model embeds each text once.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from benchmarks.bench import DIMS, unit_vectors
from benchmarks.children import ROOT, environment
from memline.shared.embedders.local.model import LocalEmbedder
from tests.support.embedding_server import EmbeddingServer, main
from tests.support.local_model import embedder_of

_POOL = 1_024


@contextmanager
def serving(vectors: str = "pool", *, latency_ms: float = 0, dims: int = DIMS) -> Iterator[str]:
    """Run the server while the block does, and give its base URL."""
    options = ("--latency-ms", str(latency_ms), "--dims", str(dims), vectors)
    command = [sys.executable, "-m", "benchmarks.provider", *options]
    with subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            yield child.stdout.readline().strip()
        finally:
            child.terminate()


def log_of(base_url: str, *, clear: bool = False) -> dict[str, Any]:
    """What the server has received since its log was last cleared; `clear`: this log is the end of it."""
    root = base_url.removesuffix("/v1")
    with urlopen(f"{root}/log") as answer:
        log: dict[str, Any] = json.loads(answer.read())
    if clear:
        body = json.dumps({"clear_log": True}).encode()
        urlopen(Request(f"{root}/control", body, {"Content-Type": "application/json"})).close()
    return log


class PoolServer(EmbeddingServer):
    """Answers with vectors from a pool."""

    def vector(self, text: str, dims: int) -> str:
        """The vector of a text in base64."""
        return _pool(dims)[zlib.crc32(text.encode()) % _POOL]


@cache
def _pool(dims: int) -> list[str]:
    return [base64.b64encode(vector).decode() for vector in unit_vectors(_POOL, dims=dims)]


class ModelServer(EmbeddingServer):
    """Answers with the vectors of a model in this process, one text at a time."""

    embedder: LocalEmbedder
    _embedding = threading.Lock()

    def vector(self, text: str, dims: int) -> str:
        """The vector of a text in base64."""
        with self._embedding:
            return self._vector(text)

    @cache  # noqa: B019  # There is one server in a process.
    def _vector(self, text: str) -> str:
        (vector,) = self.embedder.embed_documents([text])
        return base64.b64encode(vector).decode()


if __name__ == "__main__":
    vectors = sys.argv.pop()
    if vectors.endswith(".gguf"):
        ModelServer.embedder = embedder_of(Path(vectors))
        main(ModelServer)
    else:
        main({"pool": PoolServer, "words": EmbeddingServer}[vectors])
