"""Read what the files of an ONNX model say of it, without the library that runs it.

They lie as sentence-transformers and the hub lay them out: the graph, beside it or up to two folders above
the tokenizer, and JSON that says how long a text may be and how one vector is made of those of its tokens.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

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

TOKENIZER = "tokenizer.json"
_CONFIG, _TOKENIZER_CONFIG, _POOLING = "config.json", "tokenizer_config.json", "1_Pooling/config.json"

#: Files that a model has beside its graph; only the first is needed.
COMPANIONS = (TOKENIZER, _CONFIG, _TOKENIZER_CONFIG, _POOLING)

#: Where the graph is in a folder, the first that exists.
GRAPHS = ("model.onnx", "onnx/model.onnx")

#: Of files with weights beside a graph that would be larger than 2 GB.
WEIGHTS_SUFFIX = "_data"

#: The first byte of a graph: the field of its version.
_MAGIC = b"\x08"

#: Tokens of a text when nothing says how many, as BERT takes.
_USUAL_TOKENS = 512

#: Numbers above it stand for "no limit" in a tokenizer's settings.
_NO_LIMIT = 1_000_000

#: Names of ways to make one vector, as `pooling_mode_<name>` or as a word. The mean divided by the root of
#: the length has the direction of the mean.
_POOLINGS = {"mean": MEAN, "mean_tokens": MEAN, "mean_sqrt_len_tokens": MEAN}
_POOLINGS |= {"cls": FIRST, "cls_token": FIRST, "lasttoken": LAST}


def read_head(path: Path, title: str = "") -> ModelFile:
    """Read the head of a model: its graph, or the folder that has it. Raises ProviderStop.

    `title`: what the model is called; empty: as its folder.
    """
    graph = graph_of(path)
    digest, beginning = sampled(graph, *_beside(graph))
    check_content(graph, beginning, "an ONNX", is_it=beginning.startswith(_MAGIC))
    root = root_of(graph)
    if not (root / TOKENIZER).is_file():
        raise ProviderStop(
            f"there is no {TOKENIZER} beside the model {graph}",
            hint=f"put the {TOKENIZER} of the same model into {root}",
        )
    config = _json(root / _CONFIG)
    # Graphs are all called alike: the folder tells what it is.
    name = f"{title or root.name}/{graph.name}"
    family = family_of([str(config.get("model_type", "")), str(config.get("_name_or_path", "")), name])
    return ModelFile(path=graph, name=name, digest=digest, family=family)


def graph_of(path: Path) -> Path:
    """Return the graph that a path means. Raises ProviderStop for a folder without one."""
    if not path.is_dir():
        return path
    for name in GRAPHS:
        if (path / name).is_file():
            return path / name
    raise unreadable(path, OSError(f"there is no {GRAPHS[0]} in this folder"))


def root_of(graph: Path) -> Path:
    """Return the folder with the tokenizer of a graph: its own, or one above."""
    return next((each for each in graph.parents[:3] if (each / TOKENIZER).is_file()), graph.parent)


def pooling_of(graph: Path) -> int:
    """Return how one vector is made of those of the tokens, the mean if nothing says. Raises ProviderStop."""
    found = _json(root_of(graph) / _POOLING)
    switches = (key for key, is_on in found.items() if key.startswith("pooling_mode_") and is_on is True)
    modes = [str(found["pooling_mode"])] if "pooling_mode" in found else []
    modes = modes or [key.removeprefix("pooling_mode_") for key in switches]
    if len(modes) > 1 or any(mode not in _POOLINGS for mode in modes):
        raise ProviderStop(
            f"the model {graph} makes its vectors in a way that is not known: {', '.join(modes)}",
            hint="set memorySearch.local.modelPath to a model with mean, cls or last token pooling",
        )
    return _POOLINGS[modes[0]] if modes else MEAN


def max_tokens(graph: Path) -> int:
    """Return the tokens of a text that the model takes, special ones too."""
    root = root_of(graph)
    # Not the truncation of the tokenizer: that of MiniLM cuts at 128 what the model takes to 512.
    limits = (
        _json(root / _CONFIG).get("max_position_embeddings"),
        _json(root / _TOKENIZER_CONFIG).get("model_max_length"),
    )
    known = [int(limit) for limit in limits if isinstance(limit, (int, float)) and 0 < limit < _NO_LIMIT]
    return min(known, default=_USUAL_TOKENS)


def _beside(graph: Path) -> list[Path]:
    """List the files that belong to a graph and exist."""
    root = root_of(graph)
    others = [graph.with_name(graph.name + WEIGHTS_SUFFIX), *(root / name for name in COMPANIONS)]
    return [each for each in others if each.is_file()]


def _json(path: Path) -> dict[str, Any]:
    """Read a JSON file of a model; empty when there is none. Raises ProviderStop when it is damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise unreadable(path, error) from None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        text = f"the model file {path} is damaged: it is not JSON of a model"
        raise ProviderStop(text, hint=GET_ANOTHER) from None
