"""An embedding server with a real model: `python -m benchmarks.model_server MODEL.gguf --dims 384`.

That of the tests, but for its vectors: a text is embedded once, whoever asks for it.
"""

from __future__ import annotations

import base64
import sys
import threading
from pathlib import Path
from typing import ClassVar

from memline.shared.embedders.local.model import LocalEmbedder
from tests.support.embedding_server import EmbeddingServer, main
from tests.support.local_model import embedder_of


class ModelServer(EmbeddingServer):
    """Answers with the vectors of a model in this process, one text at a time."""

    embedder: LocalEmbedder
    #: Text -> its vector in base64.
    _known: ClassVar[dict[str, str]] = {}
    _embedding = threading.Lock()

    def vector(self, text: str, dims: int) -> str:
        """The vector of a text in base64."""
        with self._embedding:
            if text not in self._known:
                (vector,) = self.embedder.embed_documents([text])
                self._known[text] = base64.b64encode(vector).decode()
            return self._known[text]


if __name__ == "__main__":
    ModelServer.embedder = embedder_of(Path(sys.argv.pop(1)))
    main(ModelServer)
