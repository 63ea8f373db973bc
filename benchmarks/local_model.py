"""A model in this process: what embedding costs beside the library alone, and an index made with it."""

from __future__ import annotations

import json
import statistics
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from benchmarks.bench import Bench, timed_ms
from benchmarks.children import ROOT, memline, run
from benchmarks.corpus import questions
from benchmarks.figures import Figure, at_least, at_most

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Lies beside the repository; it is no part of it.
MODEL = ROOT.parent / "shared/models/all-MiniLM-L6-v2-q8_0.gguf"

_TEXTS = 50
_TURNS = 3


def embedding(bench: Bench) -> list[Figure]:
    """CPU time of local embedding against a bare loop over the library, a warm question, 1,000 chunks."""
    if not (find_spec("llama_cpp") and MODEL.is_file()):
        reason = f"needs the extra `local` and the model ../shared/models/{MODEL.name}"
        return [Figure(what="a model in this process", target="", measured="not measured", detail=reason)]
    place = bench.place("local", bench.notes(100, 10))
    memory = {"provider": "local", "local": {"modelPath": str(MODEL)}}
    place.config.write_text(json.dumps({"agents": {"defaults": {"memorySearch": memory}}}))
    index = run(memline(*place.options(), "index", "--re-embed", "--json"))
    report = json.loads(index.stdout)[0]
    texts = _texts(place.settings())
    from memline.shared.embedders.choice import choose

    ours = choose(place.settings()).build()
    bare = _bare()
    ratio, detail = _against(lambda: ours.embed_documents(texts), lambda: [bare(text) for text in texts])
    asked = iter(questions(60))
    question_ms = timed_ms(50, lambda: ours.embed_query(next(asked), timeout_s=5))
    ours.close()
    return [
        at_least("local: tokens a CPU second against a bare loop", ratio, 0.9, "x", detail=detail),
        at_most("local: a question, warm", question_ms, 15, "ms", detail="median of 50"),
        Figure(
            what="local: index of notes with MiniLM",
            target="",
            measured=f"{index.wall_s:.0f} s, {index.cpu_s:.0f} s CPU",
            detail=f"{report['chunks']} chunks, {report['vectors']['embedded']} texts embedded",
        ),
    ]


def _texts(settings: Any) -> list[str]:
    from memline.shared.index.driver import reading

    with reading(settings.index_path) as connection:
        rows = connection.execute("SELECT text FROM chunks ORDER BY id LIMIT ?", (_TEXTS,))
        return [text for (text,) in rows]


def _bare() -> Callable[[str], Sequence[float]]:
    """The library's own class with the settings that were measured best."""
    from llama_cpp import Llama

    window = 512
    model = Llama(
        str(MODEL),
        embedding=True,
        n_ctx=window,
        n_batch=window,
        n_ubatch=window,
        flash_attn=True,
        verbose=False,
    )
    return lambda text: model.embed(text, normalize=True, truncate=True)


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
