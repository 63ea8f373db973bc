"""Make a small real ONNX model of the GGUF one: the same weights as a plain BERT graph, with its tokenizer.

`python -m tests.support.onnx_model FOLDER` writes `model.onnx`, `tokenizer.json`, `config.json` and
`1_Pooling/config.json`, as sentence-transformers lays out its models.
"""

import json
import sys
from pathlib import Path

import numpy as np

#: The axes of an output: the name of one that may have any length, else its length.
Shape = list[int | str | None]

#: From GGUF's names of a BERT to the parts of a layer here.
_EPSILON = 1e-12


def make(gguf_file, folder):
    """Write the model of a GGUF file of a BERT with mean pooling; return `model.onnx`."""
    import gguf

    reader = gguf.GGUFReader(str(gguf_file))
    weights = {
        tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        for tensor in reader.tensors
    }
    keys = {key: field.contents() for key, field in reader.fields.items()}
    folder.mkdir(parents=True, exist_ok=True)
    _tokenizer(keys["tokenizer.ggml.tokens"]).save(str(folder / "tokenizer.json"))
    positions, dims = keys["bert.context_length"], keys["bert.embedding_length"]
    config = {"model_type": "bert", "max_position_embeddings": positions, "hidden_size": dims}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    pooling = {"word_embedding_dimension": dims, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling/config.json").write_text(json.dumps(pooling))
    model = folder / "model.onnx"
    model.write_bytes(_Graph(weights).bert(keys["bert.block_count"], keys["bert.attention.head_count"]))
    return model


#: Rows of the words of `tiny`: [UNK], [CLS], [SEP], then the words below.
TINY_WORDS = ("[UNK]", "[CLS]", "[SEP]", "red", "green", "blue")


def tiny(
    folder,
    *,
    inputs=("input_ids", "attention_mask"),
    of_text=False,
    of_tokens=True,
    dims=4,
):
    """Write a model that knows three colours: the vector of a token is its row, 1 at its own number.

    `of_text`: it has `sentence_embedding` as an output, which is always that of the last token.
    """
    from onnx import helper

    rows = np.eye(len(TINY_WORDS), dims, dtype=np.float32) + 0.01
    nodes = [helper.make_node("Gather", ["rows", "input_ids"], ["last_hidden_state"])]
    outputs = {}
    if of_tokens:
        outputs["last_hidden_state"] = ["batch", "sequence", dims]
    if of_text or not of_tokens:
        last = helper.make_node("Gather", ["last_hidden_state", "last"], ["sentence_embedding"], axis=1)
        nodes.append(last)
        outputs["sentence_embedding"] = ["batch", dims]
    constants = {"rows": rows, "last": np.array(-1)}
    return of_words(folder, TINY_WORDS, nodes, inputs=inputs, outputs=outputs, constants=constants)


def of_words(
    folder,
    words,
    nodes,
    *,
    inputs,
    outputs,
    constants,
):
    """Write a graph, and the tokenizer of these whole words, of which those in brackets are special."""
    from onnx import TensorProto, helper, numpy_helper
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(word, words.index(word)) for word in ("[CLS]", "[SEP]")],
    )
    tokenizer.add_special_tokens([word for word in words if word.startswith("[")])
    tokenizer.save(str(folder / "tokenizer.json"))
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"]) for name in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(numbers, name) for name, numbers in constants.items()],
    )
    model = folder / "model.onnx"
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    model.write_bytes(made.SerializeToString())
    return model


def _tokenizer(pieces):
    """A WordPiece tokenizer of GGUF's vocabulary, which marks beginnings of words in place of the rest."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    vocabulary = {
        piece if piece.startswith("[") and piece.endswith("]")
        else piece[1:] if piece.startswith("▁") else f"##{piece}": number
        for number, piece in enumerate(pieces)
    }  # fmt: skip
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    ends = [(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    # As that of all-MiniLM-L6-v2, which cuts texts unless it is told not to.
    tokenizer.enable_truncation(128)
    return tokenizer


class _Graph:
    """Collects the nodes of a BERT graph; every method returns the name of what it makes."""

    def __init__(self, weights):
        self._weights = weights
        self._nodes = []
        self._constants = {}

    def bert(self, layers, heads):
        from onnx import TensorProto, checker, helper

        ids, mask, kinds = "input_ids", "attention_mask", "token_type_ids"
        positions = self._op(
            "Sub", self._op("CumSum", self._op("Add", self._op("Mul", ids, self._ints(0)), self._ints(1)),
                            self._ints(1)), self._ints(1))  # fmt: skip
        summed = self._op("Gather", self._weight("token_embd.weight"), ids)
        summed = self._op("Add", summed, self._op("Gather", self._weight("position_embd.weight"), positions))
        summed = self._op("Add", summed, self._op("Gather", self._weight("token_types.weight"), kinds))
        state = self._norm(summed, "token_embd_norm")
        # Tokens that are padding get no attention: a large negative number before the softmax.
        wide = self._op("Unsqueeze", self._op("Cast", mask, to=TensorProto.FLOAT), self._ints([1, 2]))
        masked = self._op("Mul", self._op("Sub", wide, self._floats(1)), self._floats(1e9))
        for number in range(layers):
            state = self._layer(f"blk.{number}.", state, masked, heads)
        self._nodes.append(helper.make_node("Identity", [state], ["last_hidden_state"]))
        axes = ["batch", "sequence"]
        dims = self._weights["token_embd.weight"].shape[1]
        graph = helper.make_graph(
            self._nodes,
            "bert",
            [helper.make_tensor_value_info(name, TensorProto.INT64, axes) for name in (ids, mask, kinds)],
            [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, [*axes, dims])],
            list(self._constants.values()),
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        checker.check_model(model)
        return bytes(model.SerializeToString())

    def _layer(self, name, state, masked, heads):
        dims = self._weights["token_embd.weight"].shape[1]
        split = self._ints([0, 0, heads, dims // heads])
        query, key, value = (
            self._op("Reshape", self._linear(state, f"{name}attn_{part}"), split) for part in "qkv"
        )
        query, value = (self._op("Transpose", each, perm=[0, 2, 1, 3]) for each in (query, value))
        key = self._op("Transpose", key, perm=[0, 2, 3, 1])
        scaled = self._op("Mul", self._op("MatMul", query, key), self._floats((dims // heads) ** -0.5))
        shares = self._op("Softmax", self._op("Add", scaled, masked), axis=-1)
        met = self._op("Transpose", self._op("MatMul", shares, value), perm=[0, 2, 1, 3])
        met = self._linear(self._op("Reshape", met, self._ints([0, 0, dims])), f"{name}attn_output")
        state = self._norm(self._op("Add", met, state), f"{name}attn_output_norm")
        inner = self._op("Gelu", self._linear(state, f"{name}ffn_up"))
        return self._norm(
            self._op("Add", self._linear(inner, f"{name}ffn_down"), state), f"{name}layer_output_norm"
        )

    def _linear(self, state, name):
        product = self._op("MatMul", state, self._constant(f"{name}.t", self._weights[f"{name}.weight"].T))
        return self._op("Add", product, self._weight(f"{name}.bias"))

    def _norm(self, state, name):
        return self._op(
            "LayerNormalization", state, self._weight(f"{name}.weight"), self._weight(f"{name}.bias"),
            axis=-1, epsilon=_EPSILON,
        )  # fmt: skip

    def _op(self, kind, *inputs, **attributes):
        from onnx import helper

        made = f"{kind}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(inputs), [made], **attributes))
        return made

    def _weight(self, name):
        return self._constant(name, self._weights[name])

    def _ints(self, numbers):
        return self._constant(f"ints_{numbers}", np.array(numbers, np.int64))

    def _floats(self, number):
        return self._constant(f"floats_{number}", np.array(number, np.float32))

    def _constant(self, name, numbers):
        from onnx import numpy_helper

        if name not in self._constants:
            self._constants[name] = numpy_helper.from_array(np.ascontiguousarray(numbers), name)
        return name


if __name__ == "__main__":
    from tests.support.local_model import MODEL

    print(make(MODEL, Path(sys.argv[1])))
