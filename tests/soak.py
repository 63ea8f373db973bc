"""Edit and search for hours, in a shorter time, and watch memory, latency and the index.

    python -m tests.soak [--minutes 60] [--hours 8] [--fleet] [--seed 1]

`memline up`, or the processes of a fleet, follow a workspace and `memline serve` answers over HTTP, all real
processes, while notes are written, changed, moved and deleted, at a rate that makes `--hours` of one busy
person fit into `--minutes`. Prints latency at the start and the end, and after a tenth and half of the time
and at the end what must not grow: memory and handles of each process, rows of requests in flight, and keys of
Redis that do not expire. Exits with 1 when a search failed, the index differs at the end from that of a calm
run, or one of these grew from half of the time to the end.
"""

import argparse
import random
import socket
import sys
import tempfile
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from statistics import median

import httpx

from memline.shared.index import driver
from memline.shared.scheduling import leases
from tests.support.embedding_server import EmbeddingServer
from tests.support.fleet import LINES, Fleet
from tests.support.process import running_memline
from tests.support.redis_server import RedisServer
from tests.support.undisturbed import undisturbed
from tests.support.workspace import Place, note, remote, until

#: Seconds between two edits, and between two searches, of one busy person.
EDIT_S, SEARCH_S = 10.0, 15.0

#: What counts of handles, rows and keys may differ by from one moment to another.
FEW = 16

#: Notes there are at the start.
NOTES = 300

_QUESTIONS = ("what failed in the deploy", "invoices in cents", "note {n}", "word{n}x1x5", "section 2 of {n}")


def edit(place, dice, number):
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


def figures(pids, place, redis):
    """What must not grow: memory and handles of processes, rows of requests in flight, keys in Redis."""
    found = {}
    for name, pid in pids.items():
        status = Path(f"/proc/{pid}/status").read_text()
        found[f"MB of {name}"] = int(status.partition("VmRSS:")[2].split()[0]) // 1024
        found[f"handles of {name}"] = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    with driver.reading(place.index_path) as reader:
        found["leases"] = len(leases.tokens(reader))
    if redis is not None:
        with closing(redis.client()) as asked:
            databases = asked.info("keyspace")
        found["keys"] = sum(each["keys"] - each["expires"] for each in databases.values())
    return found


def grown(before, after):
    """Name what grew by more than a machine's moods: a tenth of memory and 4 MB, or `FEW` of the rest."""
    return [
        name
        for name, now in after.items()
        if now > before[name] + (4 + before[name] // 10 if name.startswith("MB") else FEW)
    ]


def run(folder, *, seconds, simulated_s, with_fleet, seed):
    """Edit and search for so many seconds; 1 when the verdict of the module's first lines is no."""
    dice = random.Random(seed)
    speed = simulated_s / seconds
    with ExitStack() as stack:
        provider = stack.enter_context(EmbeddingServer(dims=16, latency_ms=30))
        redis = stack.enter_context(RedisServer(folder / "redis")) if with_fleet else None
        with closing(socket.socket()) as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        place = Place(folder=folder / "user", memory=remote(provider.url))
        for number in range(NOTES):
            place.write(f"memory/note-{number}.md", note(number))
        place.index()
        pids = {}
        if redis is not None:
            fleet = stack.enter_context(Fleet(place, redis.url))
            fleet.up()
            pids = {label: fleet.pid(label) for label in LINES}
        else:
            pids["up"] = stack.enter_context(running_memline(*place.arguments("up"))).pid
        serve = place.arguments("serve", "--port", str(port))
        env = {"MEMLINE_QUEUE_URL": redis.url} if redis else {}
        pids["serve"] = stack.enter_context(running_memline(*serve, env=env)).pid
        client = stack.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60))
        until(lambda: _is_up(client), "the server")
        began = time.monotonic()
        edits = searches = failures = 0
        latencies = []
        seen = []
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
            if now > seconds * (0.1, 0.5, 2)[len(seen)]:
                seen.append(figures(pids, place, redis))
            time.sleep(0.01)
        seen.append(figures(pids, place, redis))
        right = undisturbed(place, folder)
        with suppress(AssertionError):
            until(
                lambda: place.contents() == right and not place.rows("SELECT token FROM leases"), "the index"
            )
        is_equal, left = place.contents() == right, len(place.rows("SELECT token FROM leases"))
        tenth = max(1, len(latencies) // 10)
        print(f"{simulated_s / 3600:.1f} h in {seconds / 60:.0f} min: {edits} edits, {searches} searches")
        print(f"searches that failed: {failures}; index equal: {is_equal}; leases left: {left}")
        first, last = median(latencies[:tenth]), median(latencies[-tenth:])
        print(f"search, median: {first:.3f} s at the start, {last:.3f} s at the end")
        for name in seen[-1]:
            print(f"{name}:", *(each[name] for each in seen))
        growing = grown(*seen[-2:])
        print(f"grew from half of the time to the end: {', '.join(growing) or 'nothing'}")
        return int(failures > 0 or not is_equal or left > 0 or bool(growing))


def _is_up(client):
    try:
        return client.get("/health").status_code == 200
    except httpx.TransportError:
        return False


def main():
    """Parse the command line and run once."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--hours", type=float, default=8)
    parser.add_argument("--fleet", action="store_true", help="the processes of a fleet instead of `up`")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return run(
            Path(folder).resolve(),
            seconds=options.minutes * 60,
            simulated_s=options.hours * 3600,
            with_fleet=options.fleet,
            seed=options.seed,
        )


if __name__ == "__main__":
    sys.exit(main())
