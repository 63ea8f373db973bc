"""Which file of a small model suits a processor."""

import pytest

from memline.shared.embedders.local.engines import LLAMA, ONNX, quantized_for

AVX2 = frozenset({"sse4_2", "avx", "avx2"})
AVX512 = AVX2 | {"avx512f", "avx512bw"}


@pytest.mark.parametrize(
    ("machine", "flags", "name"),
    [
        ("x86_64", AVX512 | {"avx512_vnni"}, "model_qint8_avx512_vnni"),
        ("x86_64", AVX512, "model_qint8_avx512"),
        ("x86_64", AVX2 | {"avx_vnni"}, "model_qint8_avx512_vnni"),
        ("x86_64", AVX2, "model_quint8_avx2"),
        ("x86_64", frozenset(), "model_quint8_avx2"),
        ("aarch64", frozenset({"asimd"}), "model_qint8_arm64"),
        ("arm64", frozenset(), "model_qint8_arm64"),
        ("riscv64", frozenset(), "model_quint8_avx2"),
    ],
)
def test_the_file_is_that_of_the_processor(machine: str, flags: frozenset[str], name: str) -> None:
    assert quantized_for(machine, flags) == name


def test_the_small_models_are_named_with_their_sizes() -> None:
    assert ONNX.small_model.startswith("hf:sentence-transformers/all-MiniLM-L6-v2/onnx/model_q")
    assert "ONNX: 23 MB of huggingface.co/sentence-transformers/all-MiniLM-L6-v2, Apache-2.0" in ONNX.offer
    assert LLAMA.small_model.endswith("Q8_0.gguf") and "25 MB" in LLAMA.offer
