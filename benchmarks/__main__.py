"""`python -m benchmarks [NAME …] [--json] [--keep DIR]`: measure, and print one table."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path

from benchmarks import (
    backfill,
    batch_backfill,
    batch_memory,
    faces,
    fleet,
    growth,
    indexing,
    late_interaction,
    local_model,
    memory,
    million,
    moving,
    one_shot,
    pages,
    rate_limits,
    saving,
    session_growth,
    texts,
    titles,
    warm,
)
from benchmarks.bench import Bench
from benchmarks.figures import Figure, table

BENCHMARKS: dict[str, Callable[[Bench], list[Figure]]] = {
    "keyword": one_shot.keyword,
    "hybrid": one_shot.hybrid,
    "warm": warm.search,
    "vectors": warm.vectors,
    "tokens": late_interaction.tokens,
    "first": indexing.first,
    "nothing-changed": indexing.nothing_changed,
    "save": saving.save,
    "save-import": saving.save_during_import,
    "memory": memory.resident,
    "moving": moving.moved,
    "session-growth": session_growth.growth,
    "batch-backfill": batch_backfill.backfill,
    "batch-memory": batch_memory.resident,
    "local": local_model.embedding,
    "http": faces.http,
    "mcp": faces.mcp,
    "pages": pages.pages,
    "titles": titles.inside_questions,
    "fleet-search": fleet.search,
    "fleet-idle": fleet.idle,
    "fleet-files": fleet.files,
    "fleet-backfill": backfill.backfill,
    "fleet-store": backfill.store_rate,
}

#: Those that take many minutes or gigabytes: run when they are named, so that the others end in ten minutes.
LARGE: dict[str, Callable[[Bench], list[Figure]]] = {
    "million": million.million,
    "words": texts.words,
    "growth": growth.growth,
    "rate-limits": rate_limits.kept,
}


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmarks named, or all but LARGE; 1 when a target is missed, or on Ctrl-C."""
    known = {**BENCHMARKS, **LARGE}
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ones: {', '.join(known)}")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep notes and indexes there for next time")
    parser.add_argument(
        "--seconds", type=int, default=60, metavar="N", help="how long session-growth writes (default 60)"
    )
    parser.add_argument(
        "--sizes",
        type=million.sizes,
        default=[10_000, 100_000, 1_000_000],
        metavar="N,N",
        help="of million, words and growth: how many vectors or chunks (10k,100k,1M)",
    )
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(known)}")
    figures: list[Figure] = []
    is_whole = False
    with nullcontext(options.keep) if options.keep else tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder).resolve(), seconds=options.seconds, sizes=options.sizes)
        with suppress(KeyboardInterrupt):  # The figures so far are worth having.
            for name in options.names or BENCHMARKS:
                began, cpu_s = time.monotonic(), _cpu_s()
                print(f"{name} … {known[name].__doc__}", file=sys.stderr, flush=True)
                figures += known[name](bench)
                print(f"    {time.monotonic() - began:.0f} s, {_cpu_s() - cpu_s:.0f} s CPU", file=sys.stderr)
            is_whole = True
    print(json.dumps([figure.to_json() for figure in figures], indent=2) if options.json else table(figures))
    return 0 if is_whole and not any(figure.met is False for figure in figures) else 1


def _cpu_s() -> float:
    """Return the CPU seconds so far of this process and of its children that have ended."""
    return sum(os.times()[:4])


if __name__ == "__main__":
    sys.exit(main())
