"""Run ONNX models: the only module that knows onnxruntime and tokenizers.

Measured with all-MiniLM-L6-v2: without the library's arena and memory patterns a process is 25 MB smaller and
no slower, since texts have all lengths.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from memline.shared.embedders.local.model import MAX_WINDOW_TOKENS, EmbeddingModel, Floats, pooled
from memline.shared.embedders.local.model_file import ONNX
from memline.shared.embedders.local.onnx_files import TOKENIZER, max_tokens, pooling_of, root_of
from memline.shared.errors import ProviderBrokenAnswer, ProviderStop
from memline.shared.words import counted

#: Severity of the library's messages that are shown: none, they come as errors as well.
_FATAL = 4

_IDS, _MASK, _KINDS, _POSITIONS = "input_ids", "attention_mask", "token_type_ids", "position_ids"

#: The output with one vector a text, where the export has one: pooled as the model was trained.
_OF_TEXT = "sentence_embedding"

_TAKE_ANOTHER = "set memorySearch.local.modelPath to an ONNX export of an embedding model"


class OnnxModel(EmbeddingModel):
    """An embedding model that onnxruntime runs."""

    def __init__(self, path: Path, *, threads: int) -> None:
        """Load the model. Raises ProviderStop when a file or the library is not what it should be."""
        super().__init__()
        runtime, tokenizers = _libraries()
        self._pooling, self.window_tokens = pooling_of(path), min(max_tokens(path), MAX_WINDOW_TOKENS)
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = _FATAL
        options.enable_cpu_mem_arena = options.enable_mem_pattern = False
        # Threads that wait for the next text would take a core until it comes.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(os.fspath(root_of(path) / TOKENIZER))
            providers = ["CPUExecutionProvider"]
            self._session = runtime.InferenceSession(os.fspath(path), options, providers=providers)
        except Exception as error:
            # Both libraries raise the plain class, or classes of their own without a common one.
            raise _not_loaded(path, error) from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        # Names of special tokens in a note are text like any other.
        self._tokenizer.encode_special_tokens = True
        #: Names of the inputs, and the type of their numbers.
        self._inputs = {
            each.name: np.int32 if each.type == "tensor(int32)" else np.int64
            for each in self._session.get_inputs()
        }
        axes = {each.name: len(each.shape) for each in self._session.get_outputs()}
        of_tokens = [name for name, count in axes.items() if count == 3][:1]
        if not of_tokens:
            raise ProviderStop(f"the model {path} gives no vectors of tokens", hint=_TAKE_ANOTHER)
        self._outputs = [*of_tokens, *([_OF_TEXT] if axes.get(_OF_TEXT) == 2 else ())]
        try:
            self.dims = len(self.run(self.tokenize("a", add_special=True)[0])[1])
        except ProviderBrokenAnswer as error:
            raise _not_loaded(path, error) from None

    def tokenize(self, text: str, *, add_special: bool) -> tuple[list[int], list[int]]:
        encoded = self._tokenizer.encode(text, add_special_tokens=add_special)
        spans = zip(encoded.offsets, encoded.special_tokens_mask, strict=True)
        return encoded.ids, [-1 if special else _first_letter(text, *span) for span, special in spans]

    def run(self, tokens: Sequence[int]) -> tuple[Floats, Floats]:
        count = len(tokens)
        values = {_IDS: tokens, _MASK: np.ones(count), _KINDS: np.zeros(count), _POSITIONS: np.arange(count)}
        # Without an input that is not known here the library fails, and says its name.
        known = values.keys() & self._inputs.keys()
        feeds = {name: np.array([values[name]], self._inputs[name]) for name in known}
        try:
            of_tokens, *of_text = self._session.run(self._outputs, feeds)
        except Exception as error:
            # Its classes have no common one either.
            raise ProviderBrokenAnswer(f"the local model failed: {_one_line(error)}") from None
        rows: Floats = of_tokens[0].astype(np.float32, copy=False)
        if rows.shape[0] != count:
            counts = f"{counted(rows.shape[0], 'vector')} for {counted(count, 'token')}"
            raise ProviderBrokenAnswer(f"the local model gave {counts}")
        return rows, of_text[0][0].astype(np.float32) if of_text else pooled(rows, self._pooling)


def _first_letter(text: str, begin: int, end: int) -> int:
    """Return where the word of a token begins: some tokenizers count the space before it in."""
    while begin < end and text[begin].isspace():
        begin += 1
    return begin


def _not_loaded(path: Path, error: Exception) -> ProviderStop:
    what = f"the model {path} cannot be loaded ({_one_line(error)})"
    hint = f"{ONNX.install('--upgrade')}, or set another memorySearch.local.modelPath"
    return ProviderStop(what, hint=hint)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


@cache
def _libraries() -> tuple[Any, Any]:
    """Import onnxruntime and tokenizers."""
    try:
        import onnxruntime
        import tokenizers
    except (ImportError, OSError, RuntimeError) as error:
        raise ONNX.not_usable(error) from None
    # Messages before there is a session, too.
    onnxruntime.set_default_logger_severity(_FATAL)
    return onnxruntime, tokenizers
