"""The real models for tests of local embedding, files that look like models, and a place to download from."""

import hashlib
import json
import re
import struct
from array import array
from http.server import BaseHTTPRequestHandler
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from memline.shared.config.schema import AgentSettings, Local, MemorySearch
from memline.shared.embedders.choice import choose
from memline.shared.embedders.local.model import LocalEmbedder
from tests.support.http_stub import HttpStub, QuietHandler

#: Lies beside the repository; it is no part of it.
MODEL = Path(__file__).parents[3] / "shared/models/all-MiniLM-L6-v2-q8_0.gguf"

needs_llama = pytest.mark.skipif(not find_spec("llama_cpp"), reason="llama-cpp-python is not installed")
needs_model = pytest.mark.skipif(
    not (find_spec("llama_cpp") and MODEL.is_file()),
    reason="needs the extra `local` and the model ../shared/models/all-MiniLM-L6-v2-q8_0.gguf",
)

#: Tiny models are made for it; see `tests.support.onnx_model`.
needs_onnx = pytest.mark.skipif(
    not all(map(find_spec, ("onnxruntime", "tokenizers", "onnx"))), reason="needs the extras `onnx` and `dev`"
)

#: Texts, their tokens and their vectors, computed by a plain BERT in float64 with a tokenizer of its own. The
#: last text has three windows.
REFERENCES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "fixtures/minilm_vectors.json").read_text()
)

LONG = REFERENCES[-1]["text"]


def embedder_of(path: Path, **memory: Any) -> LocalEmbedder:
    """An embedder of a model file, as the settings `local.modelPath` and `memory` make it."""
    own = MemorySearch(provider="local", local=Local(model_path=str(path)), **memory)
    nowhere = Path("/nowhere")
    settings = AgentSettings(
        agent="main", workspace=nowhere, index_path=nowhere, state_dir=nowhere, home=nowhere, memory=own
    )
    embedder = choose(settings).build()
    assert isinstance(embedder, LocalEmbedder)
    return embedder


def cosine(one: bytes, other: Any) -> float:
    """The cosine of a unit vector as bytes with the numbers of another."""
    return sum(a * b for a, b in zip(array("f", one), other, strict=True))


_TEXT, _UINT32, _ARRAY = 8, 4, 9


def _packed(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def gguf(*, weights: int = 64, **keys: Any) -> bytes:
    """A GGUF file with one tensor of float32 numbers; `__` in the name of a key stands for a dot."""
    known = {"general__architecture": "bert", "bert__pooling_type": 1, **keys}
    out = struct.pack("<4sIQQ", b"GGUF", 3, 1, len(known))
    for key, found in known.items():
        out += _packed(key.replace("__", "."))
        if isinstance(found, str):
            out += struct.pack("<I", _TEXT) + _packed(found)
        elif isinstance(found, int):
            out += struct.pack("<II", _UINT32, found)
        else:
            out += struct.pack("<IIQ", _ARRAY, _TEXT, len(found)) + b"".join(map(_packed, found))
    out += _packed("token_embd.weight") + struct.pack("<IQIQ", 1, weights, 0, 0)
    return out + bytes(-len(out) % 32) + struct.pack("<f", 0.5) * weights


class Hub(HttpStub):
    """A server of model files that answers one after another as it is told; unlike a real one it can lie."""

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.files = {} if files is None else files
        #: What the next answers do: "cut" after half of the bytes, "503", "html", "403", "no-range".
        self.faults: list[str] = []
        #: SHA-256 that is announced in place of the true one.
        self.digest = ""
        #: (path, Range header) of every request.
        self.requests: list[tuple[str, str]] = []
        hub = self

        class Handler(QuietHandler):
            def do_GET(self) -> None:
                hub.answer(self)

        super().__init__(Handler)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        span = handler.headers.get("range", "")
        if handler.path.startswith("/storage"):
            return self._send(handler, self.files[handler.path.removeprefix("/storage")], span)
        self.requests.append((handler.path, span))
        if handler.path not in self.files:
            return self._plain(handler, 404, b"Entry not found")
        if self.faults and self.faults[0] in ("503", "403", "html"):
            fault = self.faults.pop(0)
            return self._plain(handler, 200 if fault == "html" else int(fault), b"<!doctype html><p>no")
        # As the real one: what the file is, and where its bytes are.
        content = self.files[handler.path]
        handler.send_response(302)
        handler.send_header("location", f"{self.url}/storage{handler.path}")
        handler.send_header("x-linked-etag", f'"{self.digest or hashlib.sha256(content).hexdigest()}"')
        handler.send_header("x-linked-size", str(len(content)))
        handler.send_header("content-length", "0")
        handler.end_headers()

    def _plain(self, handler: BaseHTTPRequestHandler, status: int, body: bytes) -> None:
        handler.send_response(status)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def _send(self, handler: BaseHTTPRequestHandler, content: bytes, span: str) -> None:
        fault = self.faults.pop(0) if self.faults else ""
        match = re.fullmatch(r"bytes=(\d+)-", span)
        first = int(match[1]) if match and fault != "no-range" else 0
        if match and first >= len(content):
            handler.send_response(416)
            handler.send_header("content-range", f"bytes */{len(content)}")
            handler.send_header("content-length", "0")
            handler.end_headers()
            return
        handler.send_response(206 if first else 200)
        if first:
            handler.send_header("content-range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        handler.send_header("content-length", str(len(content) - first))
        handler.end_headers()
        rest = content[first:]
        handler.wfile.write(rest[: len(rest) // 2] if fault == "cut" else rest)
        handler.close_connection = True
