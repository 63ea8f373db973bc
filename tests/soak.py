"""Edit and search for hours, in a shorter time, and watch memory, latency and the index.

    python -m tests.soak [--minutes 60] [--hours 8] [--seed 1]

`memline up` follows a workspace and `memline serve` answers over HTTP, both as real processes, while notes
are written, changed, moved and deleted, at a rate that makes `--hours` of one busy person fit into
`--minutes`. At the end the index must equal that of a calm run. Prints memory and latency at the start and
the end.
"""

import argparse
import json
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path
from statistics import median

import httpx

from tests.support.embedding_server import EmbeddingServer
from tests.support.process import end, running_memline
from tests.support.undisturbed import undisturbed
from tests.support.workspace import Place, note, remote, until

#: Seconds between two edits, and between two searches, of one busy person.
EDIT_S, SEARCH_S = 10.0, 15.0

#: Notes there are at the start.
NOTES = 300

_QUESTIONS = ("what failed in the deploy", "invoices in cents", "note {n}", "word{n}x1x5", "section 2 of {n}")


def edit(place: Place, dice: random.Random, number: int) -> None:
    """Change one thing in the workspace: mostly a note that exists, sometimes its name."""
    notes = sorted((place.workspace / "memory").glob("*.md"))
    one = dice.choice(notes)
    match dice.randrange(10):
        case 0:
            one.unlink()
        case 1:
            one.rename(one.with_name(f"moved-{number}.md"))
        case 2 | 3:
            place.write(f"memory/new-{number}.md", note(10_000 + number, sections=dice.randint(1, 4)))
        case 4:
            # As editors save: a new file that takes the place of the old one.
            other = one.with_suffix(".tmp")
            other.write_text(one.read_text() + f"\nreplaced {number}\n")
            other.replace(one)
        case _:
            with one.open("a") as file:
                file.write(f"\n## Later {number}\n\nsomething new {dice.random()}\n")


def handles(process: subprocess.Popen[str]) -> int:
    """Open files and sockets of a process."""
    return len(list(Path(f"/proc/{process.pid}/fd").iterdir()))


def rows(place: Place) -> dict[str, int]:
    """Rows that must not grow: requests in flight, and what they are counted with."""
    with closing(sqlite3.connect(place.home / "accounts.sqlite")) as accounts:
        (reservations,) = accounts.execute("SELECT count(*) FROM reservations").fetchone()
    return {"leases": len(place.rows("SELECT token FROM leases")), "reservations": reservations}


def memory_mb(process: subprocess.Popen[str]) -> int:
    """Resident memory of a process."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) // 1024


def run(folder: Path, *, seconds: float, simulated_s: float, seed: int) -> int:
    """Edit and search for so many seconds; 1 when the index differs at the end or a search failed."""
    dice = random.Random(seed)
    speed = simulated_s / seconds
    with EmbeddingServer(dims=16, latency_ms=30) as provider, closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        place = Place(folder=folder / "user", memory=remote(provider.url))
        for number in range(NOTES):
            place.write(f"memory/note-{number}.md", note(number))
        place.index()
        arguments = place.arguments()
        with (
            running_memline(*arguments, "up") as up,
            running_memline(*arguments, "serve", "--port", str(port)) as server,
            httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
        ):
            until(lambda: _is_up(client), "the server")
            began = time.monotonic()
            edits = searches = failures = 0
            latencies: list[float] = []
            memory = {}
            while (now := time.monotonic() - began) < seconds:
                if now * speed >= edits * EDIT_S:
                    edits += 1
                    edit(place, dice, edits)
                if now * speed >= searches * SEARCH_S:
                    searches += 1
                    question = dice.choice(_QUESTIONS).format(n=dice.randrange(NOTES))
                    asked = time.monotonic()
                    answer = client.get("/search", params={"query": question})
                    latencies.append(time.monotonic() - asked)
                    failures += answer.status_code != 200
                if now > seconds * 0.1 and not memory:
                    memory = {"up": memory_mb(up), "serve": memory_mb(server)}
                    opened_before = {"up": handles(up), "serve": handles(server)}
                time.sleep(0.01)
            after = {"up": memory_mb(up), "serve": memory_mb(server)}
            opened = {"up": handles(up), "serve": handles(server)}
            right = undisturbed(place, folder)
            with suppress(AssertionError):
                until(lambda: _is_equal(place, right), "the index")
            is_equal = _is_equal(place, right)
            end(server, signal.SIGTERM)
            end(up, signal.SIGTERM)
        tenth = max(1, len(latencies) // 10)
        print(f"{simulated_s / 3600:.1f} h in {seconds / 60:.0f} min: {edits} edits, {searches} searches")
        print(f"searches that failed: {failures}; index equal: {is_equal}")
        first, last = median(latencies[:tenth]), median(latencies[-tenth:])
        print(f"search, median: {first:.3f} s at the start, {last:.3f} s at the end")
        print(f"memory in MB after a tenth of the time {json.dumps(memory)}, at the end {json.dumps(after)}")
        print(
            f"handles then {json.dumps(opened_before)}, at the end {json.dumps(opened)}; rows {rows(place)}"
        )
        return int(failures > 0 or not is_equal)


def _is_up(client: httpx.Client) -> bool:
    try:
        return client.get("/health").status_code == 200
    except httpx.TransportError:
        return False


def _is_equal(place: Place, right: object) -> bool:
    return place.contents() == right


def main() -> int:
    """Parse the command line and run once."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--hours", type=float, default=8)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return run(
            Path(folder).resolve(),
            seconds=options.minutes * 60,
            simulated_s=options.hours * 3600,
            seed=options.seed,
        )


if __name__ == "__main__":
    sys.exit(main())
