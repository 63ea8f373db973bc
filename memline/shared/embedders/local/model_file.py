"""Hold what is known of a model before it is loaded: its file, its family, the library that runs it.

Nothing here imports such a library: a search comes here to learn which model is meant.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from memline.shared import packages
from memline.shared.errors import ProviderStop
from memline.shared.providers import load

#: Bytes of each end of a file, and of samples between them, that go into its digest. Whole files are 25 MB to
#: several GB, and a search looks every time: this takes 2 ms. Names, sizes and quantisation of a model are at
#: the beginning, and samples all over the weights tell a model from one that was trained further.
END_BYTES = 256 * 1024
SAMPLES = 8
SAMPLE_BYTES = 32 * 1024

#: Ways to make one vector of those of all tokens: their mean, that of the first one, that of the last one.
MEAN, FIRST, LAST = 1, 2, 3

#: A key of a GGUF file that says what the model is, the type of its value (text), and the length of it. They
#: are the first keys of a file.
_GGUF_NAME = re.compile(rb"general\.(?:architecture|name|basename)\x08\0\0\0(.{8})", re.DOTALL)

#: What `local.modelPath` may be.
EXAMPLES = "a GGUF or ONNX file, or hf:owner/repo/file.gguf, or hf:owner/repo/file.onnx"


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """What models of one family were trained with."""

    #: Found in architecture, own name and file name together.
    pattern: str
    #: The words before a text and before a question.
    document: str = ""
    query: str = ""
    #: Tokens of a text at most, where a model takes more than it has learnt to read; 0: as many as it takes.
    window_tokens: int = 0


#: By name, the first that fits. It is the scheme of an identity: other prompts and windows, other vectors.
#: bge (1.5 and later) works without a prompt and its makers say so. MiniLM has 512 positions and was trained
#: on 256: it finds .886 of what is asked of long conversations, .879 with 512, .884 with 128 (recall at six).
FAMILIES = msgspec.json.decode(Path(__file__).with_name("families.json").read_bytes(), type=dict[str, Family])


class ModelFile(msgspec.Struct, frozen=True, kw_only=True):
    """What tells one model from another, read from parts of its files."""

    path: Path
    #: What it is called in the identity of its vectors.
    name: str
    #: SHA-256 (first 32 hex digits) of the size, both ends and samples of its files.
    digest: str
    #: A key of FAMILIES; empty for a model of none of them.
    family: str


def sampled(path: Path, *others: Path) -> tuple[str, bytes]:
    """Return the digest of a model's files, as in ModelFile, and the beginning of the first.

    Raises ProviderStop when one cannot be read.
    """
    digest = sha256(b"")
    beginnings = []
    for each in (path, *others):
        try:
            if not stat.S_ISREG(each.stat().st_mode):
                # A pipe would never be read to its end.
                raise OSError("it is not a regular file")
            with each.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                beginnings.append(file.read(END_BYTES))
                digest.update(b"%d\n" % size + beginnings[-1])
                for number in range(1, SAMPLES + 1):
                    file.seek(size * number // (SAMPLES + 1))
                    digest.update(file.read(SAMPLE_BYTES))
                file.seek(max(size - END_BYTES, 0))
                digest.update(file.read(END_BYTES))
        except OSError as error:
            raise unreadable(each, error) from None
    return digest.hexdigest()[:32], beginnings[0]


def family_of(names: Iterable[str]) -> str:
    """Return the key of FAMILIES of a model by what it is called."""
    words = re.sub(r"[\s_.]+", "-", " ".join(names).lower())
    return next(name for name, family in FAMILIES.items() if re.search(family.pattern, words))


def unreadable(path: Path, error: Exception) -> ProviderStop:
    """Return the error of a file that cannot be read."""
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return ProviderStop(
        f"the model file {path} cannot be read: {reason}",
        hint=f"check memorySearch.local.modelPath: {EXAMPLES}",
    )


def check_content(path: Path, beginning: bytes, kind: str, *, is_it: bool) -> None:
    """Raise ProviderStop, with what the file is instead, unless `is_it`."""
    if is_it:
        return
    is_page = beginning.lstrip()[:1] == b"<"
    what = "is empty" if not beginning else "is a web page" if is_page else f"is not {kind} file"
    raise ProviderStop(f"the model file {path} {what}", hint=GET_ANOTHER)


GET_ANOTHER = "download the model again, or set memorySearch.local.modelPath to another embedding model"


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """A library that runs models in this process."""

    #: The format of its models, and how their files end.
    kind: str
    suffix: str
    #: What is installed, in pip's words, and the modules that are there then.
    requirements: tuple[str, ...]
    modules: tuple[str, ...]
    #: The name on the hub of a small model to begin with, all-MiniLM-L6-v2 (Apache-2.0, about 25 MB).
    small_model: str
    #: `read_head(path, title)` of its model files, and the class of loaded models; see `providers.load`.
    head: str
    model: str

    @property
    def is_installed(self) -> bool:
        return not packages.missing(self.modules)

    def install(self, *options: str) -> str:
        """Return the command that installs it here; `options` are pip's."""
        return packages.install_command(*self.requirements, options=options)

    def not_usable(self, error: Exception | None = None) -> ProviderStop:
        """Return the error of an engine that is not there, or whose import failed with `error`."""
        names = " and ".join(package.partition(">")[0] for package in self.requirements)
        if error is not None and self.is_installed:
            hint = self.install("--force-reinstall", "--no-cache-dir")
            return ProviderStop(f"{names} cannot be loaded: {error}", hint=hint, code="engine_missing")
        text = f"{self.kind} models need {names}, not installed here"
        return ProviderStop(text, hint=self.install(), code="engine_missing")

    def read_head(self, path: Path, title: str = "") -> ModelFile:
        """Read the head of one of its models; `title`: what the hub calls it. Raises ProviderStop."""
        if not self.is_installed:
            raise self.not_usable()
        head: ModelFile = load(self.head)(path, title)
        return head

    def load_model(self, path: Path, *, threads: int) -> Any:
        """Load a model, an `EmbeddingModel`. Raises ProviderStop."""
        return load(self.model)(path, threads=threads)


def read_gguf_head(path: Path, title: str = "") -> ModelFile:
    """Read the head of a GGUF file. Raises ProviderStop when it is not one or cannot be read.

    `title` is not looked at: the file says what it is.
    """
    digest, beginning = sampled(path)
    check_content(path, beginning, "a GGUF", is_it=beginning.startswith(b"GGUF"))
    ends = [(match.end(), int.from_bytes(match[1], "little")) for match in _GGUF_NAME.finditer(beginning)]
    names = [beginning[at : at + length].decode("utf-8", "replace") for at, length in ends]
    family = family_of([*names, path.name])
    return ModelFile(path=path, name=path.name, digest=digest, family=family)


LLAMA = Engine(
    kind="GGUF",
    suffix=".gguf",
    requirements=("llama-cpp-python>=0.3.36",),
    modules=("llama_cpp",),
    small_model="hf:second-state/All-MiniLM-L6-v2-Embedding-GGUF/all-MiniLM-L6-v2-Q8_0.gguf",
    head="memline.shared.embedders.local.model_file.read_gguf_head",
    model="memline.shared.embedders.local.llama.LlamaModel",
)

#: The file in 8 bits for this machine: that for AVX2 is right on every x86, its sums overflow on none.
_QUANTIZED = "qint8_arm64" if os.uname().machine in ("arm64", "aarch64") else "quint8_avx2"

ONNX = Engine(
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
