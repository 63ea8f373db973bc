"""Strike a fleet at random while it works, then compare its index with that of a calm run.

    python -m tests.chaos [--blows 300] [--texts 20000] [--batches] [--seed 1]

A blow is one of: SIGKILL of a role, SIGSTOP for longer than a lease, Redis killed with or without its data,
FLUSHALL, a full disk (a limit on the size of files), a provider that fails or hangs, a clock that is hours
ahead or behind, a polite end. The first third is polite. Prints
what was lost, what was paid for twice and what could have been, what is shown as spent and what was billed,
and memory. Exits with 1 when a file or vector is missing, the index differs, more was paid for twice than
was in flight, or another sum is shown than was billed: after polite blows any other, after all one that is
less, or more by what was in flight.
"""

import argparse
import random
import resource
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

from memline.shared.sources.tokens import estimate_tokens
from tests.support.embedding_server import EmbeddingServer
from tests.support.fleet import LINES, Fleet
from tests.support.redis_server import RedisServer
from tests.support.undisturbed import undisturbed
from tests.support.workspace import Place, note, remote

#: Texts in a request, requests of an embed process in the air at most, texts of a note.
ROWS, IN_THE_AIR, TEXTS = 8, 4, 3

#: Requests in flight at most, for two embed processes.
IN_FLIGHT = 4 * IN_THE_AIR

#: Seconds of a lease here: a process that is stopped for longer has lost it.
LEASE_S = 3.0

#: Tokens of a text at most.
MOST_TOKENS = 400

#: What is still in the air: leases, and batches that are not over.
OPEN = "SELECT token FROM leases UNION ALL SELECT token FROM batches WHERE state <> 'closed'"

#: Seconds in which all work must be done after the last blow.
END_S = 600.0


class Chaos:
    """One fleet, its provider and its Redis, and the blows that they get."""

    def __init__(self, fleet, redis, provider, dice):
        self._fleet = fleet
        self._redis = redis
        self._provider = provider
        self._dice = dice
        self.labels = [*LINES, "embed-2"]
        #: Texts that may have been in flight when something was struck.
        self.at_risk = 0
        self.blows = Counter()

    def strike(self, *, politely):
        """One blow of a random kind."""
        polite = [(6, self._end)]
        kinds = (
            polite
            if politely
            else [
                *polite,
                (10, self._kill),
                (3, self._stop),
                (2, self._kill_redis),
                (1, self._flush),
                (2, self._fill_disk),
                (3, self._lose_provider),
                (2, self._set_clock),
            ]
        )
        (blow,) = self._dice.choices([blow for _, blow in kinds], [weight for weight, _ in kinds])
        blow()

    def supervise(self):
        """Start what ended by itself, as a supervisor does."""
        for label in self.labels:
            if not self._fleet.is_running(label):
                self._fleet.start(label)
                self._counted(f"{label} ended by itself")

    def _counted(self, name, texts=0):
        self.blows[name] += 1
        self.at_risk += texts

    def _kill(self):
        label = self._dice.choice(self.labels)
        self._fleet.restart(label)
        self._counted(f"kill {label}", IN_THE_AIR * ROWS if label.startswith("embed") else 0)

    def _stop(self):
        label = self._dice.choice(self.labels)
        self._fleet.signal(label, signal.SIGSTOP)
        time.sleep(LEASE_S + 1)
        self._fleet.signal(label, signal.SIGCONT)
        # A lease that ran out is sent again; what a stopped store had not stored yet as well.
        self._counted(f"stop {label}", IN_FLIGHT * ROWS)

    def _kill_redis(self):
        self._redis.kill()
        time.sleep(self._dice.uniform(0.1, 1.5))
        keeps = self._dice.random() < 0.5
        if not keeps:
            shutil.rmtree(self._redis.folder)
        self._redis.start()
        self._counted(
            "kill redis, data kept" if keeps else "kill redis, data lost", 0 if keeps else IN_FLIGHT * ROWS
        )

    def _flush(self):
        self._redis.ask("FLUSHALL")
        self._counted("flushall", IN_FLIGHT * ROWS)

    def _fill_disk(self):
        label = self._dice.choice([label for label in self.labels if label in ("store", "batch")])
        pid = self._fleet.pid(label)
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, hard))
        time.sleep(self._dice.uniform(0.5, 3))
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
        # Vectors that cannot be stored are sent again when their lease is over.
        self._counted(f"disk full for {label}", IN_FLIGHT * ROWS)

    def _lose_provider(self):
        fault = self._dice.choice(("500", "429:1", "close", "nan", "hang"))
        self._provider.control({"fault": fault})
        time.sleep(self._dice.uniform(0.5, 3))
        self._provider.control({"fault": ""})
        self._fleet.run("queue", "resume")
        self._counted(f"provider {fault}", IN_FLIGHT * ROWS)

    def _set_clock(self):
        label = self._dice.choice(self.labels)
        self._fleet.kill(label)
        hours = self._dice.choice((-1, 1)) * self._dice.uniform(0.1, 30)
        self._fleet.start(label, env={"SKEW_S": str(3600 * hours)})
        self._counted(f"clock {'ahead' if hours > 0 else 'behind'} for {label}", IN_FLIGHT * ROWS)

    def _end(self):
        label = self._dice.choice(self.labels)
        self._fleet.terminate(label)
        self._fleet.ended(label)
        self._fleet.start(label)
        self._counted(f"end {label}")


class BillingServer(EmbeddingServer):
    """A provider that adds up the tokens that it embedded, in requests and in batches."""

    batched = 0

    def count_texts(self, texts):
        """Count the texts of a batch, as its jobs call it."""
        super().count_texts(texts)
        self.batched += sum(map(estimate_tokens, texts))


def billed(provider):
    """Tokens that a provider asks money for: what was refused costs nothing."""
    with provider.lock:
        answered = [each for each in provider.requests if not each.fault.startswith(("500", "429"))]
        return provider.batched + sum(
            estimate_tokens(text) for each in answered for text in each.body["input"]
        )


def shown(place):
    """Tokens that count as spent, on whichever day: clocks were ahead."""
    query = (
        "SELECT (SELECT total(tokens) FROM spending)"
        " - (SELECT total(tokens) FROM reservations WHERE mode = 'requests' AND sent = 0)"
    )
    with closing(sqlite3.connect(place.home / "accounts.sqlite")) as accounts:
        return int(accounts.execute(query).fetchone()[0])


def until_ready(fleet, texts):
    """Wait until so many texts have their vectors and no batch is open; the seconds that it took."""

    def is_ready():
        return fleet.vectors() == {"ready": texts} and not fleet.place.rows(OPEN)

    try:
        return fleet.until(is_ready, "all vectors", within_s=END_S)
    except AssertionError:
        print(
            f"{fleet.vectors()} of {texts}; {fleet.place.status()}", *fleet.dead(), sep="\n", file=sys.stderr
        )
        raise


def resident_mb(fleet, labels):
    """Memory of each process in MB."""
    sizes = {}
    for label in labels:
        status = Path(f"/proc/{fleet.pid(label)}/status").read_text()
        sizes[label] = int(status.partition("VmRSS:")[2].split()[0]) // 1024
    return sizes


def run(folder, *, blows, texts, batches, seed):
    """Strike a backfill so many times; 1 when a promise was broken."""
    dice = random.Random(seed)
    with (
        BillingServer(dims=16, latency_ms=40) as provider,
        RedisServer(folder / "redis", keeps_data=True) as redis,
    ):
        batch = {"batch": {"enabled": True, "minTexts": 50, "pollIntervalMs": 200}} if batches else {}
        place = Place(folder=folder / "user", memory=remote(provider.url, maxRows=ROWS, **batch))
        place.configure(sync={"watchDebounceMs": 200})
        (place.workspace / "memory").mkdir()
        with Fleet(place, redis.url, lease_s=LEASE_S) as fleet:
            chaos = Chaos(fleet, redis, provider, dice)
            more = ["embed-2", "batch"] if batches else ["embed-2"]
            chaos.labels = [*LINES, *more]
            fleet.up(*more)
            before = resident_mb(fleet, chaos.labels)
            notes, polite = texts // TEXTS, blows // 3
            for number in range(blows):
                for index in range(notes * number // blows, notes * (number + 1) // blows):
                    place.write(f"memory/note-{index}.md", note(index))
                time.sleep(dice.uniform(0.1, 0.8))
                chaos.strike(politely=number < polite)
                chaos.supervise()
                if number == polite - 1:
                    until_ready(fleet, notes * polite // blows * TEXTS)
                    politely = shown(place), billed(provider)
                if number % 25 == 24:
                    print(f"{number + 1} blows, {fleet.vectors()}", file=sys.stderr, flush=True)
            for label in chaos.labels:
                # Clocks that are ahead, and processes that ended by themselves, are started anew.
                fleet.restart(label)
            chaos.at_risk += IN_FLIGHT * ROWS
            fleet.run("queue", "resume")
            wanted = notes * TEXTS
            took = until_ready(fleet, wanted)
            after = resident_mb(fleet, chaos.labels)
            dead = fleet.dead()
        right, got = undisturbed(place, folder), place.contents()
        again = sum(times - 1 for times in provider.repeated().values())
        lost = sorted(set(right.files) - set(got.files))
        is_equal = (got.files, got.chunks, got.vectors) == (right.files, right.chunks, right.vectors)
        print(f"blows: {sum(chaos.blows.values())} {dict(sorted(chaos.blows.items()))}")
        print(f"texts: {wanted}; all done {took:.0f} s after the last blow")
        print(f"files lost: {len(lost)}; index equal: {is_equal}; dead letters: {len(dead)}")
        print(f"texts paid for twice: {again}; in flight at the blows, at most: {chaos.at_risk}")
        spent, paid = shown(place), billed(provider)
        print(f"tokens after polite blows: {politely[0]} shown as spent, {politely[1]} billed")
        print(f"tokens after all: {spent} shown as spent, {paid} billed")
        print(f"memory in MB at the start {before} and at the end {after}")
        is_wrong = politely[0] != politely[1] or not 0 <= spent - paid <= chaos.at_risk * MOST_TOKENS
        return int(bool(lost) or not is_equal or again > chaos.at_risk or is_wrong)


def main():
    """Parse the command line and run once."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__.partition("\n")[0])
    parser.add_argument("--blows", type=int, default=300)
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--batches", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return run(
            Path(folder).resolve(),
            blows=options.blows,
            texts=options.texts,
            batches=options.batches,
            seed=options.seed,
        )


if __name__ == "__main__":
    sys.exit(main())
