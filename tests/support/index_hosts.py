"""Index hosts of one fleet as homes on one machine: each has the files of its own agent."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.embedding_server import EmbeddingServer
from tests.support.fleet import Fleet
from tests.support.workspace import Place, note, remote

#: What the fleet is called in Redis.
NAME = "team"

#: Texts of a note.
TEXTS = 3


@dataclass(slots=True, kw_only=True)
class HostPlace(Place):
    """One index host: all of them have the same agents, and each the files of some."""

    agents: tuple[str, ...] = field(default=("alpha", "beta"))

    def save(self) -> None:
        agents = [{"id": each, "workspace": str(self.files(each))} for each in self.agents]
        content = {"agents": {"defaults": {"memorySearch": self.memory}, "list": agents}}
        self.config.write_text(json.dumps(content))

    def files(self, agent: str) -> Path:
        return self.folder / "notes" / agent

    def add(self, agent: str, *numbers: int) -> None:
        for number in numbers:
            self.write(f"{agent}/memory/note-{number}.md", note(number))


def two_hosts(folder: Path, provider: EmbeddingServer) -> tuple[HostPlace, HostPlace]:
    """Configure the hosts `one` with the files of alpha and `two` with those of beta."""
    places = []
    for name, agent in (("one", "alpha"), ("two", "beta")):
        place = HostPlace(folder=folder / name, memory=remote(provider.url, maxRows=8), agent_name=agent)
        place.configure(sync={"watchDebounceMs": 100})
        places.append(place)
    return places[0], places[1]


@contextmanager
def two_fleets(hosts: tuple[HostPlace, HostPlace], url: str) -> Iterator[tuple[Fleet, Fleet]]:
    """Run both hosts as one fleet, with an embed worker that knows of no host."""
    name = {"MEMLINE_QUEUE_NAME": NAME}
    with (
        Fleet(hosts[0], url, **name, MEMLINE_QUEUE_HOST="one") as one,
        Fleet(hosts[1], url, **name, MEMLINE_QUEUE_HOST="two") as two,
    ):
        up(one)
        up(two)
        two.start("embed", env={"MEMLINE_QUEUE_HOST": ""})
        yield one, two


def up(fleet: Fleet) -> None:
    """Start what stands beside the index of a host."""
    fleet.start("watch")
    fleet.start_work("chunk", "store", "query")
