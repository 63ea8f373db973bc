"""Merging the layers of one agent's `memorySearch`, leaf by leaf, and settling values that depend on others.

A later layer replaces the leaf of an earlier one; `sources` and `headers` are leaves, so they are replaced
as a whole. Only `extraPaths` adds up.
"""

from __future__ import annotations

from collections.abc import Iterable

from shared.config.check import Leaf, Report
from shared.config.schema import Chunking, ExtraPath, Hybrid

Leaves = dict[str, Leaf]

EXTRA_PATHS = "extraPaths"


def merge(layers: Iterable[Leaves]) -> Leaves:
    """One set of leaves out of the layers, the weakest first."""
    merged: Leaves = {}
    for layer in layers:
        for path, leaf in layer.items():
            merged[path] = _joined(merged[path], leaf) if path == EXTRA_PATHS and path in merged else leaf
    return merged


def _joined(weaker: Leaf, stronger: Leaf) -> Leaf:
    both: tuple[ExtraPath, ...] = (*weaker[0], *stronger[0])
    return tuple(dict.fromkeys(both)), f"{weaker[1]}; {stronger[1]}"


def settle(leaves: Leaves, report: Report) -> Leaves:
    """The leaves with those corrected that cannot stand beside another; `report` learns of each."""
    settled = dict(leaves)
    _settle_sources(settled, report)
    _settle_overlap(settled, report)
    _settle_weights(settled, report)
    return settled


def _settle_sources(leaves: Leaves, report: Report) -> None:
    if "sources" not in leaves:
        return
    sources, origin = leaves["sources"]
    allowed, _ = leaves.get("experimental.sessionMemory", (False, ""))
    if "sessions" in sources and not allowed:
        sources = tuple(source for source in sources if source != "sessions")
        report.warn(f'{origin}: "sessions" is left out until experimental.sessionMemory is true')
    leaves["sources"] = (sources or ("memory",), origin)


def _settle_overlap(leaves: Leaves, report: Report) -> None:
    standard = Chunking()
    tokens, tokens_origin = leaves.get("chunking.tokens", (standard.tokens, ""))
    overlap, overlap_origin = leaves.get("chunking.overlap", (standard.overlap, ""))
    if overlap >= tokens:
        origin = overlap_origin or tokens_origin
        leaves["chunking.overlap"] = (tokens - 1, origin)
        report.warn(
            f"{origin}: the overlap of {overlap} does not fit into {tokens} tokens, {tokens - 1} is used"
        )


def _settle_weights(leaves: Leaves, report: Report) -> None:
    vector_path, text_path = "query.hybrid.vectorWeight", "query.hybrid.textWeight"
    if vector_path not in leaves and text_path not in leaves:
        return
    standard = Hybrid()
    # One weight alone means that the other is the rest, as with the original's 0.7 and 0.3.
    rest = {
        vector_path: 1 - leaves[text_path][0] if text_path in leaves else standard.vector_weight,
        text_path: 1 - leaves[vector_path][0] if vector_path in leaves else standard.text_weight,
    }
    vector, vector_origin = leaves.get(vector_path, (rest[vector_path], "default"))
    text, text_origin = leaves.get(text_path, (rest[text_path], "default"))
    total = vector + text
    if total == 0:
        report.warn(f"{vector_origin}: both weights are 0, the defaults are used")
        vector, text, total = standard.vector_weight, standard.text_weight, 1.0
    leaves[vector_path] = (vector / total, vector_origin)
    leaves[text_path] = (text / total, text_origin)
