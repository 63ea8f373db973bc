"""Hold what is known of a model before it is loaded: its file, what tells it from others, its family."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

import msgspec

from memline.shared.errors import ProviderStop

#: Bytes of each end of a file, and of samples between them, that go into its digest. Whole files are 25 MB to
#: several GB, and a search looks every time: this takes 2 ms. Names, sizes and quantisation of a model are at
#: the beginning, and samples all over the weights tell a model from one that was trained further.
END_BYTES = 256 * 1024
SAMPLES = 8
SAMPLE_BYTES = 32 * 1024

#: Ways to make one vector of those of all tokens: their mean, that of the first one, that of the last one.
MEAN, FIRST, LAST = 1, 2, 3

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
