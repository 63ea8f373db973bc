"""Embed with a model in this process, whichever engine runs it.

One model a file and process, one text a pass: a question waits for one text alone, and passes over several
texts at a time were slower on a CPU (by 14 to 40 %, measured with onnxruntime).
"""

from __future__ import annotations

import ctypes
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from weakref import WeakValueDictionary

import numpy as np

from memline.shared.embedders import token_vectors
from memline.shared.embedders.endpoint import Endpoint
from memline.shared.embedders.local.model_file import FAMILIES, FIRST, LAST, engine_of
from memline.shared.embedders.protocol import FLOAT_BYTES, Embedder, Identity, LateVector, unit_vector
from memline.shared.errors import ProviderRefused, ProviderStop

Floats = np.ndarray[Any, np.dtype[np.float32]]

#: Tokens of a window at most. Models with 32,768 positions would take gigabytes for a context of their own
#: size, and a chunk has 400.
MAX_WINDOW_TOKENS = 2048


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
        if identity.scheme not in FAMILIES:
            raise ProviderStop(
                f"vectors were made for a family of models that is not known: {identity.scheme}",
                hint="memline index",
            )
        self.identity = identity
        self._family = FAMILIES[identity.scheme]
        self._vector_dims = vector_dims
        self._path = Path(unquote(urlsplit(endpoint.base_url).path))
        self._model: EmbeddingModel | None = None

    def embed_documents(self, texts: Sequence[str]) -> list[bytes]:
        if not texts:
            return []
        model, family = self._loaded(), self._family
        made = (model.embed(family.document, text, window_tokens=family.window_tokens) for text in texts)
        return [self._fitted(each) for each in made]

    def embed_query(self, text: str, *, timeout_s: float) -> bytes:
        """Do as the protocol says; `timeout_s` is not needed: the model is busy with one text at most."""
        family = self._family
        return self._fitted(self._loaded().embed(family.query, text, window_tokens=family.window_tokens))

    def close(self) -> None:
        self._model = None

    def _loaded(self) -> EmbeddingModel:
        if self._model is None or self._model.pid != os.getpid():
            model = shared_model(self._path, self.identity.endpoint)
            self._model = model
        return self._model

    def _fitted(self, made: LateVector) -> LateVector:
        """Cut the vector to the dimensions that were asked for: the first ones, of unit length again."""
        size = self.identity.dims * FLOAT_BYTES or len(made)
        if size > len(made):
            raise ProviderStop(
                f"the model {self.identity.model} has {len(made) // FLOAT_BYTES} dimensions, not "
                f"{self.identity.dims}",
                hint="remove memorySearch.outputDimensionality",
            )
        return LateVector(unit_vector(bytes(made[:size]), dims=self._vector_dims or None), made.tokens)


class EmbeddingModel(ABC):
    """A loaded model, freed with its last reference. Any thread may call it; one at a time is served."""

    #: Tokens that one pass takes.
    window_tokens: int
    #: Dimensions of the vector of a text.
    dims: int

    def __init__(self) -> None:
        #: The process that loaded it, and that alone may use and free it.
        self.pid = os.getpid()
        self._waiting, self._running = threading.Lock(), threading.Lock()

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Wait for the model. The next caller holds `_waiting`, so a question waits for one text alone."""
        with self._waiting:
            self._running.acquire()
        try:
            yield
        finally:
            self._running.release()

    @abstractmethod
    def tokenize(self, text: str, *, add_special: bool) -> tuple[list[int], list[int]]:
        """Return the tokens and the character of `text` at which each begins; -1: it stands for none.

        `add_special`: with the tokens that the model wants at the beginning and the end. Names of special
        tokens in a text are text like any other.
        """

    @abstractmethod
    def run(self, tokens: Sequence[int]) -> tuple[Floats, Floats]:
        """Return the vectors of all tokens (n x dims), and the one of the text they are."""

    def embed(self, prompt: str, text: str, *, window_tokens: int = 0) -> LateVector:
        """Return the vector of prompt and text, of unit length; a longer text is the mean of its windows.

        `window_tokens`: how long a window is at most; 0: as many tokens as the model takes.
        """
        # No engine takes anything but valid UTF-8; a lone surrogate becomes "?".
        text = text.encode("utf-8", "replace").decode()
        with self._exclusive():
            tokens, places = self.tokenize(prompt + text, add_special=True)
            if not tokens:
                raise ProviderRefused("the text has no token for this model")
            most = min(window_tokens or self.window_tokens, self.window_tokens)
            if len(tokens) <= most:
                rows, of_text = self.run(tokens)
                vector = unit_vector(of_text.tobytes(), dims=self.dims)
                places = [place - len(prompt) if place >= len(prompt) else -1 for place in places]
            else:
                vector, rows, places = self._mean_of_windows(prompt, text, most)
        kept = token_vectors.content_tokens(text, places)
        return LateVector(vector, token_vectors.pack([places[index] for index in kept], rows[kept]))

    def _mean_of_windows(self, prompt: str, text: str, most: int) -> tuple[bytes, Floats, list[int]]:
        """Embed windows of equal size, each with the prompt, weighted by their tokens: nothing is lost.

        Returns the vector, and those of the tokens of `text` with their places.
        """
        body, places = self.tokenize(text, add_special=False)
        # The tokens that the model wants before and after a text.
        inner, whole = (self.tokenize("a", add_special=special)[0] for special in (False, True))
        starts = range(len(whole) - len(inner) + 1)
        at = next((at for at in starts if whole[at : at + len(inner)] == inner), None)
        before, after = ([], []) if at is None else (whole[:at], whole[at + len(inner) :])
        before += self.tokenize(prompt, add_special=False)[0] if prompt else []
        room = max(most - len(before) - len(after), 1)
        windows = -(-len(body) // room)
        size = -(-len(body) // windows)
        total = [0.0] * self.dims
        of_tokens: list[Floats] = []
        for first in range(0, len(body), size):
            part = body[first : first + size]
            rows, of_window = self.run(before + part + after)
            vector = unit_vector(of_window.tobytes(), dims=self.dims)
            for at, number in enumerate(memoryview(vector).cast("f")):
                total[at] += len(part) * number
            of_tokens.append(rows[len(before) : len(before) + len(part)])
        return unit_vector(total, dims=self.dims), np.concatenate(of_tokens), places


def pooled(rows: Floats, pooling: int) -> Floats:
    """Make one vector of those of all tokens, as the model was trained: MEAN, FIRST or LAST."""
    of_text: Floats = rows[0] if pooling == FIRST else rows[-1] if pooling == LAST else rows.mean(0)
    return of_text


_loading = threading.Lock()
#: By file and digest.
_models: WeakValueDictionary[tuple[Path, str], EmbeddingModel] = WeakValueDictionary()
#: Half of the cores: threads that wait for each other spin, and on a machine that is busy elsewhere a second
#: thread on the second of two cores made a question 3 times slower at the median, 40 at the worst.
_threads = max((os.cpu_count() or 1) // 2, 1)


def _forget_parent() -> None:
    global _loading, _models, _threads
    for model in list(_models.values()):
        # Its threads did not survive the fork, and to free it is to wait for them for ever.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(model))
        # Nor do those of OpenMP, which a model loaded from now on would wait for.
        _threads = 1
    _loading, _models = threading.Lock(), WeakValueDictionary()


os.register_at_fork(after_in_child=_forget_parent)


def shared_model(path: Path, digest: str) -> EmbeddingModel:
    """Return this process's instance of a model, loaded now if it is not loaded yet. Raises ProviderStop."""
    with _loading:
        model = _models.get((path, digest))
        if model is None:
            engine = engine_of(path)
            if engine.read_head(path).digest != digest:
                raise ProviderStop(
                    f"the model file {path} has changed since it was chosen", hint="memline index"
                )
            model = _models[path, digest] = engine.load_model(path, threads=_threads)
        return model
