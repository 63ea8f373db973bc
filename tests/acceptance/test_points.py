"""The figures of a home go on over kills: from `up` to `serve`, with a gap where neither ran."""

import os
import re
import signal
import time
from contextlib import closing
from pathlib import Path

import httpx

from memline.shared.figures import points
from memline.shared.figures.points import SPANS, Point
from memline.shared.index.accounts import AccountFile
from tests.support.process import end, running_memline
from tests.support.workspace import Place, note, until

#: Points come faster than in life: what is shown here is who writes them.
FAST = "from memline.shared import sampling; sampling.EVERY_S = 0.25"


def written(path: Path) -> list[Point]:
    with closing(AccountFile(path)) as file:
        return [point for point in points.read(file, SPANS["day"], time.time()) if point]


def owner(path: Path) -> int:
    """The process that wrote the last point."""
    with closing(AccountFile(path)) as file, file.reading() as connection:
        row = connection and connection.execute("SELECT owner FROM sampler WHERE at > 0").fetchone()
    return int(row[0].split(":")[1]) if row else 0


def test_a_point_is_written_by_whichever_process_is_left(place: Place) -> None:
    path = place.settings.account_path
    place.write("MEMORY.md", note(1))

    with running_memline(*place.arguments("up"), before=FAST) as up:
        until(lambda: owner(path) == up.pid, "a point of up")
        with running_memline(*place.arguments("serve", "--port", "0"), before=FAST) as serve:
            assert serve.stderr
            url = re.findall(r"http://\S+", serve.stderr.readline())[0]
            found = httpx.get(f"{url}/search", params={"query": "note"}, timeout=120)
            assert found.status_code == 200 and owner(path) == up.pid
            os.kill(up.pid, signal.SIGKILL)
            up.wait()
            until(lambda: owner(path) == serve.pid, "a point of serve")
            # Counts reach the home some seconds after the question.
            until(
                lambda: any(point.sums.get("searches\tmain") for point in written(path)),
                "the question in a point",
            )
            end(serve)

    assert len(written(path)) >= 1
