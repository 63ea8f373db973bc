"""Run GGUF models: the only module that knows llama-cpp-python.

The library's functions are called directly. Its class `Llama` points stdout and stderr of the whole process
elsewhere while it loads, and cuts off what does not fit. Rules that were measured, each of them against an
abort or a hang: a batch never above a micro-batch (`n_ubatch == n_batch`), a context never above the model's
own, one text a decode, never an empty one, one caller at a time, nothing shared across a fork. A file that is
cut off or not a model is refused with an error since 0.3.36 (tried with 60 cuts and 250 damaged heads).
"""

from __future__ import annotations

import ctypes
import os
from collections import deque
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any
from weakref import finalize

import numpy as np

from memline.shared.embedders import token_vectors
from memline.shared.embedders.local.model import MAX_WINDOW_TOKENS, EmbeddingModel, Floats, pooled
from memline.shared.embedders.local.model_file import FIRST, LAST, LLAMA, MEAN
from memline.shared.embedders.protocol import FLOAT_BYTES
from memline.shared.errors import ProviderBrokenAnswer, ProviderStop

#: `llama_flash_attn_type` that demands flash attention: twice as fast on a CPU.
_FLASH_ATTENTION = 1

#: `llama_pooling_type` for the vectors of all tokens: the one of a text is pooled here.
_NO_POOLING = 0

_ERROR_LEVEL = 4

_TAKE_ANOTHER = (
    "set memorySearch.local.modelPath to a GGUF embedding model, such as embeddinggemma, nomic-embed-text or "
    "all-MiniLM-L6-v2"
)

#: The library's last errors; it has no other way to say why a model does not load.
_library_errors: deque[str] = deque(maxlen=4)


class LlamaModel(EmbeddingModel):
    """An embedding model that llama.cpp runs, freed with its last reference."""

    def __init__(self, path: Path, *, threads: int) -> None:
        """Load the model. Raises ProviderStop when the file or the library is not what it should be."""
        super().__init__()
        self._lib = lib = _library()
        _library_errors.clear()
        model = lib.llama_model_load_from_file(os.fsencode(path), lib.llama_model_default_params())
        if not model:
            raise _not_loaded(path)
        self._pooling = _pooling_of(lib, model)
        if self._pooling not in (MEAN, FIRST, LAST):
            lib.llama_model_free(model)
            raise ProviderStop(f"{path.name} is not an embedding model", hint=_TAKE_ANOTHER)
        self._vocab = lib.llama_model_get_vocab(model)
        self.window_tokens = min(int(lib.llama_model_n_ctx_train(model)), MAX_WINDOW_TOKENS)
        self.dims = int(lib.llama_model_n_embd(model))
        params = lib.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = self.window_tokens
        params.n_seq_max = 1
        params.n_threads = params.n_threads_batch = threads
        params.embeddings = True
        params.pooling_type = _NO_POOLING
        params.flash_attn_type = _FLASH_ATTENTION
        self._context = lib.llama_init_from_model(model, params)
        if not self._context:
            lib.llama_model_free(model)
            raise _not_loaded(path)
        # Of one sequence; positions and marks never change, only tokens do.
        self._batch = lib.llama_batch_init(self.window_tokens, 0, 1)
        for at in range(self.window_tokens):
            self._batch.pos[at] = at
            self._batch.n_seq_id[at] = 1
            self._batch.seq_id[at][0] = 0
            self._batch.logits[at] = 1
        freeing = finalize(self, _free, lib, self._batch, self._context, model)
        # At the end of the process its memory is gone anyway.
        freeing.atexit = False
        #: The characters of the tokens that were met.
        self._pieces: dict[int, str] = {}

    def tokenize(self, text: str, *, add_special: bool) -> tuple[list[int], list[int]]:
        raw = text.encode()
        room, count = len(raw) + 16, -1
        while count < 0:
            ids = (ctypes.c_int32 * room)()
            count = self._lib.llama_tokenize(self._vocab, raw, len(raw), ids, room, add_special, False)
            # Of too many tokens it says how many they are.
            room = -count
        tokens = list(ids[:count])
        return tokens, token_vectors.places_of(text, [self._piece(token) for token in tokens])

    def _piece(self, token: int) -> str:
        """Return the characters of a token; empty for one that stands for none, as those at the ends do."""
        if (piece := self._pieces.get(token)) is None:
            room = ctypes.create_string_buffer(256)
            length = self._lib.llama_token_to_piece(self._vocab, token, room, len(room), 0, False)
            piece = self._pieces[token] = room.raw[: max(length, 0)].decode("utf-8", "replace")
        return piece

    def run(self, tokens: Sequence[int]) -> tuple[Floats, Floats]:
        count = len(tokens)
        ctypes.memmove(self._batch.token, (ctypes.c_int32 * count)(*tokens), 4 * count)
        self._batch.n_tokens = count
        memory = self._lib.llama_get_memory(self._context)
        if memory:
            self._lib.llama_memory_clear(memory, True)
        code = self._lib.llama_decode(self._context, self._batch)
        if code:
            raise ProviderBrokenAnswer(f"the local model failed with code {code} {_last_errors()}".rstrip())
        values = self._lib.llama_get_embeddings(self._context)
        if not values:
            raise ProviderStop("the local model gives no vectors for texts", hint=_TAKE_ANOTHER)
        raw = ctypes.string_at(values, FLOAT_BYTES * self.dims * count)
        rows = np.frombuffer(raw, np.float32).reshape(count, self.dims)
        return rows, pooled(rows, self._pooling)


def _pooling_of(library: Any, model: Any) -> int:
    """Return how a model makes one vector of those of its tokens; 0: the file does not say, 4: a reranker."""
    found = ctypes.create_string_buffer(128)
    library.llama_model_meta_val_str(model, b"general.architecture", found, len(found))
    library.llama_model_meta_val_str(model, found.value + b".pooling_type", found, len(found))
    return int(found.value) if found.value.isdigit() else 0


def _not_loaded(path: Path) -> ProviderStop:
    return ProviderStop(
        f"the model file {path} cannot be loaded {_last_errors()}".rstrip(),
        hint=f"{LLAMA.install('--upgrade')}, or set another memorySearch.local.modelPath",
    )


def _free(library: Any, batch: Any, context: Any, model: Any) -> None:
    library.llama_batch_free(batch)
    library.llama_free(context)
    library.llama_model_free(model)


def _last_errors() -> str:
    return f"({'; '.join(_library_errors)})" if _library_errors else ""


_kept_callbacks: list[Any] = []


@cache
def _library() -> Any:
    """Import llama-cpp-python and turn its output into `_library_errors`."""
    try:
        import llama_cpp
    except (ImportError, OSError, RuntimeError) as error:
        raise LLAMA.not_usable(error) from None

    def note(level: int, text: bytes, _: object) -> None:
        if level == _ERROR_LEVEL:
            _library_errors.append(text.decode("utf-8", "replace").strip())

    # The library keeps the bare address; without a reference from here it would be freed.
    _kept_callbacks.append(llama_cpp.llama_log_callback(note))
    llama_cpp.llama_log_set(_kept_callbacks[-1], None)
    return llama_cpp
