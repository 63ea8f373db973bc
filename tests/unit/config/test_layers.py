from typing import Any

import pytest

from memline.shared.config.check import Issues
from memline.shared.config.keys import Setting, values
from memline.shared.config.layers import adjust, merge
from memline.shared.config.schema import ExtraPath


def setting(value: Any, origin: str) -> Setting:
    return Setting(value=value, origin=origin)


def adjusted(**settings: tuple[Any, str]) -> tuple[dict[str, object], list[str]]:
    issues = Issues()
    raw = {path.replace("__", "."): setting(*given) for path, given in settings.items()}
    return values(adjust(raw, issues)), issues.warnings


def test_the_later_layer_wins_leaf_by_leaf() -> None:
    merged = merge(
        [
            {"remote.batch.wait": Setting(value=True, origin="a"), "model": Setting(value="m", origin="a")},
            {"model": Setting(value="n", origin="b")},
        ]
    )

    assert merged == {"remote.batch.wait": setting(True, "a"), "model": setting("n", "b")}


def test_sources_and_headers_are_replaced_as_a_whole() -> None:
    merged = merge(
        [
            {
                "sources": Setting(value=("memory", "sessions"), origin="a"),
                "remote.headers": Setting(value={"x": "1"}, origin="a"),
            },
            {
                "sources": Setting(value=("memory",), origin="b"),
                "remote.headers": Setting(value={"y": "2"}, origin="b"),
            },
        ]
    )

    assert merged == {"sources": setting(("memory",), "b"), "remote.headers": setting({"y": "2"}, "b")}


def test_extra_paths_add_up_without_doubles() -> None:
    one, two, three = (ExtraPath(path=name) for name in ("1", "2", "3"))

    merged = merge(
        [
            {"extraPaths": Setting(value=(one, two), origin="a")},
            {"extraPaths": Setting(value=(two, three), origin="b")},
        ]
    )

    assert merged == {"extraPaths": Setting(value=(one, two, three), origin="a; b")}


def test_sessions_need_their_permission() -> None:
    found, warnings = adjusted(sources=(("memory", "sessions"), "f: sources"))
    assert found["sources"] == ("memory",)
    assert "experimental.sessionMemory" in warnings[0]

    found, warnings = adjusted(
        sources=(("sessions",), "f"), experimental__sessionMemory=(True, "f: experimental")
    )
    assert found["sources"] == ("sessions",)
    assert [text for text in warnings if "left out" in text] == []


def test_without_any_source_left_memory_is_the_one() -> None:
    assert adjusted(sources=(("sessions",), "f"))[0]["sources"] == ("memory",)
    assert adjusted(sources=((), "f"))[0]["sources"] == ("memory",)


def test_the_overlap_stays_below_the_size_of_a_chunk() -> None:
    found, warnings = adjusted(chunking__tokens=(100, "f"), chunking__overlap=(100, "f"))
    assert found["chunking.overlap"] == 99
    assert warnings

    assert adjusted(chunking__tokens=(50, "f"))[0]["chunking.overlap"] == 49
    assert "chunking.overlap" not in adjusted(chunking__tokens=(500, "f"))[0]


def test_the_weights_are_scaled_to_a_sum_of_one() -> None:
    found, _ = adjusted(query__hybrid__vectorWeight=(0.6, "f"), query__hybrid__textWeight=(0.2, "f"))
    assert found["query.hybrid.vectorWeight"] == pytest.approx(0.75)

    found, _ = adjusted(query__hybrid__vectorWeight=(0.0, "f"))
    assert (found["query.hybrid.vectorWeight"], found["query.hybrid.textWeight"]) == (0.0, 1.0)


def test_two_weights_of_zero_mean_the_defaults() -> None:
    found, warnings = adjusted(query__hybrid__vectorWeight=(0.0, "f"), query__hybrid__textWeight=(0.0, "f"))

    assert (found["query.hybrid.vectorWeight"], found["query.hybrid.textWeight"]) == (0.5, 0.5)
    assert warnings


def test_one_weight_alone_leaves_the_rest_to_the_other() -> None:
    found, warnings = adjusted(query__hybrid__vectorWeight=(0.7, "f"))

    assert round(found["query.hybrid.textWeight"], 6) == 0.3
    assert not warnings
