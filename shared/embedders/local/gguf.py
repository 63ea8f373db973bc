"""Read what a GGUF file says of itself, and the prompts its family wants, without the library that runs it.

The library ends the whole process on some files that are not models or only half of one. So everything is
read here first, and what is wrong becomes a ProviderStop that says what to do.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import re
import stat
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from memline.shared.errors import ProviderStop
from memline.shared.values import value

MAGIC = b"GGUF"

#: Bytes of each end of a file, and of samples between them, that go into its digest. Whole files are 25 MB to
#: several GB, and a search looks every time: this takes 2 ms. Names, sizes and quantisation of a model are at
#: the beginning, and samples all over the weights tell a model from one that was trained further.
END_BYTES = 256 * 1024
SAMPLES = 8
SAMPLE_BYTES = 32 * 1024

#: Magic, version, number of tensors, number of keys.
_HEADER = struct.Struct("<4sIQQ")

_LENGTH = struct.Struct("<Q")

#: Errors of reading beyond the end.
_TOO_SHORT = (struct.error, IndexError)

#: Formats of plain values by their number in GGUF; 8 is text, 9 an array.
_FORMATS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9

#: Bytes and elements of a block of each tensor type that embedding models are made of; of others only the
#: beginning is known to be there.
_BLOCKS = {0: (4, 1), 1: (2, 1), 2: (18, 32), 3: (20, 32), 6: (22, 32), 7: (24, 32), 8: (34, 32)}
_BLOCKS |= {10: (84, 256), 11: (110, 256), 12: (144, 256), 13: (176, 256), 14: (210, 256), 30: (2, 1)}

#: `<architecture>.pooling_type` of models that make one vector of a text: mean, first token, last token.
MEAN, FIRST, LAST = 1, 2, 3
_RERANKER = 4

_GET_ANOTHER = "download the model again, or set memorySearch.local.modelPath to another GGUF embedding model"

Values = dict[str, object]

Content = bytes | mmap.mmap


@value
class Prompts:
    """The words before a text and before a question: a family's makers trained it with them."""

    #: Found in architecture, own name and file name together.
    pattern: str
    document: str = ""
    query: str = ""


#: By family, the first that fits. Its name is the scheme of an identity: other prompts, other vectors. MiniLM
#: has none; bge (1.5 and later) works without one and its makers say so.
PROMPTS: Mapping[str, Prompts] = {
    family: Prompts(**row)
    for family, row in json.loads((Path(__file__).parent / "prompts.json").read_text("utf-8")).items()
}


@value
class ModelFile:
    """What tells one model file from another, read from parts of it."""

    path: Path
    #: SHA-256 (first 32 hex digits) of the size, both ends and samples of the file.
    digest: str
    #: A key of PROMPTS; empty for a model that takes texts as they are.
    prompt_family: str


def read_head(path: Path) -> ModelFile:
    """Read the head of a model file. Raises ProviderStop when it is not one or cannot be read."""
    import hashlib

    try:
        if not stat.S_ISREG(path.stat().st_mode):
            # A pipe would never be read to its end.
            raise OSError("it is not a regular file")
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            first = file.read(END_BYTES)
            digest = hashlib.sha256(b"%d\n" % size + first)
            for number in range(1, SAMPLES + 1):
                file.seek(size * number // (SAMPLES + 1))
                digest.update(file.read(SAMPLE_BYTES))
            file.seek(max(size - END_BYTES, 0))
            digest.update(file.read(END_BYTES))
    except OSError as error:
        raise _unreadable(path, error) from None
    _check_magic(path, first)
    keys: Values = {}
    # The vocabulary is longer than what was read; the names come before it.
    with suppress(*_TOO_SHORT):
        _read_keys(first, keys)
    names = (str(keys.get(f"general.{key}", "")) for key in ("architecture", "name", "basename"))
    words = re.sub(r"[\s_.]+", "-", " ".join([*names, path.name]).lower())
    family = next(family for family, prompts in PROMPTS.items() if re.search(prompts.pattern, words))
    return ModelFile(path=path, digest=digest.hexdigest()[:32], prompt_family=family)


def pooling_of(path: Path) -> int:
    """Return how a model makes one vector of those of its tokens: MEAN, FIRST or LAST.

    Raises ProviderStop unless the file is complete and its model makes one at all.
    """
    try:
        with path.open("rb") as file:
            _check_magic(path, file.read(_HEADER.size))
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                keys: Values = {}
                needed = _needed_bytes(content, keys)
                size = len(content)
    except _TOO_SHORT:
        raise ProviderStop(f"the model file {path} ends too early", hint=_GET_ANOTHER) from None
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    if size < needed:
        text = f"the model file {path} ends too early: {size} bytes of {needed}"
        raise ProviderStop(text, hint=_GET_ANOTHER)
    pooling = keys.get(f"{keys.get('general.architecture', '')}.pooling_type", 0)
    if pooling not in (MEAN, FIRST, LAST):
        kind = "a reranker" if pooling == _RERANKER else "not an embedding model (it has no pooling)"
        raise ProviderStop(
            f"{path.name} is {kind}",
            hint="set memorySearch.local.modelPath to a GGUF embedding model, such as embeddinggemma, "
            "nomic-embed-text or all-MiniLM-L6-v2",
        )
    return int(str(pooling))


def _check_magic(path: Path, beginning: bytes) -> None:
    if not beginning.startswith(MAGIC):
        is_page = beginning.lstrip()[:1] == b"<"
        what = "is empty" if not beginning else "is a web page" if is_page else "is not a GGUF file"
        raise ProviderStop(f"the model file {path} {what}", hint=_GET_ANOTHER)
    if len(beginning) < _HEADER.size:
        raise ProviderStop(f"the model file {path} ends too early", hint=_GET_ANOTHER)
    version = _HEADER.unpack_from(beginning)[1]
    if version not in (2, 3):
        raise ProviderStop(f"the model file {path} has GGUF version {version}, not 2 or 3", hint=_GET_ANOTHER)


def _unreadable(path: Path, error: Exception) -> ProviderStop:
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return ProviderStop(
        f"the model file {path} cannot be read: {reason}",
        hint="check memorySearch.local.modelPath: a GGUF file, or hf:owner/repo/file.gguf",
    )


def _read_keys(content: Content, keys: Values) -> int:
    """Add the keys and values of a file to `keys`, without arrays, and return where they end."""
    at = _HEADER.size
    for _ in range(_HEADER.unpack_from(content)[3]):
        key, at = _text(content, at)
        (kind,) = struct.unpack_from("<I", content, at)
        keys[key], at = _value(content, at + 4, kind)
    return at


def _needed_bytes(content: mmap.mmap, keys: Values) -> int:
    """Read all `keys`, and return the size that the file must have for all its tensors."""
    at = _read_keys(content, keys)
    ends = [0]
    for _ in range(_HEADER.unpack_from(content)[2]):
        _, at = _text(content, at)
        (axes,) = struct.unpack_from("<I", content, at)
        *shape, kind, offset = struct.unpack_from(f"<{axes}QIQ", content, at + 4)
        at += 4 + 8 * axes + 12
        block_bytes, block_elements = _BLOCKS.get(kind, (0, 1))
        ends.append(offset + math.prod(shape) // block_elements * block_bytes)
    alignment = int(str(keys.get("general.alignment", 32))) or 32
    return -(-at // alignment) * alignment + max(ends)


def _text(content: Content, at: int) -> tuple[str, int]:
    (length,) = _LENGTH.unpack_from(content, at)
    if length > len(content) - at - 8:
        raise struct.error("text beyond the end")
    (raw,) = struct.unpack_from(f"<{length}s", content, at + 8)
    return raw.decode("utf-8", "replace"), at + 8 + length


def _value(content: Content, at: int, kind: int) -> tuple[object, int]:
    if kind == _TEXT:
        return _text(content, at)
    if kind == _ARRAY:
        element, count = struct.unpack_from("<IQ", content, at)
        at += 12
        if element in _FORMATS:
            return None, at + count * struct.calcsize(f"<{_FORMATS[element]}")
        if element != _TEXT:
            raise struct.error("an array of something unknown")
        for _ in range(count):
            at += 8 + _LENGTH.unpack_from(content, at)[0]
        return None, at
    if kind not in _FORMATS:
        raise struct.error("a value of something unknown")
    form = f"<{_FORMATS[kind]}"
    return struct.unpack_from(form, content, at)[0], at + struct.calcsize(form)
