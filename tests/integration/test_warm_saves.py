"""A process that goes on searching finds a note that was saved meanwhile."""

import os
from contextlib import ExitStack

import httpx
import pytest

from memline import Memory
from tests.support.http_api import serving
from tests.support.workspace import Place, until

SAVES = 5


def asked_of_memory(place, stack):
    memory = stack.enter_context(Memory.of(place.settings, place.agent, long_lived=True))
    return lambda question: memory.search(question).to_json()


def asked_of_serve(place, stack):
    client = stack.enter_context(
        httpx.Client(base_url=stack.enter_context(serving(place.settings)), timeout=30)
    )

    def ask(question):
        answer = client.post("/search", json={"query": question}).json()
        return answer

    return ask


@pytest.mark.parametrize("asked_of", [asked_of_memory, asked_of_serve])
def test_a_save_is_found_by_a_warm_process(asked_of, tmp_path):
    place = Place(folder=tmp_path / "user")
    for number in range(100):
        place.write(f"memory/{number}.md", f"note {number} about whales\n")
    with ExitStack() as stack:
        ask = asked_of(place, stack)
        assert ask("whales")["results"]

        for number in range(SAVES):
            # As an editor saves: a new file in the place of the old one.
            place.write("memory/new.tmp", f"zebra{number} lives here\n")
            os.replace(place.workspace / "memory/new.tmp", place.workspace / "memory/0.md")
            # It looks at the files again once its last look was a fiftieth of the time.
            until(lambda word=f"zebra{number}": ask(word)["results"])
