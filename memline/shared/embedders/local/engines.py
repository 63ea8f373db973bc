"""Hold the facts about the libraries that run local models: the files they take, the packages they are.

Nothing here imports one of them: a search comes here to learn which model is meant.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from memline.shared import packages
from memline.shared.embedders.local.model_file import ModelFile
from memline.shared.errors import ProviderLater, ProviderStop
from memline.shared.providers import load
from memline.shared.version import version_of


class LoadedModel:
    """A loaded model, freed with its last reference. Any thread may call it; one at a time is served."""

    #: Tokens that one pass takes.
    window_tokens: int

    def __init__(self) -> None:
        #: The process that loaded it, and that alone may use and free it.
        self.pid = os.getpid()
        self._waiting = threading.Lock()
        self._running = threading.Lock()

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
    #: The name on the hub of a small model to begin with, and its megabytes: all-MiniLM-L6-v2, Apache-2.0.
    #: `{}` stands for the file that suits a processor.
    small_file: str
    small_mb: int
    #: `read_head(path)` of its model files, and the class of loaded models; see `shared.providers.load`.
    head: str
    model: str

    @property
    def is_installed(self) -> bool:
        return not packages.missing(self.modules)

    @property
    def small_model(self) -> str:
        """The name on the hub of the small model for this processor."""
        return self.small_file.format(quantized_for(os.uname().machine, _processor_flags()))

    @property
    def offer(self) -> str:
        """Say what the small model is, in a sentence for those who look at the download."""
        repository = "/".join(self.small_model.removeprefix("hf:").split("/")[:2])
        return (
            f"all-MiniLM-L6-v2 as {self.kind}: {self.small_mb} MB of huggingface.co/{repository}, "
            "Apache-2.0, trained on English. It runs on this machine: nothing of your notes leaves it."
        )

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
        return ProviderStop(
            f"{self.kind} models need {missing}, not installed here",
            hint=self.install() + f" ({self.note})" * bool(self.note),
        )

    def not_loadable(self, error: Exception) -> ProviderStop:
        """Return the error of an engine that is there and cannot be imported."""
        options = ("--force-reinstall", "--no-cache-dir")
        return ProviderStop(
            f"{self.name} cannot be loaded: {error}",
            hint=packages.install_command(*self.requirements, options=options),
        )

    def read_head(self, path: Path, title: str = "") -> ModelFile:
        """Read the head of one of its models; `title`: what the hub calls it. Raises ProviderStop."""
        head: ModelFile = load(self.head)(path, title)
        return head

    def load_model(self, path: Path, *, threads: int) -> LoadedModel:
        """Load a model. Raises ProviderStop."""
        model: LoadedModel = load(self.model)(path, threads=threads)
        return model


LLAMA = Engine(
    name="llama.cpp",
    kind="GGUF",
    suffix=".gguf",
    requirements=("llama-cpp-python>=0.3.17",),
    modules=("llama_cpp",),
    note="it compiles for some minutes",
    small_file="hf:second-state/All-MiniLM-L6-v2-Embedding-GGUF/all-MiniLM-L6-v2-Q8_0.gguf",
    small_mb=25,
    head="memline.shared.embedders.local.gguf.read_head",
    model="memline.shared.embedders.local.llama.LlamaModel",
)

ONNX = Engine(
    name="onnxruntime",
    kind="ONNX",
    suffix=".onnx",
    requirements=("onnxruntime>=1.20", "tokenizers>=0.21"),
    modules=("onnxruntime", "tokenizers"),
    small_file="hf:sentence-transformers/all-MiniLM-L6-v2/onnx/{}.onnx",
    small_mb=23,
    head="memline.shared.embedders.local.onnx_files.read_head",
    model="memline.shared.embedders.local.onnx.OnnxModel",
)

#: The one that installs in seconds first.
ENGINES = (ONNX, LLAMA)


#: The flag of a processor, and the file of weights in 8 bits that was made for it; the fastest first.
_QUANTIZED = {
    "avx512_vnni": "model_qint8_avx512_vnni",
    "avx_vnni": "model_qint8_avx512_vnni",
    "avx512bw": "model_qint8_avx512",
}


def quantized_for(machine: str, flags: frozenset[str]) -> str:
    """Return the file of a model that suits a processor, of those that sentence-transformers makes.

    The last, for AVX2, is right on every processor: its sums overflow on none.
    """
    if machine.lower() in ("arm64", "aarch64"):
        return "model_qint8_arm64"
    return next((name for flag, name in _QUANTIZED.items() if flag in flags), "model_quint8_avx2")


def _processor_flags() -> frozenset[str]:
    """Return what Linux says that the processor can do; empty elsewhere."""
    with suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("flags"):
                return frozenset(line.partition(":")[2].split())
    return frozenset()


def engine_of(path: Path) -> Engine:
    """Return the engine of a model by its file; a folder is of ONNX, a file without a suffix GGUF."""
    return ONNX if path.suffix.lower() == ONNX.suffix or path.is_dir() else LLAMA
