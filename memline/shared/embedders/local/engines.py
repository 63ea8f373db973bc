"""Hold the facts about the libraries that run local models: the files they take, the packages they are.

Nothing here imports one of them: a search comes here to learn which model is meant.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from memline.shared import packages
from memline.shared.embedders.local.model_file import ModelFile
from memline.shared.errors import ProviderStop
from memline.shared.providers import load
from memline.shared.version import version_of


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """A library that runs models in this process."""

    name: str
    #: The format of its models, and how their files end.
    kind: str
    suffix: str
    #: What is installed, in pip's words, and the modules that are there then.
    requirements: tuple[str, ...]
    modules: tuple[str, ...]
    #: What to know before installing it.
    note: str = ""
    #: The name on the hub of a small model to begin with, all-MiniLM-L6-v2 (Apache-2.0, about 25 MB).
    small_model: str
    #: `read_head(path)` of its model files, and the class of loaded models; see `shared.providers.load`.
    head: str
    model: str

    @property
    def is_installed(self) -> bool:
        return not packages.missing(self.modules)

    @property
    def version(self) -> str:
        """Name and version, for a reader; the name alone when it is not installed."""
        return f"{self.name} {version_of(self.requirements[0].partition('>')[0])}".rstrip()

    def install(self, *, upgrade: bool = False) -> str:
        """Return the command that installs it here, or its newest release."""
        return packages.install_command(*self.requirements, options=("--upgrade",) * upgrade)

    def not_installed(self) -> ProviderStop:
        """Return the error of a model whose engine is not there."""
        missing = " and ".join(package.partition(">")[0] for package in self.requirements)
        note = f" ({self.note})" if self.note else ""
        text = f"{self.kind} models need {missing}, not installed here"
        return ProviderStop(text, hint=self.install() + note, code="engine_missing")

    def not_loadable(self, error: Exception) -> ProviderStop:
        """Return the error of an engine that is there and cannot be imported."""
        options = ("--force-reinstall", "--no-cache-dir")
        hint = packages.install_command(*self.requirements, options=options)
        return ProviderStop(f"{self.name} cannot be loaded: {error}", hint=hint, code="engine_missing")

    def read_head(self, path: Path, title: str = "") -> ModelFile:
        """Read the head of one of its models; `title`: what the hub calls it. Raises ProviderStop."""
        head: ModelFile = load(self.head)(path, title)
        return head

    def load_model(self, path: Path, *, threads: int) -> Any:
        """Load a model, an `EmbeddingModel`. Raises ProviderStop."""
        return load(self.model)(path, threads=threads)


LLAMA = Engine(
    name="llama.cpp",
    kind="GGUF",
    suffix=".gguf",
    requirements=("llama-cpp-python>=0.3.17",),
    modules=("llama_cpp",),
    note="it compiles for some minutes",
    small_model="hf:second-state/All-MiniLM-L6-v2-Embedding-GGUF/all-MiniLM-L6-v2-Q8_0.gguf",
    head="memline.shared.embedders.local.gguf.read_head",
    model="memline.shared.embedders.local.llama.LlamaModel",
)

#: The file in 8 bits for this machine: that for AVX2 is right on every x86, its sums overflow on none.
_QUANTIZED = "qint8_arm64" if os.uname().machine in ("arm64", "aarch64") else "quint8_avx2"

ONNX = Engine(
    name="onnxruntime",
    kind="ONNX",
    suffix=".onnx",
    requirements=("onnxruntime>=1.20", "tokenizers>=0.21"),
    modules=("onnxruntime", "tokenizers"),
    small_model=f"hf:sentence-transformers/all-MiniLM-L6-v2/onnx/model_{_QUANTIZED}.onnx",
    head="memline.shared.embedders.local.onnx_files.read_head",
    model="memline.shared.embedders.local.onnx.OnnxModel",
)

#: The one that installs in seconds first.
ENGINES = (ONNX, LLAMA)


def engine_of(path: Path) -> Engine:
    """Return the engine of a model by its file; a folder is of ONNX, a file without a suffix GGUF."""
    return ONNX if path.suffix.lower() == ONNX.suffix or path.is_dir() else LLAMA
