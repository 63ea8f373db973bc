"""A GGUF model in this process: the only module that knows llama-cpp-python.

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
from pathlib import Path
from typing import Any

from shared.embedders.gguf import check_whole, read_head
from shared.embedders.vectors import FLOAT_BYTES, unit_vector
from shared.errors import ProviderBrokenAnswer, ProviderLater, ProviderRefused, ProviderStop

#: Tokens of a window at most. Models with 32,768 positions would take gigabytes for a context of their own
#: size, and a chunk has 400.
MAX_WINDOW_TOKENS = 2048

#: `llama_flash_attn_type` that demands flash attention: twice as fast on a CPU.
_FLASH_ATTENTION = 1

_ERROR_LEVEL = 4

#: What the library last complained about; it has no other way to say why a model does not load.
_complaints: deque[str] = deque(maxlen=4)


class LlamaModel:
    """One loaded model. Any thread may call it; they take turns, and none waits for more than one text."""

    def __init__(self, path: Path, *, threads: int) -> None:
        """Load the model. Raises ProviderStop when the file or the library is not what it should be."""
        check_whole(path)
        self._lib = _library()
        #: Whoever waits for the model holds the turn, so a question does not wait for a whole request.
        self._turn = threading.Lock()
        self._busy = threading.Lock()
        _complaints.clear()
        self._model = self._lib.llama_model_load_from_file(
            os.fsencode(path), self._lib.llama_model_default_params()
        )
        if not self._model:
            raise self._not_loaded(path)
        self._vocab = self._lib.llama_model_get_vocab(self._model)
        self.window_tokens = min(int(self._lib.llama_model_n_ctx_train(self._model)), MAX_WINDOW_TOKENS)
        self.dims = int(self._lib.llama_model_n_embd(self._model))
        self._context = self._lib.llama_init_from_model(self._model, self._context_params(threads))
        if not self._context:
            self._lib.llama_model_free(self._model)
            raise self._not_loaded(path)
        self._batch = self._new_batch()

    def embed(self, prompt: str, text: str, *, timeout_s: float = -1) -> bytes:
        """The vector of prompt and text, of unit length; a longer text is the mean of its windows.

        Raises ProviderLater when `timeout_s` (-1: none) is over before the model is free.
        """
        with self._my_turn(timeout_s):
            tokens = self._tokens(prompt + text, dressed=True)
            if not tokens:
                raise ProviderRefused("the text has no token for this model")
            if len(tokens) <= self.window_tokens:
                return unit_vector(self._decode(tokens), dims=self.dims)
            return self._mean_of_windows(prompt, text)

    def close(self) -> None:
        """Free the model, when nobody uses it any more."""
        with self._my_turn(-1):
            self._lib.llama_batch_free(self._batch)
            self._lib.llama_free(self._context)
            self._lib.llama_model_free(self._model)

    def count_tokens(self, text: str) -> int:
        """Tokens of a text, with those that the model puts around it."""
        with self._my_turn(-1):
            return len(self._tokens(text, dressed=True))

    @contextmanager
    def _my_turn(self, timeout_s: float) -> Iterator[None]:
        if not self._turn.acquire(timeout=timeout_s):
            raise ProviderLater(f"the local model was busy for {timeout_s:g} s")
        try:
            if not self._busy.acquire(timeout=timeout_s):
                raise ProviderLater(f"the local model was busy for {timeout_s:g} s")
        finally:
            self._turn.release()
        try:
            yield
        finally:
            self._busy.release()

    def _context_params(self, threads: int) -> Any:
        params = self._lib.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = self.window_tokens
        params.n_seq_max = 1
        params.n_threads = params.n_threads_batch = threads
        params.embeddings = True
        if hasattr(params, "flash_attn_type"):
            params.flash_attn_type = _FLASH_ATTENTION
        else:
            # llama-cpp-python before 0.3.17.
            params.flash_attn = True
        return params

    def _new_batch(self) -> Any:
        """A batch of one sequence; positions and marks never change, only tokens do."""
        batch = self._lib.llama_batch_init(self.window_tokens, 0, 1)
        for at in range(self.window_tokens):
            batch.pos[at] = at
            batch.n_seq_id[at] = 1
            batch.seq_id[at][0] = 0
            batch.logits[at] = 1
        return batch

    def _tokens(self, text: str, *, dressed: bool) -> list[int]:
        """`dressed`: with the tokens that the model wants at the beginning and the end."""
        # Anything but valid UTF-8 ends the process; a lone surrogate becomes "?".
        raw = text.encode("utf-8", "replace")
        room = len(raw) + 16
        while True:
            tokens = (ctypes.c_int32 * room)()
            # Names of special tokens in a note are text like any other.
            count = self._lib.llama_tokenize(self._vocab, raw, len(raw), tokens, room, dressed, False)
            if count >= 0:
                return list(tokens[:count])
            room = -count

    def _decode(self, tokens: Sequence[int]) -> bytes:
        count = len(tokens)
        ctypes.memmove(self._batch.token, (ctypes.c_int32 * count)(*tokens), 4 * count)
        self._batch.n_tokens = count
        memory = self._lib.llama_get_memory(self._context)
        if memory:
            self._lib.llama_memory_clear(memory, True)
        code = self._lib.llama_decode(self._context, self._batch)
        if code:
            raise ProviderBrokenAnswer(f"the local model failed with code {code} {_complaint()}".rstrip())
        values = self._lib.llama_get_embeddings_seq(self._context, 0)
        if not values:
            raise ProviderStop(
                "the local model gives no vectors for texts",
                hint="set memorySearch.local.modelPath to a GGUF embedding model",
            )
        return ctypes.string_at(values, FLOAT_BYTES * self.dims)

    def _mean_of_windows(self, prompt: str, text: str) -> bytes:
        """Windows of equal size, each with the prompt, weighted by their tokens: nothing is lost."""
        body = self._tokens(text, dressed=False)
        before, after = self._around()
        before += self._tokens(prompt, dressed=False) if prompt else []
        room = self.window_tokens - len(before) - len(after)
        windows = -(-len(body) // room)
        size = -(-len(body) // windows)
        total = [0.0] * self.dims
        for first in range(0, len(body), size):
            part = body[first : first + size]
            vector = unit_vector(self._decode(before + part + after), dims=self.dims)
            for at, number in enumerate(memoryview(vector).cast("f")):
                total[at] += len(part) * number
        return unit_vector(total, dims=self.dims)

    def _around(self) -> tuple[list[int], list[int]]:
        """The tokens that the model wants before and after a text."""
        inner = self._tokens("a", dressed=False)
        whole = self._tokens("a", dressed=True)
        for at in range(len(whole) - len(inner) + 1):
            if whole[at : at + len(inner)] == inner:
                return whole[:at], whole[at + len(inner) :]
        return [], []

    def _not_loaded(self, path: Path) -> ProviderStop:
        return ProviderStop(
            f"the model file {path} cannot be loaded {_complaint()}".rstrip(),
            hint="pip install --upgrade llama-cpp-python, or set memorySearch.local.modelPath anew",
        )


class _Shared:
    """The loaded models of this process, each with the number of those who use it."""

    def __init__(self, *, after_fork: bool = False) -> None:
        self.lock = threading.Lock()
        self.models: dict[tuple[Path, str], tuple[LlamaModel, int]] = {}
        #: Half of the cores: threads that wait for each other spin, and on a machine that is busy elsewhere a
        #: second thread on the second of two cores made a question 3 times slower at the median, 40 at the
        #: worst. After a fork one: the threads of OpenMP do not survive it, and waiting for them never ends.
        self.threads = 1 if after_fork else max((os.cpu_count() or 1) // 2, 1)


_shared = _Shared()


def _forget_parent() -> None:
    global _shared
    _shared = _Shared(after_fork=bool(_shared.models))


os.register_at_fork(after_in_child=_forget_parent)


class SharedModel:
    """A hold on the one instance of a model in this process; it is loaded when it is first used."""

    def __init__(self, path: Path, digest: str) -> None:
        self._key = (path, digest)
        self._held_in: _Shared | None = None

    def get(self) -> LlamaModel:
        """The model, loaded now if nobody did so before. Raises ProviderStop."""
        shared = _shared
        with shared.lock:
            model, users = shared.models.get(self._key, (None, 0))
            if model is None:
                path, digest = self._key
                if read_head(path).digest != digest:
                    raise ProviderStop(
                        f"the model file {path} has changed since it was chosen", hint="run: memline index"
                    )
                model = LlamaModel(path, threads=shared.threads)
            if self._held_in is not shared:
                self._held_in = shared
                users += 1
            shared.models[self._key] = (model, users)
            return model

    def release(self) -> None:
        """Let go of the model; the last one frees it."""
        shared, self._held_in = self._held_in, None
        if shared is None or shared is not _shared:
            # Not used, or loaded by the process that this one was forked from, who frees it.
            return
        with shared.lock:
            model, users = shared.models.pop(self._key)
            if users > 1:
                shared.models[self._key] = (model, users - 1)
            else:
                model.close()


def _complaint() -> str:
    return f"({'; '.join(_complaints)})" if _complaints else ""


def _library() -> Any:
    """llama-cpp-python with its output turned into `_complaints`."""
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
    llama_cpp.llama_log_set(_log_callback(llama_cpp), None)
    return llama_cpp


_kept_callbacks: list[Any] = []


def _log_callback(library: Any) -> Any:
    if not _kept_callbacks:

        def note(level: int, text: bytes, _: object) -> None:
            if level == _ERROR_LEVEL:
                _complaints.append(text.decode("utf-8", "replace").strip())

        # The library keeps the bare address; without a reference from here it would be freed.
        _kept_callbacks.append(library.llama_log_callback(note))
    return _kept_callbacks[0]
