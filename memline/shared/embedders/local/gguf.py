"""Read what a GGUF file says of itself, without the library that runs it.

The library ends the whole process on some files that are not models or only half of one. So everything is
read here first, and what is wrong becomes a ProviderStop that says what to do.
"""

from __future__ import annotations

import math
import mmap
import struct
from contextlib import suppress
from pathlib import Path

from memline.shared.embedders.local.model_file import (
    FIRST,
    GET_ANOTHER,
    LAST,
    MEAN,
    ModelFile,
    check_content,
    family_of,
    sampled,
    unreadable,
)
from memline.shared.errors import ProviderStop

MAGIC = b"GGUF"

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

#: `<architecture>.pooling_type` of rerankers, which are refused; the others are as in `model_file`.
_RERANKER = 4

Values = dict[str, object]

Content = bytes | mmap.mmap


def read_head(path: Path, title: str = "") -> ModelFile:
    """Read the head of a model file. Raises ProviderStop when it is not one or cannot be read.

    `title` is not looked at: the file tells its family.
    """
    digest, first = sampled(path)
    _check_magic(path, first)
    keys: Values = {}
    # The vocabulary is longer than what was read; the names come before it.
    with suppress(*_TOO_SHORT):
        _read_keys(first, keys)
    names = (str(keys.get(f"general.{key}", "")) for key in ("architecture", "name", "basename"))
    family = family_of([*names, path.name])
    return ModelFile(path=path, name=path.name, digest=digest, family=family)


def pooling_of(path: Path) -> int:
    """Return how a model makes one vector of those of its tokens: MEAN, FIRST or LAST.

    Raises ProviderStop unless the file is complete and its model makes one at all.
    """
    pooling = _whole_pooling(path)
    if pooling not in (MEAN, FIRST, LAST):
        kind = "a reranker" if pooling == _RERANKER else "not an embedding model (it has no pooling)"
        raise ProviderStop(
            f"{path.name} is {kind}",
            hint="set memorySearch.local.modelPath to a GGUF embedding model, such as embeddinggemma, "
            "nomic-embed-text or all-MiniLM-L6-v2",
        )
    return pooling


def _whole_pooling(path: Path) -> int:
    """Return the pooling that a file names, 0 for none. Raises ProviderStop unless the file is complete."""
    keys: Values = {}
    try:
        with path.open("rb") as file:
            _check_magic(path, file.read(_HEADER.size))
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                needed = _needed_bytes(content, keys)
                size = len(content)
    except _TOO_SHORT:
        raise ProviderStop(f"the model file {path} ends too early", hint=GET_ANOTHER) from None
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    if size < needed:
        text = f"the model file {path} ends too early: {size} bytes of {needed}"
        raise ProviderStop(text, hint=GET_ANOTHER)
    pooling = keys.get(f"{keys.get('general.architecture', '')}.pooling_type", 0)
    return pooling if isinstance(pooling, int) else 0


def _check_magic(path: Path, beginning: bytes) -> None:
    check_content(path, beginning, "a GGUF", is_it=beginning.startswith(MAGIC))
    if len(beginning) < _HEADER.size:
        raise ProviderStop(f"the model file {path} ends too early", hint=GET_ANOTHER)
    version = _HEADER.unpack_from(beginning)[1]
    if version not in (2, 3):
        raise ProviderStop(f"the model file {path} has GGUF version {version}, not 2 or 3", hint=GET_ANOTHER)


def _read_keys(content: Content, keys: Values) -> int:
    """Add the keys and values of a file to `keys`, without arrays, and return where they end."""
    at = _HEADER.size
    for _ in range(_HEADER.unpack_from(content)[3]):
        key, at = _text(content, at)
        (kind,) = struct.unpack_from("<I", content, at)
        keys[key], at = _value(content, at + 4, kind)
    return at


def _needed_bytes(content: mmap.mmap, keys: Values) -> int:
    """Read all `keys`, and return the size that the file must have for its tensors."""
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
