"""Make tiny ONNX models, each with a tokenizer of whole words, as sentence-transformers lays them out."""

import numpy as np

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
    from onnx import TensorProto, helper, numpy_helper
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    folder.mkdir(parents=True, exist_ok=True)

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
    tokenizer = Tokenizer(
        models.WordLevel({word: at for at, word in enumerate(TINY_WORDS)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(word, TINY_WORDS.index(word)) for word in ("[CLS]", "[SEP]")],
    )
    tokenizer.add_special_tokens([word for word in TINY_WORDS if word.startswith("[")])
    tokenizer.save(str(folder / "tokenizer.json"))
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"]) for name in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(numbers, name) for name, numbers in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    (folder / "model.onnx").write_bytes(made.SerializeToString())
