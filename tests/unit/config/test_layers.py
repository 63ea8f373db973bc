from typing import Any

import pytest

from memline.shared.config.check import Warnings
from memline.shared.config.layers import adjust, merge
from memline.shared.config.schema import ExtraPath


def adjusted(**settings: object) -> tuple[dict[str, Any], list[str]]:
    warnings = Warnings()
    raw = {path.replace("__", "."): each for path, each in settings.items()}
    return adjust(raw, warnings, at="f: "), warnings


def test_the_later_layer_wins_leaf_by_leaf_and_extra_paths_add_up() -> None:
    one, two, three = (ExtraPath(path=name) for name in ("1", "2", "3"))
    weak = {
        "remote.batch.wait": True,
        "model": "m",
        "sources": ("memory", "sessions"),
        "extraPaths": (one, two),
    }
    strong = {"model": "n", "sources": ("memory",), "extraPaths": (two, three)}

    merged = merge([weak, strong])

    paths = (one, two, three)
    assert merged == {"remote.batch.wait": True, "model": "n", "sources": ("memory",), "extraPaths": paths}


def test_sessions_need_their_permission() -> None:
    found, warnings = adjusted(sources=("memory", "sessions"))
    assert found["sources"] == ("memory",)
    assert "experimental.sessionMemory" in warnings[0]

    found, warnings = adjusted(sources=("sessions",), experimental__sessionMemory=True)
    assert found["sources"] == ("sessions",)
    assert [text for text in warnings if "left out" in text] == []


def test_without_any_source_left_memory_is_the_one() -> None:
    assert adjusted(sources=("sessions",))[0]["sources"] == ("memory",)
    assert adjusted(sources=())[0]["sources"] == ("memory",)


def test_the_overlap_stays_below_the_size_of_a_chunk() -> None:
    found, warnings = adjusted(chunking__tokens=100, chunking__overlap=100)
    assert found["chunking.overlap"] == 99
    assert warnings

    assert adjusted(chunking__tokens=50)[0]["chunking.overlap"] == 49
    assert "chunking.overlap" not in adjusted(chunking__tokens=500)[0]


def test_the_weights_are_scaled_to_a_sum_of_one() -> None:
    found, _ = adjusted(query__hybrid__vectorWeight=0.6, query__hybrid__textWeight=0.2)
    assert found["query.hybrid.vectorWeight"] == pytest.approx(0.75)

    found, _ = adjusted(query__hybrid__vectorWeight=0.0)
    assert (found["query.hybrid.vectorWeight"], found["query.hybrid.textWeight"]) == (0.0, 1.0)


def test_two_weights_of_zero_mean_the_defaults() -> None:
    found, warnings = adjusted(query__hybrid__vectorWeight=0.0, query__hybrid__textWeight=0.0)

    assert (found["query.hybrid.vectorWeight"], found["query.hybrid.textWeight"]) == (0.5, 0.5)
    assert warnings


def test_one_weight_alone_leaves_the_rest_to_the_other() -> None:
    found, warnings = adjusted(query__hybrid__vectorWeight=0.7)

    assert round(found["query.hybrid.textWeight"], 6) == 0.3
    assert not warnings
