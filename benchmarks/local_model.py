"""A model in this process by each engine: a bare loop beside it, an index made with it, a warm question."""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.bench import Bench, timed_ms
from benchmarks.children import PEAK, ROOT, memline, peak_mb, run
from benchmarks.corpus import questions
from benchmarks.figures import Figure, at_least, at_most

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Lies beside the repository; it is no part of it.
MODEL = ROOT.parent / "shared/models/all-MiniLM-L6-v2-q8_0.gguf"

_TEXTS = 25
_TURNS = 3

#: The window of both bare loops; no text of the corpus is longer.
_WINDOW = 512


def embedding(bench: Bench) -> list[Figure]:
    """CPU time of local embedding against a bare loop over the library, a warm question, 100 chunks."""
    from memline.shared.embedders.local.engines import ENGINES

    if not MODEL.is_file():
        return [_unmeasured(f"needs the model ../shared/models/{MODEL.name}")]
    figures = []
    for engine in ENGINES:
        if engine.is_installed:
            figures += _of_engine(bench, engine.name, _model(bench, engine.kind))
        else:
            figures.append(_unmeasured(f"needs {' '.join(engine.requirements)}"))
    return figures


def _unmeasured(reason: str) -> Figure:
    return Figure(what="a model in this process", target="", measured="not measured", detail=reason)


def _model(bench: Bench, kind: str) -> Path:
    """The model file for an engine: the one beside the repository, or what is made of it."""
    if kind == "GGUF":
        return MODEL
    from tests.support.onnx_model import make

    return make(MODEL, bench.folder / "all-MiniLM-L6-v2")


def _of_engine(bench: Bench, name: str, model: Path) -> list[Figure]:
    place = bench.place(f"local-{name}", bench.notes(10, 10))
    memory = {"provider": "local", "local": {"modelPath": str(model)}}
    place.config.write_text(json.dumps({"agents": {"defaults": {"memorySearch": memory}}}))
    index = run(memline(*place.options(), "index", "--re-embed", "--json", before=PEAK))
    report = json.loads(index.stdout)[0]
    texts = _texts(place.settings())
    from memline.shared.embedders.choice import choose

    ours = choose(place.settings()).build()
    bare = _BARE[model.suffix](model)
    ratio, detail = _against(lambda: ours.embed_documents(texts), lambda: [bare(text) for text in texts])
    asked = iter(questions(60))
    cpu_began = time.process_time()
    question_ms = timed_ms(50, lambda: ours.embed_query(next(asked), timeout_s=5))
    cpu_ms = (time.process_time() - cpu_began) * 1000 / 50
    ours.close()
    return [
        at_least(f"{name}: tokens a CPU second against a bare loop", ratio, 0.9, "x", detail=detail),
        at_most(
            f"{name}: a question, warm", question_ms, 15, "ms", detail=f"median of 50; {cpu_ms:.1f} ms CPU"
        ),
        Figure(
            what=f"{name}: index of notes with MiniLM",
            target="",
            measured=f"{index.wall_s:.0f} s, {index.cpu_s:.0f} s CPU, {peak_mb(index):.0f} MB at most",
            detail=f"{report['chunks']} chunks, {report['vectors']['embedded']} texts embedded, "
            f"model of {model.stat().st_size / 1e6:.0f} MB",
        ),
    ]


def _texts(settings: Any) -> list[str]:
    from memline.shared.index.driver import reading

    with reading(settings.index_path) as connection:
        rows = connection.execute("SELECT text FROM chunks ORDER BY id LIMIT ?", (_TEXTS,))
        return [text for (text,) in rows]


def _bare_llama(path: Path) -> Callable[[str], Sequence[float]]:
    """The library's own class with the settings that were measured best."""
    from llama_cpp import Llama

    model = Llama(
        str(path),
        embedding=True,
        n_ctx=_WINDOW,
        n_batch=_WINDOW,
        n_ubatch=_WINDOW,
        flash_attn=True,
        verbose=False,
    )
    return lambda text: model.embed(text, normalize=True, truncate=True)


def _bare_onnx(path: Path) -> Callable[[str], Sequence[float]]:
    """A session with as many threads as ours, and nothing around it."""
    import numpy as np
    from onnxruntime import InferenceSession, SessionOptions
    from tokenizers import Tokenizer

    from memline.shared.embedders.local import model

    options = SessionOptions()
    options.intra_op_num_threads = model._threads
    session = InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    tokenizer = Tokenizer.from_file(str(path.with_name("tokenizer.json")))
    tokenizer.enable_truncation(_WINDOW)

    def embed(text: str) -> Sequence[float]:
        ids = np.array([tokenizer.encode(text).ids])
        feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        mean = session.run(None, feeds)[0][0].mean(0)
        unit: Sequence[float] = mean / np.linalg.norm(mean)
        return unit

    return embed


#: How each library is used by hand, by the file of its model.
_BARE = {".gguf": _bare_llama, ".onnx": _bare_onnx}


def _against(ours: Callable[[], object], bare: Callable[[], object]) -> tuple[float, str]:
    """CPU seconds of the bare loop over ours, for the same texts in turns; the first turn only warms up."""
    took: dict[str, list[float]] = {"ours": [], "bare": []}
    for turn in range(_TURNS + 1):
        for name, call in (("bare", bare), ("ours", ours)):
            began = time.process_time()
            call()
            if turn:
                took[name].append(time.process_time() - began)
    medians = {name: statistics.median(values) for name, values in took.items()}
    detail = f"{medians['ours']:.2f} and {medians['bare']:.2f} s for {_TEXTS} chunks"
    return medians["bare"] / medians["ours"], detail
