"""Resident memory of a process that uploads the file of a whole batch, and of one that reads its answer.

The provider is the server of the tests, in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.bench import Bench
from benchmarks.children import PEAK, ROOT, environment, peak_mb, run
from benchmarks.figures import Figure, at_most

_ROWS, _TEXT_CHARS, _DIMS = 50_000, 3_830, 1_024

_API = """
import sys
from memline.shared.batches.job_rows import BatchRow
from memline.shared.batches.openai import OpenAIBatch
from memline.shared.embedders.endpoint import Endpoint
from memline.shared.embedders.protocol import Identity
api = OpenAIBatch(
    identity=Identity(provider="openai", model="bench"),
    endpoint=Endpoint(provider="openai", base_url=sys.argv[1], public=False),
    timeout_s=300,
)
"""

_UPLOAD = """
rows = (
    BatchRow(key=f"{{number:064x}}", text=f"{{number:08}} " + "word " * ({chars} // 5))
    for number in range({rows})
)
print(api.upload(rows, tag="bench"))
"""

_RESULTS = """
import json
received = 0
def counted(name, content=api._content):
    global received
    for piece in content(name):
        received += len(piece)
        yield piece
api._content = counted
look = api.create(sys.argv[2], tag="bench", agent="main")
look = api.get_job(look.id)
good = sum(result.vector is not None for result in api.results(look))
print(json.dumps({"good": good, "received": received}))
"""


def resident(bench: Bench) -> list[Figure]:
    """Peak memory while a batch of 200 MB is uploaded and while an answer of 1 GB is read."""
    code = PEAK + _API
    with provider(_DIMS) as base_url:
        uploaded = run([sys.executable, "-c", code + _UPLOAD.format(rows=_ROWS, chars=_TEXT_CHARS), base_url])
        file_id = uploaded.stdout.strip()
        read = run([sys.executable, "-c", code + _RESULTS, base_url, file_id])
    told = json.loads(read.stdout)
    assert told["good"] == _ROWS, told
    return [
        at_most(
            f"memory while {_ROWS:,} rows, 200 MB, are uploaded",
            peak_mb(uploaded),
            150,
            "MB",
            detail=f"{uploaded.wall_s:.0f} s, {uploaded.cpu_s:.0f} s CPU",
        ),
        at_most(
            f"memory while an answer of {told['received'] / 1e9:.1f} GB is read",
            peak_mb(read),
            150,
            "MB",
            detail=f"{_ROWS:,} x {_DIMS} numbers as JSON; {read.wall_s:.0f} s, {read.cpu_s:.0f} s CPU",
        ),
    ]


@contextmanager
def provider(dims: int) -> Iterator[str]:
    """The base URL of a server with a Batch API whose vectors cost nothing."""
    command = [sys.executable, "-m", "tests.support.embedding_server", "--cheap", "--dims", str(dims)]
    with subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            yield child.stdout.readline().strip()
        finally:
            child.terminate()
