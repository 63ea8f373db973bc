"""Inject one fault after another into a fleet, and compare what all of its faces say.

    python -m tests.faults [--fault NAME …] [--hold 3]

A real redis-server, a provider over HTTP, the processes of the Procfile and the dashboard by `memline serve`
work, while six of its pages are open, `memline status`, `memline doctor` and /metrics are asked again and
again. For each fault: the seconds from the moment that it can be known until each face says it, whether all
say the same codes then, and the seconds until it is gone after the repair. Exits with 1 when a face is late,
or two contradict each other.

Best as root: a small disk is mounted for the home, and files that may not be read are refused. Watches run
out in a user namespace with a limit of its own; the others are real where they stand.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.embedding_server import EmbeddingServer
from tests.support.faces import PAGES, TROUBLE, Codes, Faces, Said
from tests.support.fleet_faults import FAULTS, Fault
from tests.support.fleet_world import World, drop_rights, mount
from tests.support.redis_server import RedisServer

#: Seconds that a fault, and faces that do not agree, are waited for before they count as missed.
PATIENCE_S = 45.0


@dataclass
class Result:
    fault: Fault
    #: Face -> seconds until it said so; None: never.
    seen: dict[str, float | None]
    gone: dict[str, float | None]
    contradictions: list[str]
    #: What else the command said then.
    also: list[str]

    @property
    def is_good(self) -> bool:
        return (
            not self.contradictions
            and all(each is not None and each <= self.fault.seen_s for each in self.seen.values())
            and all(each is not None and each <= self.fault.gone_s for each in self.gone.values())
        )


def inject(
    world: World, faces: Faces, one: Fault, *, hold_s: float = 0.0, patience_s: float = PATIENCE_S
) -> Result:
    """Inject a fault, watch the faces, repair it, and watch them again, each for so long at most."""
    steps = one.steps(world)
    begun = time.monotonic()
    next(steps)
    known = time.monotonic()
    names = faces.names[len(PAGES) :] if one.is_note else faces.names
    seen = _seconds(faces, names, lambda said: _says(said, one), begun, known, patience_s)
    time.sleep(max(hold_s, one.hold_s))
    contradictions = [f"during: {each}" for each in compare(faces, patience_s)]
    told = faces.now("status")
    also = sorted({code for code, _ in _trouble(told.codes)} - {*one.codes}) if told else []
    begun = time.monotonic()
    next(steps)
    repaired = time.monotonic()
    gone = _seconds(faces, faces.names, lambda said: not _says(said, one), begun, repaired, patience_s)
    next(steps, None)
    contradictions += [f"after: {each}" for each in compare(faces, patience_s, calm=True)]
    return Result(fault=one, seen=seen, gone=gone, contradictions=contradictions, also=also)


def _says(said: Said, one: Fault) -> bool:
    return not {code for code, _ in said.codes}.isdisjoint(one.codes)


def _seconds(
    faces: Faces,
    names: Sequence[str],
    holds: Callable[[Said], bool],
    begun: float,
    known: float,
    patience_s: float,
) -> dict[str, float | None]:
    """Return by face the seconds from `known` until it held for good; None when it never did."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline and not all(faces.holds(name, holds, begun) for name in names):
        time.sleep(0.05)
    return {name: faces.seconds(name, holds, begun, known) for name in names}


def compare(faces: Faces, patience_s: float, *, calm: bool = False) -> list[str]:
    """Return what the faces contradict each other in, when they do not agree within the patience."""
    deadline = time.monotonic() + patience_s
    while True:
        found = _differences(faces, calm=calm)
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.3)


def _differences(faces: Faces, *, calm: bool) -> list[str]:
    now = {name: faces.now(name) for name in faces.names}
    told = {name: each.codes for name, each in now.items() if each is not None}
    truth = told.get("status", frozenset())
    found = []
    for name, codes in told.items():
        right = _trouble(truth) if name in PAGES else truth
        # What is missing on a face, and what it says alone.
        for sign, rest in (("-", right - codes), ("+", codes - right)):
            found += [f"{name} {sign}{code}/{level}" for code, level in sorted(rest)]
    # The roles that are killed here are those that embed.
    if {"role_missing", "embedding_under_way"} <= {code for code, _ in truth}:
        found.append("embedding is under way, and the role for it is missing")
    if calm:
        found += [f"still {code}" for code, _ in sorted(_trouble(truth))]
    for name in PAGES:
        found += [f"{name}: {each}" for each in _sentences(now[name])]
    return found or _figures(faces)


def _trouble(codes: Codes) -> Codes:
    return frozenset(each for each in codes if each[1] in TROUBLE)


def _sentences(said: Said | None) -> list[str]:
    """Return what the facts of the strip contradict in its findings."""
    if said is None:
        return ["says nothing"]
    codes, found = {code for code, _ in said.codes}, []
    if ("no role is missing" in said.facts) == ("role_missing" in codes) and "Redis answers" in said.facts:
        found.append(f"role_missing and {said.facts!r}")
    if ("Redis does not answer" in said.facts) != ("redis_unreachable" in codes):
        found.append(f"redis_unreachable and {said.facts!r}")
    if "ETA" in said.facts and codes & {"paused", "breaker_open", "ceiling_reached", "redis_unreachable"}:
        found.append(f"{said.facts!r} while nothing is sent")
    return found


def _figures(faces: Faces) -> list[str]:
    """Return the figures in which tile, chart and command differ."""
    shown = faces.figures()
    found = []
    for name in ("dead", "wanted", "failed"):
        said = {face: figures[name] for face, figures in shown.items() if name in figures}
        if len({"0" if each == "–" else each for each in said.values()}) > 1:
            found.append(f"{name}: {said}")
    return found


def table(results: Sequence[Result]) -> str:
    """Write the table: a line for each fault, then what contradicts what."""
    faces = ("pages", "list", "status", "doctor", "metrics")
    lines = [f"{'fault':18} {'code':22} " + " ".join(f"{each:>14}" for each in faces)]
    for each in results:
        cells = [_worst(each, PAGES), *(_worst(each, (face,)) for face in faces[1:])]
        mark = "" if each.is_good else "  ✗"
        lines.append(
            f"{each.fault.name:18} {each.fault.codes[0]:22} " + " ".join(f"{c:>14}" for c in cells) + mark
        )
        lines += [f"    {words}" for words in each.contradictions]
        lines += [f"    also: {', '.join(each.also)}"] * bool(each.also)
    good = sum(each.is_good for each in results)
    lines.append("seconds until a face says it / until it is gone, the worst of six pages")
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    lines.append(f"{good} of {len(results)} without a contradiction and in time; load of a core: {load:.1f}")
    return "\n".join(lines)


def _worst(result: Result, names: Sequence[str]) -> str:
    def worst(seconds: dict[str, float | None]) -> str:
        found = [seconds[name] for name in names if name in seconds]
        if not found:
            return "a note"
        return "never" if None in found else f"{max(each or 0.0 for each in found):.1f}"

    return f"{worst(result.seen)} / {worst(result.gone)}"


@contextmanager
def opened(folder: Path, *, is_root: bool = False) -> Iterator[tuple[World, Faces]]:
    """Give a fleet at work and its faces; as root its home is a disk of its own, and file modes hold."""
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer(folder / "redis", keeps_data=True))
        world = World(folder=folder, redis=redis, provider=EmbeddingServer(dims=16).__enter__())
        stack.callback(lambda: world.provider.__exit__())
        if is_root:
            world.place.home.mkdir()
            mount("size=4g,mode=0700", world.place.home)
            stack.callback(lambda: subprocess.run(["umount", "-l", str(world.place.home)], check=True))
            drop_rights()
        stack.enter_context(world.fleet)
        world.start()
        faces = stack.enter_context(Faces(world.fleet, world.url))
        world.until(lambda: all(faces.now(name) for name in faces.names), "all faces")
        yield world, faces


def run(folder: Path, names: Sequence[str], hold_s: float) -> list[Result]:
    """Inject these faults one after another into one fleet."""
    results = []
    is_root = os.geteuid() == 0
    with opened(folder, is_root=is_root) as (world, faces):
        for name in names:
            if name == "disk full" and not is_root:
                print("disk full: not without root, which mounts a small disk", file=sys.stderr)
                continue
            results.append(inject(world, faces, FAULTS[name], hold_s=hold_s))
            print(*table(results[-1:]).splitlines()[1:-2], sep="\n", file=sys.stderr, flush=True)
    return results


def main() -> int:
    """Parse the command line and run once."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__.partition("\n")[0])
    parser.add_argument("--fault", action="append", choices=FAULTS, metavar="NAME", help=", ".join(FAULTS))
    parser.add_argument("--hold", type=float, default=3.0, help="seconds that a fault stays at least")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = run(Path(folder).resolve(), options.fault or tuple(FAULTS), options.hold)
    print(table(results))
    return int(not all(each.is_good for each in results))


if __name__ == "__main__":
    sys.exit(main())
