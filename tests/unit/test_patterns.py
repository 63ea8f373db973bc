from __future__ import annotations

import re

import pytest

from memline.shared.patterns import late


def test_a_pattern_is_compiled_when_it_is_first_used(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    real = re.compile
    monkeypatch.setattr(re, "compile", lambda text, flags=0: compiled.append(text) or real(text, flags))

    words = late(r"b+", re.I)
    assert compiled == []

    assert words.findall("aBBab") == ["BB", "b"]
    assert words.pattern == r"b+"
    assert set(compiled) == {r"b+"}
