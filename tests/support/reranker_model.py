"""Make tiny rerankers that prefer one word: a BERT as GGUF and a graph of a few nodes as ONNX.

The score of a question and a text is the sigmoid of a number that rises with the share of tokens that are
`red`, and falls with that of `blue`.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.onnx_model import of_words

WORDS = ("red", "green", "blue", "what", "is")

#: The tokens of a BERT's vocabulary, in the order of their numbers; GGUF marks beginnings of words.
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

_DIMS = 32


def gguf_reranker(path: Path, *, prompt: str = "") -> Path:
    """Write a BERT of one layer with a head that gives one number; `prompt`: as chat models have one."""
    import gguf

    writer = gguf.GGUFWriter(path, "bert")
    writer.add_name("tiny reranker")
    writer.add_context_length(64)
    writer.add_embedding_length(_DIMS)
    writer.add_feed_forward_length(_DIMS)
    writer.add_block_count(1)
    writer.add_head_count(2)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    writer.add_uint32("bert.pooling_type", gguf.PoolingType.RANK)
    if prompt:
        writer.add_string("tokenizer.chat_template.rerank", prompt)
    tokens = [*_SPECIAL, *(f"▁{word}" for word in WORDS)]
    writer.add_tokenizer_model("bert")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(_SPECIAL) + [1] * len(WORDS))
    writer.add_token_type_count(2)
    for name, number in (("unk", 1), ("bos", 2), ("sep", 3), ("mask", 4), ("pad", 0)):
        getattr(writer, f"add_{name}_token_id")(number)

    def add(name: str, numbers: Any) -> None:
        writer.add_tensor(name, np.ascontiguousarray(numbers, np.float32))

    ones, none, square = np.ones(_DIMS), np.zeros(_DIMS), np.zeros((_DIMS, _DIMS))
    add("token_embd.weight", _rows(len(tokens)))
    add("token_types.weight", np.zeros((2, _DIMS)))
    add("position_embd.weight", np.zeros((64, _DIMS)))
    add("token_embd_norm.weight", ones)
    add("token_embd_norm.bias", none)
    # Without queries and keys every token counts alike: what is added to the first is the mean of all.
    for part, weight in (("attn_q", square), ("attn_k", square), ("attn_v", np.eye(_DIMS))):
        add(f"blk.0.{part}.weight", weight)
        add(f"blk.0.{part}.bias", none)
    for part, weight in (("attn_output", np.eye(_DIMS)), ("ffn_up", square), ("ffn_down", square)):
        add(f"blk.0.{part}.weight", weight)
        add(f"blk.0.{part}.bias", none)
    for part in ("attn_output_norm", "layer_output_norm"):
        add(f"blk.0.{part}.weight", ones)
        add(f"blk.0.{part}.bias", none)
    add("cls.output.weight", np.eye(1, _DIMS))
    add("cls.output.bias", np.zeros(1))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def onnx_reranker(folder: Path, *, labels: int = 1) -> Path:
    """Write `model.onnx` and `tokenizer.json`; the number of a text is the mean of its tokens'."""
    from onnx import helper

    words = [*_SPECIAL, *WORDS]
    nodes = [
        helper.make_node("Gather", ["rows", "input_ids"], ["of_tokens"]),
        helper.make_node("ReduceMean", ["of_tokens", "tokens"], ["logits"], keepdims=0),
    ]
    model = of_words(
        folder,
        words,
        nodes,
        inputs=("input_ids", "attention_mask", "token_type_ids"),
        outputs={"logits": ["batch", labels]},
        constants={"rows": _rows(len(words))[:, :labels], "tokens": np.array([1])},
    )
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 64}))
    return model


def tokens_of(text: str) -> Any:
    """The rows of tokens that are written with spaces between them."""
    words = [*_SPECIAL, *WORDS]
    return _rows(len(words))[[words.index(word) for word in text.split()]]


def _rows(count: int) -> Any:
    """The vector of each token: the first number says how red it is; the rest keeps its length apart."""
    rows = np.random.default_rng(7).normal(size=(count, _DIMS)).astype(np.float32)
    rows[:, 0] = 0.0
    rows[len(_SPECIAL) + WORDS.index("red"), 0] = 8.0
    rows[len(_SPECIAL) + WORDS.index("blue"), 0] = -8.0
    return rows
