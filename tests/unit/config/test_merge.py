from __future__ import annotations

import pytest

from shared.config.check import Leaf, Report
from shared.config.merge import merge, settle
from shared.config.schema import ExtraPath


def settled(**leaves: Leaf) -> tuple[dict[str, object], list[str]]:
    report = Report()
    found = settle({path.replace("__", "."): leaf for path, leaf in leaves.items()}, report)
    return {path: value for path, (value, _) in found.items()}, report.warnings


def test_the_later_layer_wins_leaf_by_leaf() -> None:
    merged = merge([{"remote.batch.wait": (True, "a"), "model": ("m", "a")}, {"model": ("n", "b")}])

    assert merged == {"remote.batch.wait": (True, "a"), "model": ("n", "b")}


def test_sources_and_headers_are_replaced_as_a_whole() -> None:
    merged = merge(
        [
            {"sources": (("memory", "sessions"), "a"), "remote.headers": ({"x": "1"}, "a")},
            {"sources": (("memory",), "b"), "remote.headers": ({"y": "2"}, "b")},
        ]
    )

    assert merged == {"sources": (("memory",), "b"), "remote.headers": ({"y": "2"}, "b")}


def test_extra_paths_add_up_without_doubles() -> None:
    one, two, three = (ExtraPath(path=name) for name in ("1", "2", "3"))

    merged = merge([{"extraPaths": ((one, two), "a")}, {"extraPaths": ((two, three), "b")}])

    assert merged == {"extraPaths": ((one, two, three), "a; b")}


def test_sessions_need_their_permission() -> None:
    found, warnings = settled(sources=(("memory", "sessions"), "f: sources"))
    assert found["sources"] == ("memory",)
    assert "experimental.sessionMemory" in warnings[0]

    found, warnings = settled(
        sources=(("sessions",), "f"), experimental__sessionMemory=(True, "f: experimental")
    )
    assert found["sources"] == ("sessions",)
    assert [text for text in warnings if "left out" in text] == []


def test_without_any_source_left_memory_is_the_one() -> None:
    assert settled(sources=(("sessions",), "f"))[0]["sources"] == ("memory",)
    assert settled(sources=((), "f"))[0]["sources"] == ("memory",)


def test_the_overlap_stays_below_the_size_of_a_chunk() -> None:
    found, warnings = settled(chunking__tokens=(100, "f"), chunking__overlap=(100, "f"))
    assert found["chunking.overlap"] == 99
    assert warnings

    assert settled(chunking__tokens=(50, "f"))[0]["chunking.overlap"] == 49
    assert "chunking.overlap" not in settled(chunking__tokens=(500, "f"))[0]


def test_the_weights_are_scaled_to_a_sum_of_one() -> None:
    found, _ = settled(
        query__hybrid__vectorWeight=(0.6, "f"),
        query__hybrid__textWeight=(0.2, "f"),
    )
    assert found["query.hybrid.vectorWeight"] == pytest.approx(0.75)

    found, _ = settled(query__hybrid__vectorWeight=(0.0, "f"))
    assert (found["query.hybrid.vectorWeight"], found["query.hybrid.textWeight"]) == (0.0, 1.0)


def test_two_weights_of_zero_mean_the_defaults() -> None:
    found, warnings = settled(query__hybrid__vectorWeight=(0.0, "f"), query__hybrid__textWeight=(0.0, "f"))

    assert (found["query.hybrid.vectorWeight"], found["query.hybrid.textWeight"]) == (0.5, 0.5)
    assert warnings


def test_one_weight_alone_leaves_the_rest_to_the_other() -> None:
    found, warnings = settled(query__hybrid__vectorWeight=(0.7, "f"))

    assert round(found["query.hybrid.textWeight"], 6) == 0.3
    assert not warnings
