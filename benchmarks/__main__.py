"""`python -m benchmarks [NAME …] [--json] [--keep DIR]`: measure, and print one table."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path

import msgspec
import pytest

from benchmarks import backfill, fleet, indexing, memory, one_shot, saving, warm
from benchmarks.bench import Bench
from benchmarks.figures import Figure, table

BENCHMARKS: dict[str, Callable[[Bench], list[Figure]]] = {
    "keyword": one_shot.keyword,
    "hybrid": one_shot.hybrid,
    "warm": warm.search,
    "first": indexing.first,
    "nothing-changed": indexing.nothing_changed,
    "save": saving.save,
    "memory": memory.resident,
    "http": warm.http,
    "fleet-search": fleet.search,
    "fleet-files": fleet.files,
    "fleet-backfill": backfill.backfill,
}


def main(arguments: list[str] | None = None) -> int:
    """Run the named benchmarks, or all; 1 when a target is missed, or on Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ones: {', '.join(BENCHMARKS)}")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep notes and indexes there for next time")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in BENCHMARKS]:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    figures: list[Figure] = []
    is_whole = False
    with nullcontext(options.keep) if options.keep else tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder).resolve())
        with suppress(KeyboardInterrupt):  # The figures so far are worth having.
            for name in options.names or BENCHMARKS:
                began, cpu_s = time.monotonic(), sum(os.times()[:4])
                print(f"{name} … {BENCHMARKS[name].__doc__}", file=sys.stderr, flush=True)
                try:
                    figures += BENCHMARKS[name](bench)
                except pytest.skip.Exception as reason:  # There is no redis-server.
                    figures.append(Figure(what=name, target="", measured=f"not measured: {reason}"))
                print(
                    f"    {time.monotonic() - began:.0f} s, {sum(os.times()[:4]) - cpu_s:.0f} s CPU",
                    file=sys.stderr,
                )
            is_whole = True
    print(msgspec.json.format(msgspec.json.encode(figures)).decode() if options.json else table(figures))
    return 0 if is_whole and not any(figure.met is False for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
