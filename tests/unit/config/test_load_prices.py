from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memline.shared.config.load import Loaded, Options, examine
from memline.shared.config.show import keys_of_file, shown_for_all


def read(tmp_path: Path, prices: str) -> Loaded:
    file = tmp_path / "config.json5"
    file.write_text(f"{{ agents: {{ defaults: {{ workspace: '{tmp_path}' }} }}, prices: {prices} }}")
    return examine(Options(config=file, home=tmp_path), {})


def test_prices_are_read_by_model_and_shown_with_their_origin(tmp_path: Path) -> None:
    loaded = read(
        tmp_path, "{ 'm': { perMillion: 0.01, asOf: '2026-11-01' }, 'openai/n': { perMillion: 2 } }"
    )

    shown = shown_for_all(loaded)

    assert not loaded.problems
    assert loaded.settings.prices == {
        "m": {"perMillion": 0.01, "asOf": "2026-11-01"},
        "openai/n": {"perMillion": 2.0},
    }
    assert shown["prices.m.perMillion"].value == 0.01
    assert shown["prices.m.asOf"].origin.endswith("prices.m.asOf")
    assert "prices.openai/n.perMillion" in keys_of_file(loaded)


@pytest.mark.parametrize(
    ("prices", "words"),
    [
        ("[]", "prices: found an array, allowed: an object"),
        ("{ m: 3 }", "prices.m: found the number 3"),
        ("{ m: { asOf: '2026-11-01' } }", "prices.m: perMillion is missing"),
        ("{ m: { perMillion: -1 } }", "prices.m.perMillion: found the number -1"),
        ("{ m: { perMillion: 'much' } }", "prices.m.perMillion"),
        ("{ m: { permillion: 1 } }", "prices.m.permillion: unknown key"),
        ("{ m: { perMillion: 1, asOf: 'lately' } }", "prices.m.asOf"),
        ("{ m: { perMillion: 1, asOf: '2026-13-01' } }", "prices.m.asOf"),
    ],
)
def test_an_invalid_price_is_reported(tmp_path: Path, prices: str, words: str) -> None:
    loaded = read(tmp_path, prices)

    found: list[Any] = [problem.message for problem in loaded.problems]

    assert any(words in message for message in found), found
