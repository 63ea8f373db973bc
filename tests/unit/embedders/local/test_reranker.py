"""What rerankers of both engines say of texts, and of files that are not rerankers."""

import math
from collections.abc import Callable
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from memline.shared.config.schema import Local, Query, Rerank
from memline.shared.embedders.local.gguf import check_reranker
from memline.shared.embedders.local.reranker import RankingModel, Reranker
from memline.shared.errors import ProviderError, ProviderLater, ProviderStop
from tests.support.local_model import gguf
from tests.support.onnx_model import tiny
from tests.support.reranker_model import gguf_reranker, onnx_reranker, tokens_of
from tests.unit.embedders.conftest import make_settings

needs_llama = pytest.mark.skipif(
    not all(map(find_spec, ("llama_cpp", "gguf"))), reason="needs the extras `local` and `dev`"
)
needs_onnx = pytest.mark.skipif(
    not all(map(find_spec, ("onnxruntime", "tokenizers", "onnx"))), reason="needs the extras `onnx` and `dev`"
)

KINDS = [
    pytest.param(lambda folder: gguf_reranker(folder / "tiny.gguf"), marks=needs_llama, id="gguf"),
    pytest.param(onnx_reranker, marks=needs_onnx, id="onnx"),
]


def reranker_of(path: Path | str, **rerank: Any) -> Reranker:
    query = Query(rerank=Rerank(model_path=str(path), **rerank))
    return Reranker(make_settings(query=query, local=Local()))


class Counting(RankingModel):
    """Gives each text its length."""

    def logit(self, question: str, text: str) -> float:
        return float(len(text))


@pytest.mark.parametrize("make", KINDS)
def test_what_answers_more_has_a_higher_score(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    reranker = reranker_of(make(tmp_path))

    blue, green, mixed, red = reranker.scores("what is red", ["blue", "green", "green red", "red red"])
    reranker.close()

    assert 0 < blue < green < mixed < red < 1


@pytest.mark.parametrize("make", KINDS)
def test_a_pair_that_is_too_long_is_cut_and_no_text_breaks_it(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    reranker = reranker_of(make(tmp_path))

    scores = reranker.scores("what is " * 200, ["red " * 500, "", "\ud800", "[SEP] red", "\0"])
    reranker.close()

    assert len(scores) == 5
    assert all(0 < score < 1 for score in scores)


@needs_llama
def test_the_score_is_that_of_the_pair_as_a_bert_reads_it(tmp_path: Path) -> None:
    reranker = reranker_of(gguf_reranker(tmp_path / "tiny.gguf"))

    (score,) = reranker.scores("what is red", ["green red blue red"])
    reranker.close()

    # One layer in which every token counts alike, as `gguf_reranker` writes it.
    def normal(rows: Any) -> Any:
        return (rows - rows.mean(-1, keepdims=True)) / rows.std(-1, keepdims=True)

    rows = normal(tokens_of("[CLS] what is red [SEP] green red blue red [SEP]"))
    logit = normal(normal(rows[0] + rows.mean(0)))[0]
    assert score == pytest.approx(1 / (1 + math.exp(-logit)), abs=1e-3)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [({"bert__pooling_type": 1}, "is not a reranker"), ({"bert__pooling_type": 4}, "lacks the last layer")],
)
def test_a_gguf_model_that_cannot_rank_is_refused_before_it_is_loaded(
    tmp_path: Path, keys: dict[str, object], reason: str
) -> None:
    (tmp_path / "model.gguf").write_bytes(gguf(**keys))

    with pytest.raises(ProviderStop, match=reason) as caught:
        reranker_of(tmp_path / "model.gguf").load()

    assert "memorySearch.query.rerank.modelPath" in caught.value.hint
    assert "local.modelPath" not in caught.value.hint


@needs_llama
def test_a_chat_model_that_ranks_by_a_prompt_is_refused(tmp_path: Path) -> None:
    check_reranker(gguf_reranker(tmp_path / "plain.gguf"))

    with pytest.raises(ProviderStop, match="when it is prompted"):
        check_reranker(gguf_reranker(tmp_path / "chat.gguf", prompt="<Query>: {query}"))


@needs_onnx
def test_an_onnx_model_that_cannot_rank_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProviderStop, match="not a reranker") as embedding:
        reranker_of(tiny(tmp_path / "embedding")).load()
    with pytest.raises(ProviderStop, match="gives 2 numbers for a text"):
        reranker_of(onnx_reranker(tmp_path / "labels", labels=2)).load()

    assert embedding.value.hint.endswith("query.rerank.modelPath to an ONNX export of a reranker")


def test_a_file_that_is_missing_is_named_with_the_key(tmp_path: Path) -> None:
    with pytest.raises(ProviderError, match="no-such") as missing:
        reranker_of(tmp_path / "no-such.gguf").load()
    with pytest.raises(ProviderError, match="is not on this machine yet") as not_yet:
        reranker_of("hf:owner/repo/rank.gguf").load()

    assert "query.rerank.modelPath" in missing.value.hint
    assert not_yet.value.hint.startswith("memline index")


def test_after_its_time_the_rest_is_left_out_but_one_is_always_read() -> None:
    model, ticks = Counting(), count()

    some = model.scores("q", ["a", "b", "c", "d"], timeout_s=2, monotonic=lambda: float(next(ticks)))
    first = model.scores("q", ["a", "b"], timeout_s=0, monotonic=lambda: 0.0)

    assert (len(some), len(first)) == (2, 1)


def test_a_model_that_is_busy_is_not_waited_for_longer() -> None:
    model = Counting()

    with model._exclusive(1), pytest.raises(ProviderLater, match="was busy for 0 s"):
        model.scores("q", ["a"], timeout_s=0)

    assert model.scores("q", ["abc"], timeout_s=1) == [pytest.approx(0.9526, abs=1e-4)]


def test_a_model_that_gives_no_number_says_so() -> None:
    class Broken(Counting):
        def logit(self, question: str, text: str) -> float:
            return math.nan

    with pytest.raises(ProviderError, match="no number"):
        Broken().scores("q", ["a"], timeout_s=1)


def test_numbers_of_any_size_become_scores() -> None:
    class Sure(Counting):
        def logit(self, question: str, text: str) -> float:
            return float(text)

    assert Sure().scores("q", ["-1e9", "0", "1e9", "-inf"], timeout_s=1) == pytest.approx([0, 0.5, 1, 0])
