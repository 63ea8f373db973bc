"""Index hosts of one fleet as homes on one machine: each has the files of its own agent."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.embedding_server import EmbeddingServer
from tests.support.fleet import Fleet
from tests.support.workspace import Place, note, remote

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


def up(fleet: Fleet) -> None:
    """Start what stands beside the index of a host."""
    fleet.start("watch")
    fleet.start("work", line="memline worker chunk store query")
