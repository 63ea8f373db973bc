"""Whole runs in which files, the index or libraries are not what they should be."""

import pytest

#: A sound note beside every bad file; it must be found whatever happens to the other.
GOOD = "# Good\n\nThe lighthouse is green.\n"


@pytest.fixture
def place(place):
    """A workspace with one sound note."""
    place.write("memory/good.md", GOOD)
    return place
