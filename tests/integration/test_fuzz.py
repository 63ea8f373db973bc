"""A few hundred cases of each target of `tests.fuzz`; `python -m tests.fuzz` runs a million."""

import pytest

from tests.fuzz import TARGETS, fuzz


@pytest.mark.parametrize("name", TARGETS)
def test_broken_input_raises_nothing_and_breaks_no_promise(name):
    fuzz(name, cases=300, seed=7)
