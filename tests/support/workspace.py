"""A user's things for tests of whole runs: a folder of notes, a home for the index, a configuration file."""

import json
import os
import shlex
import subprocess
import time
from contextlib import closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

from memline.producers import cli
from memline.producers.memory import Memory
from memline.producers.reports.status import report
from memline.producers.runs.index_run import bring_up_to_date
from memline.shared.config.load import Options, load
from memline.shared.index import driver
from memline.shared.index.accounts import AccountFile
from memline.shared.search.request import SearchRequest
from tests.support import process
from tests.support.process import Ran

#: Seconds `until` waits at most; reached only when the test fails.
UNTIL_S = 150.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Everything an index holds that depends on the notes alone: row numbers and times are left out."""

    #: (path, outcome, hash of the content)
    files: list[tuple[str, str, str]]
    #: (path, first line, last line, heading, text)
    chunks: list[tuple[str, int, int, str, str]]
    #: text hash -> vector, of the texts that some chunk has
    vectors: dict[bytes, bytes]


@dataclass(slots=True, kw_only=True)
class Place:
    """One user's workspace, home and configuration."""

    folder: Path
    #: `memorySearch` of the configuration file.
    memory: dict[str, Any] = field(default_factory=dict)
    agent_name: str = "main"

    def __post_init__(self):
        self.workspace.mkdir(parents=True, exist_ok=True)
        self.save()

    @property
    def workspace(self):
        return self.folder / "notes"

    @property
    def home(self):
        return self.folder / "home"

    @property
    def config(self):
        return self.folder / "config.json5"

    @property
    def index_path(self):
        return self.home / "memory" / f"{self.agent_name}.sqlite"

    def configure(self, **memory):
        """Change keys of `memorySearch`; the blocks given replace those before."""
        self.memory.update(memory)
        self.save()

    def save(self):
        defaults = {"workspace": str(self.workspace), "memorySearch": self.memory}
        self.config.write_text(json.dumps({"agents": {"defaults": defaults}}))

    def write(self, path, text):
        """Make a note; folders on the way are made too."""
        file = self.workspace / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    def furnish(
        self,
        *,
        folders=(),
        files=None,
        notes=0,
        is_indexed=False,
        **memory,
    ):
        """Make `folders`, write `files` and so many numbered notes, with these keys of `memorySearch`."""
        self.configure(**memory)
        for folder in folders:
            (self.workspace / folder).mkdir()
        for number in range(notes):
            self.write(f"memory/note-{number}.md", note(number))
        for path, text in (files or {}).items():
            self.write(path, text)
        if is_indexed:
            self.index()

    @property
    def settings(self):
        return load(Options(config=self.config, home=self.home))

    @property
    def agent(self):
        return load(Options(config=self.config, home=self.home)).agent(None)

    # In this process.

    def index(self, **options):
        """`memline index`."""
        return bring_up_to_date(self.settings, self.agent, **options)

    def search(self, query, **options):
        """`memline search`."""
        with Memory.of(self.settings, self.agent) as memory:
            return memory.ask(SearchRequest(query=query, **options))

    def report(self, *, deep=False):
        """`memline status --json` of the agent."""
        return report(self.settings, self.agent, deep=deep)

    def status(self):
        """Its `status` block."""
        status = self.report()["status"]
        return status

    # As a command line.

    def arguments(self, *args):
        return ["--config", str(self.config), "--home", str(self.home), *args]

    def typed(self, command):
        """A command as hints give it: with the options of `arguments`."""
        return shlex.join(["memline", *self.arguments()]) + f" {command}"

    def run(self, *args, **options):
        return process.memline(*self.arguments(*args), **options)

    def call(self, *args, env=None):
        """The same in this process, where that of a user adds nothing but its start."""
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err), patch.dict(os.environ, env or {}):
            status = cli.run(self.arguments(*args))
        return Ran(status=status, stdout=out.getvalue(), stderr=err.getvalue(), args=args)

    def run_without_rights(self, *args, **options):
        return process.memline_without_rights(*self.arguments(*args), **options)

    # What the index holds.

    def rows(self, sql, *values):
        with closing(driver.open_reader(self.index_path)) as reader:
            return reader.execute(sql, values).fetchall()

    def execute(self, sql, *values):
        with closing(driver.open_writer(self.index_path)) as writer:
            writer.execute(sql, values)

    def execute_accounts(self, sql):
        """Run SQL on what the home knows of its provider accounts."""
        with closing(AccountFile(self.agent.account_path)) as file, file.writing() as writer:
            writer.execute(sql)

    def end_cooldowns(self):
        """As if the seconds had passed for which nothing is sent after a no."""
        self.execute_accounts("DELETE FROM limits")

    def outcomes(self):
        """path -> (outcome, reason), as the ledger has them."""
        rows = self.rows("SELECT path, outcome, reason FROM files WHERE outcome <> 'removed'")
        return {path: (outcome, reason) for path, outcome, reason in rows}

    def vector_states(self):
        return dict(self.rows("SELECT state, count(*) FROM vectors WHERE active = 1 GROUP BY state"))

    def contents(self):
        """What the index holds, its full-text index checked against its chunks on the way."""
        with closing(driver.open_writer(self.index_path)) as connection:
            connection.execute("INSERT INTO chunks_fts (chunks_fts) VALUES ('integrity-check')")
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        active = "(SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'active_identity')"
        vectors = self.rows(
            f"SELECT text_hash, embedding FROM vectors WHERE identity_id = {active}"
            " AND active = 1 AND state = 'ready'"
        )
        return Contents(
            files=self.rows("SELECT path, outcome, hash FROM files WHERE outcome <> 'removed' ORDER BY path"),
            chunks=self.rows(
                "SELECT path, start_line, end_line, heading, text FROM chunks"
                " JOIN files ON files.id = file_id ORDER BY path, ordinal"
            ),
            vectors=dict(vectors),
        )


def note(number, *, sections=3):
    """A note whose sections are chunks of their own, with no text in common with any other note."""
    parts = [f"# Note {number}\n"]
    for section in range(sections):
        words = " ".join(f"word{number}x{section}x{count}" for count in range(100))
        parts.append(f"## Section {section} of {number}\n\n{words}.\n")
    return "\n".join(parts)


def remote(url, **more):
    """The keys of `memorySearch` that make a stub server the provider."""
    return {
        "provider": "openai",
        "model": more.pop("model", "stub"),
        "remote": {"baseUrl": url, "apiKey": "sk-test", **more},
    }


def until(holds, what="it"):
    """Look again and again until `holds`; fails when that takes longer than anything should."""
    deadline = time.monotonic() + UNTIL_S
    while not timed(holds, 0.01):
        assert time.monotonic() < deadline, f"{what} did not come within {UNTIL_S:g} s"


def timed(holds, at_least_s):
    """Look once; if it does not hold, wait twice as long, since what is awaited needs the processor too."""
    began = time.monotonic()
    if found := holds():
        return found
    time.sleep(max(at_least_s, min(1.0, 2 * (time.monotonic() - began))))
    return False


def paths(answer):
    """The paths of the hits."""
    return [hit.path for hit in answer.hits]


def outside_reader(folder, pattern):
    """List the files below a folder whose bytes match, in another process.

    One that has an index open would drop its locks by reading the file.
    """
    ran = subprocess.run(
        ["grep", "-rliaE", pattern, str(folder)], capture_output=True, text=True, check=False, timeout=120
    )
    return ran.stdout
