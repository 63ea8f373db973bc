"""Embed with a GGUF model in this process: the only module that knows llama-cpp-python.

The library's functions are called directly. Its class `Llama` points stdout and stderr of the whole process
elsewhere while it loads, and cuts off what does not fit. Rules that were measured, each of them against an
abort or a hang: a batch never above a micro-batch (`n_ubatch == n_batch`), a context never above the model's
own, one text a decode, never an empty one, one caller at a time, nothing shared across a fork.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit
from weakref import WeakValueDictionary, finalize

from memline.shared.embedders.endpoint import Endpoint
from memline.shared.embedders.local.gguf import FIRST, LAST, PROMPTS, pooling_of, read_head
from memline.shared.embedders.protocol import Embedder, Identity, LateVector
from memline.shared.embedders.vectors import FLOAT_BYTES, unit_vector
from memline.shared.errors import ProviderBrokenAnswer, ProviderLater, ProviderRefused, ProviderStop

if TYPE_CHECKING:
    import numpy

    Floats = numpy.ndarray[Any, numpy.dtype[numpy.float32]]

#: Tokens of a window at most. Models with 32,768 positions would take gigabytes for a context of their own
#: size, and a chunk has 400.
MAX_WINDOW_TOKENS = 2048

#: `llama_flash_attn_type` that demands flash attention: twice as fast on a CPU.
_FLASH_ATTENTION = 1

#: `llama_pooling_type` for the vectors of all tokens.
_NO_POOLING = 0

_ERROR_LEVEL = 4

#: The library's last errors; it has no other way to say why a model does not load.
_library_errors: deque[str] = deque(maxlen=4)


class LocalEmbedder(Embedder):
    """One model file. Nothing is loaded before the first text; all embedders of a file share one model."""

    def __init__(
        self,
        *,
        identity: Identity,
        endpoint: Endpoint,
        timeout_s: float = 0,
        vector_dims: int = 0,
    ) -> None:
        """The address of `endpoint` is that of the model file. `timeout_s` is for providers with a network.

        `vector_dims`: what earlier vectors of this identity have; 0: there are none.
        """
        if identity.scheme not in PROMPTS:
            raise ProviderStop(
                f"vectors were made with prompts that are not known: {identity.scheme}",
                hint="run: memline index",
            )
        self.identity = identity
        self._prompts = PROMPTS[identity.scheme]
        self._vector_dims = vector_dims
        self._path = Path(unquote(urlsplit(endpoint.base_url).path))
        self._model: LlamaModel | None = None

    def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
        if not texts:
            return []
        model = self._loaded()
        return [self._fitted(model.embed(self._prompts.document, text)) for text in texts]

    def embed_query(self, text: str, *, timeout_s: float) -> bytes:
        return self._fitted(self._loaded().embed(self._prompts.query, text, timeout_s=timeout_s))

    def close(self) -> None:
        self._model = None

    def _loaded(self) -> LlamaModel:
        if self._model is None or self._model.pid != os.getpid():
            self._model = shared_model(self._path, self.identity.endpoint)
        return self._model

    def _fitted(self, made: LateVector) -> LateVector:
        """Cut the vector to the dimensions that were asked for: the first ones, of unit length again."""
        dims, vector = self.identity.dims, bytes(made)
        model_dims = len(vector) // FLOAT_BYTES
        if dims > model_dims:
            raise ProviderStop(
                f"the model {self.identity.model} has {model_dims} dimensions, not {dims}",
                hint="remove memorySearch.outputDimensionality",
            )
        if dims and dims < model_dims:
            vector = unit_vector(vector[: dims * FLOAT_BYTES], dims=dims)
        if self._vector_dims and len(vector) != self._vector_dims * FLOAT_BYTES:
            raise ProviderBrokenAnswer(
                f"a vector has {len(vector) // FLOAT_BYTES} dimensions; expected {self._vector_dims}",
                hint="run: memline index --re-embed",
            )
        return LateVector(vector, made.tokens)


class LlamaModel:
    """One loaded model, freed with its last reference. Any thread may call it; one at a time is served."""

    def __init__(self, path: Path, *, threads: int) -> None:
        """Load the model. Raises ProviderStop when the file or the library is not what it should be."""
        self._pooling = pooling_of(path)
        #: The process that loaded it, and that alone may use and free it.
        self.pid = os.getpid()
        self._lib = _library()
        self._waiting = threading.Lock()
        self._running = threading.Lock()
        _library_errors.clear()
        self._model = self._lib.llama_model_load_from_file(
            os.fsencode(path), self._lib.llama_model_default_params()
        )
        if not self._model:
            raise self._not_loaded(path)
        self._vocab = self._lib.llama_model_get_vocab(self._model)
        #: The characters of the tokens that were met.
        self._pieces: dict[int, str] = {}
        self.window_tokens = min(int(self._lib.llama_model_n_ctx_train(self._model)), MAX_WINDOW_TOKENS)
        self.dims = int(self._lib.llama_model_n_embd(self._model))
        params = self._lib.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = self.window_tokens
        params.n_seq_max = 1
        params.n_threads = params.n_threads_batch = threads
        params.embeddings = True
        # One vector a token; the one of the text is pooled here.
        params.pooling_type = _NO_POOLING
        params.flash_attn_type = _FLASH_ATTENTION
        self._context = self._lib.llama_init_from_model(self._model, params)
        if not self._context:
            self._lib.llama_model_free(self._model)
            raise self._not_loaded(path)
        # Of one sequence; positions and marks never change, only tokens do.
        self._batch = self._lib.llama_batch_init(self.window_tokens, 0, 1)
        for at in range(self.window_tokens):
            self._batch.pos[at] = at
            self._batch.n_seq_id[at] = 1
            self._batch.seq_id[at][0] = 0
            self._batch.logits[at] = 1
        freeing = finalize(self, _free, self._lib, self._batch, self._context, self._model, self.pid)
        # At the end of the process its memory is gone anyway.
        freeing.atexit = False

    def embed(self, prompt: str, text: str, *, timeout_s: float = -1) -> LateVector:
        """Return the vector of prompt and text, of unit length; a longer text is the mean of its windows.

        Raises ProviderLater when `timeout_s` (-1: none) is over before the model is free.
        """
        with self._exclusive(timeout_s):
            tokens = self._tokens(prompt + text, add_special=True)
            if not tokens:
                raise ProviderRefused("the text has no token for this model")
            if len(tokens) <= self.window_tokens:
                rows = self._decode(tokens)
                vector = unit_vector(self._pooled(rows), dims=self.dims)
            else:
                vector, rows, tokens = self._mean_of_windows(prompt, text)
                prompt = ""
            pieces = [self._piece(token) for token in tokens]
        return LateVector(vector, self._packed_tokens(prompt, text, pieces, rows))

    def _packed_tokens(self, prompt: str, text: str, pieces: Sequence[str], rows: Floats) -> bytes:
        from memline.shared.embedders import token_vectors

        places = token_vectors.places_of(prompt + text, pieces)
        places = [place - len(prompt) if place >= len(prompt) else -1 for place in places]
        kept = token_vectors.content_tokens(text, places)
        return token_vectors.pack([places[index] for index in kept], rows[kept])

    @contextmanager
    def _exclusive(self, timeout_s: float) -> Iterator[None]:
        """Wait for the model. The next caller holds `_waiting`, so a question waits for one text alone."""
        if not self._waiting.acquire(timeout=timeout_s):
            raise ProviderLater(f"the local model was busy for {timeout_s:g} s")
        try:
            if not self._running.acquire(timeout=timeout_s):
                raise ProviderLater(f"the local model was busy for {timeout_s:g} s")
        finally:
            self._waiting.release()
        try:
            yield
        finally:
            self._running.release()

    def _tokens(self, text: str, *, add_special: bool) -> list[int]:
        """Tokenize; `add_special`: with the tokens that the model wants at the beginning and the end."""
        # Anything but valid UTF-8 ends the process; a lone surrogate becomes "?".
        raw = text.encode("utf-8", "replace")
        room = len(raw) + 16
        while True:
            tokens = (ctypes.c_int32 * room)()
            # Names of special tokens in a note are text like any other.
            count = self._lib.llama_tokenize(self._vocab, raw, len(raw), tokens, room, add_special, False)
            if count >= 0:
                return list(tokens[:count])
            room = -count

    def _piece(self, token: int) -> str:
        """Return the characters of a token; empty for one that stands for none, as those at the ends do."""
        if (piece := self._pieces.get(token)) is None:
            room = ctypes.create_string_buffer(256)
            length = self._lib.llama_token_to_piece(self._vocab, token, room, len(room), 0, False)
            piece = self._pieces[token] = room.raw[: max(length, 0)].decode("utf-8", "replace")
        return piece

    def _decode(self, tokens: Sequence[int]) -> Floats:
        """Return the vectors of all tokens (n x dims)."""
        import numpy as np

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
            raise ProviderStop(
                "the local model gives no vectors for texts",
                hint="set memorySearch.local.modelPath to a GGUF embedding model",
            )
        raw = ctypes.string_at(values, FLOAT_BYTES * self.dims * count)
        return np.frombuffer(raw, np.float32).reshape(count, self.dims)

    def _pooled(self, rows: Floats) -> bytes:
        """Make one vector of those of all tokens, as the model was trained."""
        row = rows[0] if self._pooling == FIRST else rows[-1] if self._pooling == LAST else rows.mean(0)
        return bytes(row.tobytes())

    def _mean_of_windows(self, prompt: str, text: str) -> tuple[bytes, Floats, list[int]]:
        """Embed windows of equal size, each with the prompt, weighted by their tokens: nothing is lost.

        Returns the vector, and those of the tokens of `text` with the tokens.
        """
        import numpy as np

        body = self._tokens(text, add_special=False)
        # The tokens that the model wants before and after a text.
        inner, whole = (self._tokens("a", add_special=special) for special in (False, True))
        starts = range(len(whole) - len(inner) + 1)
        at = next((at for at in starts if whole[at : at + len(inner)] == inner), None)
        before, after = ([], []) if at is None else (whole[:at], whole[at + len(inner) :])
        before += self._tokens(prompt, add_special=False) if prompt else []
        room = self.window_tokens - len(before) - len(after)
        windows = -(-len(body) // room)
        size = -(-len(body) // windows)
        total = [0.0] * self.dims
        of_tokens: list[Floats] = []
        for first in range(0, len(body), size):
            part = body[first : first + size]
            rows = self._decode(before + part + after)
            vector = unit_vector(self._pooled(rows), dims=self.dims)
            for at, number in enumerate(memoryview(vector).cast("f")):
                total[at] += len(part) * number
            of_tokens.append(rows[len(before) : len(before) + len(part)])
        return unit_vector(total, dims=self.dims), np.concatenate(of_tokens), body

    def _not_loaded(self, path: Path) -> ProviderStop:
        return ProviderStop(
            f"the model file {path} cannot be loaded {_last_errors()}".rstrip(),
            hint="pip install --upgrade llama-cpp-python, or set memorySearch.local.modelPath anew",
        )


def _free(library: Any, batch: Any, context: Any, model: Any, pid: int) -> None:
    if pid == os.getpid():
        library.llama_batch_free(batch)
        library.llama_free(context)
        library.llama_model_free(model)


_loading = threading.Lock()
_models: WeakValueDictionary[tuple[Path, str], LlamaModel] = WeakValueDictionary()
#: Half of the cores: threads that wait for each other spin, and on a machine that is busy elsewhere a second
#: thread on the second of two cores made a question 3 times slower at the median, 40 at the worst.
_threads = max((os.cpu_count() or 1) // 2, 1)


def _forget_parent() -> None:
    global _loading, _models, _threads
    if _models:
        # The threads of OpenMP do not survive a fork, and waiting for them never ends.
        _threads = 1
    _loading, _models = threading.Lock(), WeakValueDictionary()


os.register_at_fork(after_in_child=_forget_parent)


def shared_model(path: Path, digest: str) -> LlamaModel:
    """Return this process's instance of a model, loaded now if it is not loaded yet. Raises ProviderStop."""
    with _loading:
        model = _models.get((path, digest))
        if model is None:
            if read_head(path).digest != digest:
                raise ProviderStop(
                    f"the model file {path} has changed since it was chosen", hint="run: memline index"
                )
            model = _models[path, digest] = LlamaModel(path, threads=_threads)
        return model


def _last_errors() -> str:
    return f"({'; '.join(_library_errors)})" if _library_errors else ""


_kept_callbacks: list[Any] = []


@cache
def _library() -> Any:
    """Import llama-cpp-python and turn its output into `_library_errors`."""
    try:
        import llama_cpp
    except ImportError:
        raise ProviderStop(
            "llama-cpp-python is not installed, and local models need it",
            hint="pip install 'memline[local]' (it compiles for some minutes)",
        ) from None
    except (OSError, RuntimeError) as error:
        raise ProviderStop(
            f"llama-cpp-python cannot be loaded: {error}",
            hint="pip install --force-reinstall --no-cache-dir 'memline[local]'",
        ) from None

    def note(level: int, text: bytes, _: object) -> None:
        if level == _ERROR_LEVEL:
            _library_errors.append(text.decode("utf-8", "replace").strip())

    # The library keeps the bare address; without a reference from here it would be freed.
    _kept_callbacks.append(llama_cpp.llama_log_callback(note))
    llama_cpp.llama_log_set(_kept_callbacks[-1], None)
    return llama_cpp
